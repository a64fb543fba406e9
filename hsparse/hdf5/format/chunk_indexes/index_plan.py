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
"""The size in bytes of the largest index that is planned. Such an index has about 100 MB of bitmaps and addresses."""


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
    """The plan of an index of `size` bytes; `order: (n,)` are the rows of its chunks in the order of the index."""

    layout: IndexLayout
    order: NDArray[np.intp]
    size: int

    @abstractmethod
    def pieces(self, address: int, records: ChunkRecords) -> Iterator[tuple[int, Buffer]]:
        """Yield the parts of the index at `address`, each as (offset in the index, bytes), by ascending offset.

        `records` are the planned chunks' records, in the order in which their coordinates were given to the plan.
        The space between the parts belongs to the index but is unused.
        """

    def encode(self, address: int, records: ChunkRecords) -> bytes:
        """Return the bytes of the index at `address`: all `pieces`, with zeros between the pieces.

        Raises `TooLarge` beyond 1 GiB, a size that a few chunks suffice for if they are far apart in a large dataset.
        """
        if self.size > MAX_BYTES:
            raise TooLarge(f"The chunk index has {self.size} bytes; the limit is {MAX_BYTES}.")
        image = bytearray(self.size)
        for offset, piece in self.pieces(address, records):
            image[offset : offset + len(piece)] = piece
        return bytes(image)
