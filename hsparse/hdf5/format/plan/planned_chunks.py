"""The chunks of a dataset in a planned file: coordinates, form and offsets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hsparse.format.chunk_map import UNFILTERED, digests
from hsparse.format.chunk_rows import ChunkRows
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.dataspace_message import NEWEST_REVISION, FormatRevision
from hsparse.hdf5.format.chunk_indexes.chunk_records import sort_rows
from hsparse.hdf5.format.file_fields import Key
from hsparse.hdf5.format.plan.file_plan import ALIGNMENT
from hsparse.model.file_backed import BackingFile

Uint64Column = NDArray[np.uint64]


@dataclass(frozen=True, slots=True, eq=False)
class FileBackedPlaces:
    """The locations of a file-backed dataset's chunks: byte offsets `offset: (n,) uint64` in the backing file `file`.

    `spec` has the chunks' dimensions and filters; `mask: (n,) uint32` are filter masks. `contiguous` is true if the
    chunks are ranges of the contiguous data of one dataset.
    """

    file: BackingFile
    spec: ChunkSpec
    offset: Uint64Column
    mask: NDArray[np.uint32]
    contiguous: bool = False

    def take(self, places: NDArray[np.intp] | NDArray[np.bool_]) -> FileBackedPlaces:
        """Return the locations of the chunks at `places`: an index array or a boolean mask."""
        return replace(self, offset=self.offset[places], mask=self.mask[places])


@dataclass(frozen=True, slots=True, eq=False)
class ShiftedParts:
    """The stored chunks that each chunk of a file overlaps, see `hsparse.hdf5.format.plan.shifted_chunks`.

    A chunk of the file begins at element `first` of the stored chunk with the same scaled coordinates. It overlaps the
    k stored chunks at its coordinates plus each of `steps: (k, rank)`. `rows: (n, k)` are the rows of these stored
    chunks in `source`, -1 for a chunk that is not stored.
    """

    source: PlannedChunks
    first: tuple[int, ...]
    steps: NDArray[np.int64]
    rows: NDArray[np.intp]

    def take(self, places: NDArray[np.intp] | NDArray[np.bool_]) -> ShiftedParts:
        """Return the parts of the chunks at `places`, which is an index array or a boolean mask."""
        return replace(self, rows=self.rows[places])


@dataclass(frozen=True, slots=True, eq=False)
class PlannedChunks:
    """The chunks of a dataset in a file, in row-major order of `scaled: (n, rank) uint64`.

    `digest: (n,) uint64` are digests of the objects' etags (`hsparse.format.chunk_map`). `size: (n,) uint64` are the
    sizes of chunks in the file, in bytes, including their own heap collections. `sections: (n, k, 3)` and `defined:
    (n,)` are as in `ChunkRows`. `stored: (n,) bool` is False for unwritten chunks, which have the fill value. `foreign`
    is true if HSDS compressed the chunks in a form that files cannot have (`hsparse.format.filters.filters_json`).

    `backing` has the locations of a file-backed dataset's chunks; their digests are 0. If the file has deflated chunks,
    `packed: (n, 2) uint64` are the sizes of each sparse chunk's deflated elements and deflated booleans. `shifted` has
    the stored chunks that each chunk overlaps; `digest` then combines their digests.
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
    shifted: ShiftedParts | None = None

    @classmethod
    def file_backed(cls, places: FileBackedPlaces, scaled: Uint64Column, size: Uint64Column) -> PlannedChunks:
        """Return the chunks of a file-backed dataset, in row-major order of `scaled`; `size: (n,)` is in bytes."""
        none = np.zeros(len(size), np.uint64)
        there = np.ones(len(size), np.bool_)
        return cls(scaled, none, size, np.zeros((len(size), 0, 3), np.uint64), none, there, backing=places)

    @classmethod
    def of(cls, parts: Sequence[ChunkRows], rank: int) -> PlannedChunks:
        """Return the chunks of all `parts`, sorted by scaled coordinates, with their stored sizes."""
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
        """The memory that these arrays take, in bytes."""
        columns = [self.scaled, self.digest, self.size, self.sections, self.defined, self.stored]
        if self.backing is not None:
            columns += [self.backing.offset, self.backing.mask]
        if self.packed is not None:
            columns.append(self.packed)
        if self.shifted is not None:
            columns += [self.shifted.rows, self.shifted.source.scaled]
        return sum(column.nbytes for column in columns)

    def take(self, places: NDArray[np.intp] | NDArray[np.bool_]) -> PlannedChunks:
        """Return the chunks at `places`: an index array or a boolean mask."""
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
            None if self.shifted is None else self.shifted.take(places),
        )

    def sized(self, size: Uint64Column | int) -> PlannedChunks:
        """Return the chunks with new sizes in bytes: an array (n,), or one size for all chunks."""
        return replace(self, size=np.full(len(self), size, np.uint64) if isinstance(size, int) else size)

    def with_sections(self, sections: NDArray[np.uint64]) -> PlannedChunks:
        """Return the chunks with new sections, `(n, k, 3)`, and with the total sizes of these sections."""
        return replace(self, sections=sections, size=sections[:, :, 0].sum(1, dtype=np.uint64))

    def completed(self, counts: tuple[int, ...], size: int) -> PlannedChunks:
        """Add the missing chunks of a grid of `counts` chunks as unwritten chunks, each of `size` bytes."""
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
"""The bytes of memory per byte of unfiltered sections that transcoding takes: elements become Python objects."""


class ChunkForm(Enum):
    """The form of a chunk's bytes in a file."""

    STORED = "stored"
    """The chunk's stored bytes."""
    FILE_BACKED = "file-backed"
    """The chunk's bytes in the backing file."""
    TRANSCODED_SECTIONS = "transcoded-sections"
    """The chunk's sections, transcoded to the revision of the file; `PlannedChunks.sections` describes the result."""
    TRANSCODED = "transcoded"
    """The chunk's unfiltered elements, converted for the file, and then the heap collections that they refer to."""
    COMPRESSED = "compressed"
    """Filtered entries of a matrix's array."""
    DEFINED = "defined"
    """A boolean for each element of a sparse chunk: true if the element is defined."""
    PACKED = "packed"
    """All elements of a sparse chunk, deflated."""
    PACKED_DEFINED = "packed-defined"
    """The booleans of `DEFINED`, deflated."""


@dataclass(frozen=True, slots=True, eq=False)
class ChunkRegion:
    """The chunks of a dataset in the file's piece `key`; `starts: (n + 1,) uint64` are byte offsets in the piece.

    `revision` is the revision of structured chunks in the file.
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
        """Lay out chunks: `STORED` chunks follow each other without gaps, other chunks begin at multiples of 8 bytes.

        Without gaps, the region can be assembled from stored chunks alone.
        """
        gap = np.uint64(1 if form is ChunkForm.STORED else ALIGNMENT)
        ends = np.cumsum(chunks.size + -chunks.size % gap, dtype=np.uint64)
        return cls(key, spec, form, chunks, np.concatenate((np.zeros(1, np.uint64), ends)), revision)

    @property
    def size(self) -> int:
        return int(self.starts[-1])

    @property
    def nbytes(self) -> int:
        """The memory that these arrays take, in bytes."""
        return self.starts.nbytes + self.chunks.nbytes

    def weights(self, rows: range) -> Uint64Column:
        """Return the approximate bytes of memory for transcoding or checking each chunk, without its stored bytes."""
        sizes = self.chunks.size[rows.start : rows.stop]
        if (shifted := self.chunks.shifted) is not None:
            return sizes * np.uint64(2 + len(shifted.steps))
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
        """Return the chunks that overlap the piece's bytes from `start` to `stop` (exclusive)."""
        if start >= stop:
            return range(0)
        first = int(np.searchsorted(self.starts, np.uint64(start), "right")) - 1
        last = int(np.searchsorted(self.starts, np.uint64(stop), "left"))
        return range(first, min(last, len(self.chunks)))


KeyOf: TypeAlias = Callable[[str], Key | None]
"""Returns the key of the object that a reference (`datasets/d-...`) names, or None if the file lacks the object."""
