"""Stored chunks by column: the contents of a chunk index of an HDF5 file.

RFC "Chunk query functionality in HDF5" (2018), `H5D_chunk_info_t`; for structured chunks `H5D_struct_chunk_info_t`
of the sparse storage API.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hsparse.format.structured.container import Section

SIZE, UNFILTERED, MASK = range(3)
"""The columns of a section."""


@dataclass(frozen=True, slots=True, eq=False)
class ChunkRows:
    """Some stored chunks of one dataset, in any order.

    `scaled: (n, rank) uint64` are scaled coordinates, `size: (n,) uint64` the bytes of their objects, `etags` (n)
    those objects' etags. `sections: (n, k, 3) uint64` has stored size, unfiltered size (both in bytes) and filter
    mask of each section, `defined: (n,) uint64` the number of defined elements; of dense chunks k is 0, and so is
    `defined`. `statistics: (n, columns, 5)` are words of `hsparse.format.chunk_statistics`. Sections follow each other
    without gaps from the object's first byte.
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
        """The memory of the columns, in bytes, without the etags."""
        columns = (self.scaled, self.size, self.sections, self.defined, self.statistics)
        return sum(column.nbytes for column in columns)

    @classmethod
    def of(
        cls, scaled: Sequence[Sequence[int]], rank: int, size: Sequence[int], etags: Sequence[str]
    ) -> ChunkRows:
        """Return rows with the columns that a listing has; the others are empty."""
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
        """Return all rows of `pages`, in order; all have the same number of sections."""
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
        """Return the rows at `places`, (m,), in that order."""
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
        """Return the rows with the columns of structured chunks."""
        words = np.zeros((len(self), 0, 5), np.uint64) if statistics is None else statistics
        return ChunkRows(self.scaled, self.size, self.etags, sections, defined, words)


def row_names(scaled: NDArray[np.uint64]) -> NDArray[np.bytes_]:
    """Return one name a row of `scaled`, (n, rank) uint64: names sort and compare as coordinates, row-major."""
    rank = max(scaled.shape[1], 1)
    wide = np.zeros((len(scaled), rank), ">u8")
    wide[:, : scaled.shape[1]] = scaled
    return wide.view(f"S{8 * rank}").reshape(len(scaled))


def sections_of(table: NDArray[np.uint64]) -> tuple[Section, ...]:
    """Return the sections of one structured chunk, given its rows of `ChunkRows.sections`, (k, 3)."""
    found, offset = [], 0
    for size, unfiltered, mask in table.tolist():
        found.append(Section(offset, size, unfiltered, mask))
        offset += size
    return tuple(found)
