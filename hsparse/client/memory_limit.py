"""How large a result may be: the one rule for all reads whose results grow with what is asked for.

`Connection.max_bytes` is the limit, which each dataset takes over as its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hsparse.client.errors import ResultTooLarge
from hsparse.machine_memory import machine_memory

MEMORY_DIVISOR = 3
TEXT_BYTES = 32
"""The guess for an element of variable length."""


def default_limit() -> int:
    """Return a third of the memory that there is, in bytes."""
    return machine_memory() // MEMORY_DIVISOR


def element_bytes(dtype: np.dtype[Any]) -> int:
    """Return how many bytes an element takes in memory; a guess for those of variable length."""
    return TEXT_BYTES if dtype.hasobject else dtype.itemsize


@dataclass(frozen=True)
class ResultLimit:
    """The limit of a result of the shape `shape` that is the larger the more elements are found.

    `nbytes(n)` is its size for n elements, at most `most`; `count()` asks the server how many there are.
    """

    nbytes: Callable[[int], int]
    most: int
    shape: tuple[int, ...]
    count: Callable[[], int]

    def allows(self, count: int) -> bool:
        """Say whether so many elements may be found."""
        return self.nbytes(count) <= self.most

    def check(self, at_most: int) -> None:
        """Raise `ResultTooLarge` for too many elements. The server is asked only if `at_most` would be too many."""
        if not self.allows(at_most):
            check_size(self.nbytes(self.count()), self.most, self.shape)


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
