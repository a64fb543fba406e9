"""The number of a chunk in an array of chunks: row-major over how many there can be, the unlimited dimension first.

H5.format.html, VII "Chunk Indexing": fixed and extensible arrays.
"""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import Corrupt
from hsparse.format.hdf5.index_layout import IndexLayout

Columns = NDArray[np.uint64]


def slots(layout: IndexLayout) -> int:
    """Return how many chunks there can be where no dimension is unlimited.

    `Corrupt` when they cannot be numbered in 64 bits.
    """
    count = prod(count for count in layout.counts if count is not None)
    if count >= 2**64:
        raise Corrupt(f"A dataset of at most {layout.max_dims} elements has too many chunks for an array.")
    return count


def number_chunks(layout: IndexLayout, scaled: Columns) -> Columns:
    """Return the numbers, (n,), of chunks at `scaled` coordinates, (n, rank)."""
    slots(layout)
    numbers = np.zeros(len(scaled), np.uint64)
    for dim in _order(layout):
        numbers *= np.uint64(layout.counts[dim] or 1)
        numbers += scaled[:, dim]
    return numbers


def locate_chunks(layout: IndexLayout, numbers: Columns) -> Columns:
    """Return the scaled coordinates, (n, rank), of the chunks with these numbers, (n,)."""
    slots(layout)
    scaled = np.empty((len(numbers), layout.rank), np.uint64)
    rest = numbers
    for dim in reversed(_order(layout)):
        count = layout.counts[dim]
        if count is None:
            scaled[:, dim] = rest
        else:
            rest, scaled[:, dim] = np.divmod(rest, np.uint64(max(count, 1)))
    return scaled


def _order(layout: IndexLayout) -> list[int]:
    """Return the dimensions from the slowest to the fastest."""
    return sorted(range(layout.rank), key=lambda dim: layout.counts[dim] is not None)


def sort_rows(scaled: Columns) -> NDArray[np.intp]:
    """Return the order that makes scaled coordinates ascend, slowest dimension first."""
    return np.lexsort(scaled.T[::-1])


def is_ascending(scaled: Columns) -> bool:
    """Say whether each chunk comes after the one before it, slowest dimension first."""
    later, decided = np.zeros(max(len(scaled) - 1, 0), bool), np.zeros(max(len(scaled) - 1, 0), bool)
    for before, after in zip(scaled[:-1].T, scaled[1:].T, strict=True):
        later |= ~decided & (after > before)
        decided |= after != before
    return bool(later.all())
