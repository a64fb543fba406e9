"""The plan of a chunk index: the places of chunks give its size, their addresses its bytes."""

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
"""The longest index that is encoded in one piece."""
MAX_PLANNED = 2**40
"""The longest index that is planned: its bitmaps and addresses alone have some 100 MB."""


def check_planned(size: int) -> int:
    """Return the size of an index in bytes; `TooLarge` beyond the limit of a plan."""
    if size > MAX_PLANNED:
        raise TooLarge(
            f"The chunk index would have {size} bytes, for as many chunks as the dataset could have: choose larger "
            "chunks or smaller maximum dimensions."
        )
    return size


@dataclass(frozen=True, slots=True, eq=False)
class IndexPlan(ABC):
    """An index of `size` bytes for chunks at known scaled coordinates; `order` is the one it stores them in."""

    layout: IndexLayout
    order: NDArray[np.intp]
    size: int

    @abstractmethod
    def pieces(self, address: int, records: ChunkRecords) -> Iterator[tuple[int, Buffer]]:
        """Yield the parts of the index at `address`: their offset in it, ascending, and their bytes.

        `records` are of the chunks that were planned, in the order they were given in. Between parts is space
        that is not in use, which HDF5 allocates with the parts.
        """

    def encode(self, address: int, records: ChunkRecords) -> bytes:
        """Return the bytes of the index at `address`: `pieces`, with zeros between them.

        `TooLarge` beyond 1 GiB, which a few chunks reach that lie far apart in a large array.
        """
        if self.size > MAX_BYTES:
            raise TooLarge(f"The chunk index has {self.size} bytes; {MAX_BYTES} are made in one piece.")
        image = bytearray(self.size)
        for offset, piece in self.pieces(address, records):
            image[offset : offset + len(piece)] = piece
        return bytes(image)
