"""The limit on the size of results, which applies to every read whose result grows with the selection.

The limit of a dataset is its `max_bytes`, which initially is the `max_bytes` of its connection.
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
"""The size in bytes that a vlen element is assumed to have in memory."""


def default_limit() -> int:
    """Return a third of this machine's memory, in bytes."""
    return machine_memory() // MEMORY_DIVISOR


def element_bytes(dtype: np.dtype[Any]) -> int:
    """Return the size of an element in memory in bytes; the size of a vlen element is an estimate."""
    return TEXT_BYTES if dtype.hasobject else dtype.itemsize


@dataclass(frozen=True)
class ResultLimit:
    """The limit for a result of shape `shape` whose size depends on the number of its defined elements.

    `nbytes(n)` is the size in bytes for n elements, `most` the limit in bytes. `count()` asks the server for the number
    of elements.
    """

    nbytes: Callable[[int], int]
    most: int
    shape: tuple[int, ...]
    count: Callable[[], int]

    def allows(self, count: int) -> bool:
        """Return whether a result with `count` elements is within the limit."""
        return self.nbytes(count) <= self.most

    def check(self, at_most: int) -> None:
        """Raise `ResultTooLarge` if the result is too large.

        The server counts the elements only if `at_most` elements, an upper bound, would exceed the limit.
        """
        if not self.allows(at_most):
            check_size(self.nbytes(self.count()), self.most, self.shape)


def check_size(nbytes: int, limit: int, shape: tuple[int, ...]) -> None:
    """Raise `ResultTooLarge` if an array of shape `shape` has more than `limit` bytes."""
    what = f"The result, of the shape {list(shape)}, would have the size"
    check_total(nbytes, limit, what, "select less, read parts by iter_rows, read lazily by to_dask")


def check_total(nbytes: int, limit: int, what: str, remedy: str) -> None:
    """Raise `ResultTooLarge` if results exceed `limit` bytes; the message begins with `what` and ends with `remedy`."""
    if nbytes > limit:
        raise ResultTooLarge(
            f"{what} {_size(nbytes)}, but max_bytes allows {_size(limit)}: {remedy}, or raise max_bytes."
        )


def _size(nbytes: int) -> str:
    return f"{nbytes / 1e9:.2f} GB" if nbytes >= 10**8 else f"{nbytes / 1e6:.2f} MB"
