"""The plan of a chunk index.

The size of an index depends only on the chunks' coordinates; its bytes also depend on the chunks' addresses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import TooLarge
from hsparse.format.buffer import Buffer
from hsparse.hdf5.format.chunk_indexes.chunk_records import ChunkRecords
from hsparse.hdf5.format.chunk_indexes.index_layout import IndexLayout

MAX_BYTES = 2**30
"""The size in bytes of the largest index that `IndexPlan.encode` returns in one piece."""
MAX_PLANNED = 2**40
"""The size in bytes of the largest index that is planned. Its bitmaps and addresses alone take about 100 MB."""


def check_planned(size: int) -> int:
    """Return `size`, an index's size in bytes; raises `TooLarge` if it exceeds `MAX_PLANNED`."""
    if size > MAX_PLANNED:
        raise TooLarge(
            f"The chunk index would have {size} bytes; the limit is {MAX_PLANNED}: choose larger chunks or smaller "
            "maximum dimensions."
        )
    return size


@dataclass(frozen=True, slots=True, eq=False)
class IndexPlan(ABC):
    """An index of `size` bytes for chunks at known coordinates; `order: (n,)` sorts them into the index's order."""

    layout: IndexLayout
    order: NDArray[np.intp]
    size: int

    @abstractmethod
    def pieces(self, address: int, records: ChunkRecords) -> Iterator[tuple[int, Buffer]]:
        """Yield (offset in the index, bytes) of each part of the index at `address`, by ascending offset.

        `records` are the planned chunks' records, in the order in which their coordinates were given to the plan.
        The space between parts is unused; HDF5 allocates it with the parts.
        """

    def encode(self, address: int, records: ChunkRecords) -> bytes:
        """Return the bytes of the index at `address`: `pieces`, with zeros between them.

        Raises `TooLarge` beyond 1 GiB. A few chunks suffice for this size if they are far apart in a large dataset.
        """
        if self.size > MAX_BYTES:
            raise TooLarge(f"The chunk index has {self.size} bytes; the limit is {MAX_BYTES}.")
        image = bytearray(self.size)
        for offset, piece in self.pieces(address, records):
            image[offset : offset + len(piece)] = piece
        return bytes(image)
