"""How large a result may be: the one rule for all reads whose results grow with what is asked for.

`Connection.max_bytes` is the limit, which each dataset takes over as its own.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from hsparse.client.errors import ResultTooLarge

MEMORY_DIVISOR = 3
UNKNOWN_MEMORY = 12 << 30
"""Bytes, of a machine that does not say how many it has."""
TEXT_BYTES = 32
"""The guess for an element of variable length."""


def default_limit() -> int:
    """Return a third of the machine's memory, in bytes."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        memory = UNKNOWN_MEMORY
    return memory // MEMORY_DIVISOR


def element_bytes(dtype: np.dtype[Any]) -> int:
    """Return how many bytes an element takes in memory; a guess for those of variable length."""
    return TEXT_BYTES if dtype.hasobject else dtype.itemsize


def check_size(nbytes: int, limit: int, shape: tuple[int, ...]) -> None:
    """Raise `ResultTooLarge` for an array of the shape `shape`, of more than `limit` bytes."""
    what = f"The result, of the shape {list(shape)}, would have"
    check_total(nbytes, limit, what, "select less, take it in parts by iter_rows, or lazily by to_dask")


def check_total(nbytes: int, limit: int, what: str, remedy: str) -> None:
    """Raise `ResultTooLarge` for results of more than `limit` bytes: `what` begins the sentence, `remedy` ends it."""
    if nbytes > limit:
        raise ResultTooLarge(
            f"{what} {_size(nbytes)}, and max_bytes allows {_size(limit)}: {remedy}, or set max_bytes."
        )


def _size(nbytes: int) -> str:
    return f"{nbytes / 1e9:.2f} GB" if nbytes >= 10**8 else f"{nbytes / 1e6:.2f} MB"
