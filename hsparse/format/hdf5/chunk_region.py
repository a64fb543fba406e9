"""The part of a planned file where the chunks of one dataset are, one after the other."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import prod

import numpy as np

from hsparse.format.chunk_rows import UNFILTERED
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.hdf5.addressed import Key
from hsparse.format.hdf5.file_plan import ALIGNMENT
from hsparse.format.hdf5.format_revision import NEWEST, FormatRevision
from hsparse.format.hdf5.planned_chunks import Column, PlannedChunks

CONVERSION = 8
"""Bytes that converting a chunk takes, for each byte of its unfiltered sections: elements are objects meanwhile."""


class ChunkForm(Enum):
    """What a chunk's bytes in the file are."""

    STORED = "stored"
    """Its stored bytes."""
    LINKED = "linked"
    """Bytes of the file that the dataset is linked to."""
    CONVERTED = "converted"
    """Its sections, with elements as files of the revision have them; `chunks.sections` are the file's."""
    MADE = "made"
    """Its elements as a file has them, unfiltered, and the heap collections they refer to."""
    DEFINED = "defined"
    """A boolean an element: is it defined?"""


@dataclass(frozen=True, slots=True, eq=False)
class ChunkRegion:
    """The chunks of a dataset in the file's piece `key`; `starts: (n + 1,) uint64` are offsets in it, in bytes.

    `revision` is that of the file's structured chunks.
    """

    key: Key
    spec: ChunkSpec
    form: ChunkForm
    chunks: PlannedChunks
    starts: Column
    revision: FormatRevision = NEWEST

    @classmethod
    def of(
        cls,
        key: Key,
        spec: ChunkSpec,
        form: ChunkForm,
        chunks: PlannedChunks,
        revision: FormatRevision = NEWEST,
    ) -> ChunkRegion:
        """Lay out chunks, those that are made each at a multiple of 8 bytes, those that are stored end to end.

        So a file that is put together of stored chunks needs nothing between them.
        """
        gap = np.uint64(1 if form is ChunkForm.STORED else ALIGNMENT)
        ends = np.cumsum(chunks.size + -chunks.size % gap, dtype=np.uint64)
        return cls(key, spec, form, chunks, np.concatenate((np.zeros(1, np.uint64), ends)), revision)

    @property
    def size(self) -> int:
        return int(self.starts[-1])

    @property
    def nbytes(self) -> int:
        """The memory that it takes."""
        return self.starts.nbytes + self.chunks.nbytes

    def weights(self, rows: range) -> Column:
        """Return the bytes that making or checking each chunk takes, roughly, but for what is read of it."""
        sizes = self.chunks.size[rows.start : rows.stop]
        if self.form in (ChunkForm.CONVERTED, ChunkForm.DEFINED):
            found = self.chunks.sections[rows.start : rows.stop, :, UNFILTERED].sum(1, dtype=np.uint64)
            found = found * np.uint64(CONVERSION) if self.form is ChunkForm.CONVERTED else found + sizes
        elif self.form is ChunkForm.LINKED and self.spec.filters[0]:
            found = np.full(len(sizes), prod(self.spec.dims) * self.spec.dtype.itemsize, np.uint64)
        else:
            return sizes
        largest: Column = np.maximum(sizes, found)
        return largest

    def rows(self, start: int, stop: int) -> range:
        """Return the chunks that have bytes from `start` to before `stop`, offsets in the piece."""
        if start >= stop:
            return range(0)
        first = int(np.searchsorted(self.starts, np.uint64(start), "right")) - 1
        last = int(np.searchsorted(self.starts, np.uint64(stop), "left"))
        return range(first, min(last, len(self.chunks)))
