"""Stored chunks of a dataset as columns, with the fields of `H5D_chunk_info_t` (RFC "Chunk query functionality in
HDF5", 2018) or, for structured chunks, of `H5D_struct_chunk_info_t` (sparse storage API).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class ChunkRows:
    """Stored chunks of one dataset, by column, in any order.

    `scaled: (n, rank) uint64` are scaled coordinates, `size: (n,) uint64` the sizes of the chunks' objects in bytes,
    and `etags` (n) the objects' etags. `sections: (n, k, 3) uint64` has each section's stored and unfiltered size in
    bytes and its filter mask; sections follow each other without gaps from the object's first byte.
    `defined: (n,) uint64` is the number of defined elements. For dense chunks k and `defined` are 0.
    `statistics: (n, columns, 5) uint64` are the words of `hsparse.format.chunk_spec`.
    """

    scaled: NDArray[np.uint64]
    size: NDArray[np.uint64]
    etags: tuple[str, ...]
    sections: NDArray[np.uint64]
    defined: NDArray[np.uint64]
    statistics: NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.scaled)

    @property
    def nbytes(self) -> int:
        """The bytes of memory that the columns take, without the etags."""
        columns = (self.scaled, self.size, self.sections, self.defined, self.statistics)
        return sum(column.nbytes for column in columns)

    @classmethod
    def of(
        cls, scaled: Sequence[Sequence[int]], rank: int, size: Sequence[int], etags: Sequence[str]
    ) -> ChunkRows:
        """Return rows with the columns that a listing of keys gives; `defined` is 0, other columns are empty."""
        count = len(scaled)
        return cls(
            np.array(scaled, np.uint64).reshape(count, rank),
            np.array(size, np.uint64),
            tuple(etags),
            np.zeros((count, 0, 3), np.uint64),
            np.zeros(count, np.uint64),
            np.zeros((count, 0, 5), np.uint64),
        )

    @classmethod
    def joined(cls, pages: Sequence[ChunkRows], rank: int) -> ChunkRows:
        """Return the rows of all `pages`, in order; all pages must have the same number of sections."""
        if not pages:
            return cls.of((), rank, (), ())
        return cls(
            np.concatenate([rows.scaled for rows in pages]),
            np.concatenate([rows.size for rows in pages]),
            tuple(etag for rows in pages for etag in rows.etags),
            np.concatenate([rows.sections for rows in pages]),
            np.concatenate([rows.defined for rows in pages]),
            np.concatenate([rows.statistics for rows in pages]),
        )

    def take(self, places: NDArray[np.intp]) -> ChunkRows:
        """Return the rows at the indices `places: (m,)`, in the order of `places`."""
        return ChunkRows(
            self.scaled[places],
            self.size[places],
            tuple(self.etags[place] for place in places.tolist()),
            self.sections[places],
            self.defined[places],
            self.statistics[places],
        )

    def described(
        self,
        sections: NDArray[np.uint64],
        defined: NDArray[np.uint64],
        statistics: NDArray[np.uint64] | None = None,
    ) -> ChunkRows:
        """Return the rows with the columns of structured chunks replaced by the arguments."""
        words = np.zeros((len(self), 0, 5), np.uint64) if statistics is None else statistics
        return ChunkRows(self.scaled, self.size, self.etags, sections, defined, words)
