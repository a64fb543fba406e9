"""How large a result may be.

Tests: tests/client/test_sparse_arrays.py.
"""

from __future__ import annotations

import os

from hsparse.client.errors import ResultTooLarge

MEMORY_DIVISOR = 3
UNKNOWN_MEMORY = 12 << 30
"""Bytes, of a machine that does not say how many it has."""


def default_limit() -> int:
    """Return a third of the machine's memory, in bytes."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        memory = UNKNOWN_MEMORY
    return memory // MEMORY_DIVISOR


def check_size(nbytes: int, limit: int, shape: tuple[int, ...]) -> None:
    """Raise `ResultTooLarge` for a result of more than `limit` bytes."""
    if nbytes > limit:
        raise ResultTooLarge(
            f"The result, of the shape {list(shape)}, would have {nbytes / 1e9:.2f} GB, and max_bytes allows "
            f"{limit / 1e9:.2f} GB: select less, take it in parts by iter_rows, or lazily by to_dask, or set max_bytes."
        )
