"""The chunks of a dataset in a planned file: their coordinates, form and offsets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.format.chunk_map import UNFILTERED, ChunkRows, digests
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.dataspace_message import NEWEST_REVISION, FormatRevision
from hsparse.format.hdf5.addressed import Key
from hsparse.format.hdf5.chunk_indexes.chunk_records import sort_rows
from hsparse.format.hdf5.plan.file_plan import ALIGNMENT
from hsparse.model.file_backed import BackingFile

Uint64Column = NDArray[np.uint64]


@dataclass(frozen=True, slots=True, eq=False)
class FileBackedPlaces:
    """The places of a file-backed dataset's pieces: `offset: (n,)` in the backing file `file`, in bytes.

    `spec` has the dimensions of the pieces and the filters that they went through, `mask: (n,)` which were skipped.
    `contiguous` says that the pieces are one run of elements, cut anywhere.
    """

    file: BackingFile
    spec: ChunkSpec
    offset: Uint64Column
    mask: NDArray[np.uint32]
    contiguous: bool = False

    def take(self, places: NDArray[np.intp] | NDArray[np.bool_]) -> FileBackedPlaces:
        """Return the places of some pieces, numbers or booleans."""
        return replace(self, offset=self.offset[places], mask=self.mask[places])


@dataclass(frozen=True, slots=True, eq=False)
class PlannedChunks:
    """Stored chunks in row-major order of `scaled: (n, rank) uint64`.

    `digest: (n,) uint64` is of each object's etag (`hsparse.format.chunk_map`), `size: (n,) uint64` the bytes that the
    chunk takes in the file, with what only it refers to. `sections: (n, k, 3)` and `defined: (n,)` are as in
    `ChunkRows`. `stored: (n,) bool` is False for chunks without an object: they have the fill value. `foreign` says
    that chunks are compressed as HSDS does it (`hsparse.format.filters.filters_json`), which no file can have.

    `backing` has the places of a file-backed dataset's pieces in another file; their digests are 0. `packed: (n, 2)
    uint64` are the sizes of a sparse chunk's elements and of its booleans, if they are deflated in the file.
    """

    scaled: Uint64Column
    digest: Uint64Column
    size: Uint64Column
    sections: Uint64Column
    defined: Uint64Column
    stored: NDArray[np.bool_]
    foreign: bool = False
    backing: FileBackedPlaces | None = None
    packed: Uint64Column | None = None

    @classmethod
    def file_backed(cls, places: FileBackedPlaces, scaled: Uint64Column, size: Uint64Column) -> PlannedChunks:
        """Return the pieces of a file-backed dataset, in row-major order of `scaled`, of `size` bytes each."""
        none = np.zeros(len(size), np.uint64)
        there = np.ones(len(size), np.bool_)
        return cls(scaled, none, size, np.zeros((len(size), 0, 3), np.uint64), none, there, backing=places)

    @classmethod
    def of(cls, parts: Sequence[ChunkRows], rank: int) -> PlannedChunks:
        """Return the chunks of all rows, of the sizes that they are stored in."""
        rows = ChunkRows.joined(parts, rank)
        found = cls(
            rows.scaled,
            digests(rows.etags).astype(np.uint64),
            rows.size if not rows.sections.shape[1] else rows.sections[:, :, 0].sum(1, dtype=np.uint64),
            rows.sections,
            rows.defined,
            np.ones(len(rows), np.bool_),
        )
        return found.take(sort_rows(rows.scaled) if rank else np.arange(len(rows)))

    def __len__(self) -> int:
        return len(self.digest)

    @property
    def nbytes(self) -> int:
        """The memory that the columns take."""
        columns = [self.scaled, self.digest, self.size, self.sections, self.defined, self.stored]
        if self.backing is not None:
            columns += [self.backing.offset, self.backing.mask]
        if self.packed is not None:
            columns.append(self.packed)
        return sum(column.nbytes for column in columns)

    def take(self, places: NDArray[np.intp] | NDArray[np.bool_]) -> PlannedChunks:
        """Return the chunks at `places`, numbers or booleans."""
        return PlannedChunks(
            self.scaled[places],
            self.digest[places],
            self.size[places],
            self.sections[places],
            self.defined[places],
            self.stored[places],
            self.foreign,
            None if self.backing is None else self.backing.take(places),
            None if self.packed is None else self.packed[places],
        )

    def sized(self, size: Uint64Column | int) -> PlannedChunks:
        """Return the chunks with other sizes in the file, in bytes: (n,), or one for all."""
        return replace(self, size=np.full(len(self), size, np.uint64) if isinstance(size, int) else size)

    def with_sections(self, sections: NDArray[np.uint64]) -> PlannedChunks:
        """Return the chunks with other sections in the file, `(n, k, 3)`, and the sizes that follow from them."""
        return replace(self, sections=sections, size=sections[:, :, 0].sum(1, dtype=np.uint64))

    def completed(self, counts: tuple[int, ...], size: int) -> PlannedChunks:
        """Return these and all others that a grid of `counts` chunks has, which take `size` bytes each."""
        known = (
            np.ravel_multi_index(tuple(self.scaled.astype(np.int64).T), counts)
            if counts
            else np.arange(len(self))
        )
        numbers = np.setdiff1d(np.arange(prod(counts)), known)
        places = np.unravel_index(numbers, counts) if counts else ()
        scaled = np.array(places, np.uint64).reshape(len(counts), len(numbers)).T
        none = np.zeros(len(numbers), np.uint64)
        order = np.argsort(np.concatenate((np.atleast_1d(known), numbers)), kind="stable")

        def joined(one: NDArray[Any], other: NDArray[Any]) -> NDArray[Any]:
            return np.concatenate((one, other))[order]

        return PlannedChunks(
            joined(self.scaled, scaled),
            joined(self.digest, none),
            joined(self.size, none + np.uint64(size)),
            joined(self.sections, np.zeros((len(numbers), *self.sections.shape[1:]), np.uint64)),
            joined(self.defined, none),
            joined(self.stored, np.zeros(len(numbers), np.bool_)),
            self.foreign,
        )


TRANSCODING_MEMORY = 8
"""Bytes of memory to transcode a byte of unfiltered sections: elements are objects meanwhile."""


class ChunkForm(Enum):
    """The form of a chunk's bytes in a file."""

    STORED = "stored"
    """Its stored bytes."""
    FILE_BACKED = "file-backed"
    """Bytes of the backing file."""
    TRANSCODED_SECTIONS = "transcoded-sections"
    """Its sections transcoded to the revision of the file; `chunks.sections` are the file's."""
    TRANSCODED = "transcoded"
    """Its elements transcoded to those of a file, unfiltered, and the heap collections that they refer to."""
    COMPRESSED = "compressed"
    """Entries of a matrix's array, filtered."""
    DEFINED = "defined"
    """A boolean for each element: whether it is defined."""
    PACKED = "packed"
    """The elements of a sparse chunk, deflated."""
    PACKED_DEFINED = "packed-defined"
    """Its booleans, deflated."""


@dataclass(frozen=True, slots=True, eq=False)
class ChunkRegion:
    """The chunks of a dataset in the file's piece `key`; `starts: (n + 1,) uint64` are offsets in it, in bytes.

    `revision` is that of the file's structured chunks.
    """

    key: Key
    spec: ChunkSpec
    form: ChunkForm
    chunks: PlannedChunks
    starts: Uint64Column
    revision: FormatRevision = NEWEST_REVISION

    @classmethod
    def of(
        cls,
        key: Key,
        spec: ChunkSpec,
        form: ChunkForm,
        chunks: PlannedChunks,
        revision: FormatRevision = NEWEST_REVISION,
    ) -> ChunkRegion:
        """Lay out chunks: stored ones end to end, all others at multiples of 8 bytes.

        So a file that is assembled from stored chunks needs no bytes between them.
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

    def weights(self, rows: range) -> Uint64Column:
        """Return roughly the memory that transcoding or checking each chunk takes, without its stored bytes."""
        sizes = self.chunks.size[rows.start : rows.stop]
        if self.form in (ChunkForm.PACKED, ChunkForm.PACKED_DEFINED):
            found = np.full(len(sizes), 2 * prod(self.spec.dims) * self.spec.dtype.itemsize, np.uint64)
            found += self.chunks.sections[rows.start : rows.stop, :, UNFILTERED].sum(1, dtype=np.uint64)
        elif self.form in (ChunkForm.TRANSCODED_SECTIONS, ChunkForm.DEFINED):
            found = self.chunks.sections[rows.start : rows.stop, :, UNFILTERED].sum(1, dtype=np.uint64)
            found = (
                found * np.uint64(TRANSCODING_MEMORY)
                if self.form is ChunkForm.TRANSCODED_SECTIONS
                else found + sizes
            )
        elif self.form in (ChunkForm.COMPRESSED, ChunkForm.FILE_BACKED) and self.spec.filters[0]:
            found = np.full(len(sizes), prod(self.spec.dims) * self.spec.dtype.itemsize, np.uint64)
        else:
            return sizes
        largest: Uint64Column = np.maximum(sizes, found)
        return largest

    def rows(self, start: int, stop: int) -> range:
        """Return the chunks that have bytes from `start` to before `stop`, offsets in the piece."""
        if start >= stop:
            return range(0)
        first = int(np.searchsorted(self.starts, np.uint64(start), "right")) - 1
        last = int(np.searchsorted(self.starts, np.uint64(stop), "left"))
        return range(first, min(last, len(self.chunks)))
