"""The chunks of a dataset in a planned file: their coordinates, form and offsets.

Elements of hsparse, converted to elements of a planned file.

The inverse of `hsparse.hdf5.format.parse.parsed_elements`: gaps are filled with zeros, variable-length parts go to a
global heap, and references become addresses.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import Unsupported
from hsparse.format.buffer import byte_view
from hsparse.format.chunk_map import UNFILTERED, ChunkRows, digests
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.dataspace_message import NEWEST_REVISION, FormatRevision
from hsparse.format.selections.selection_encoding import encode_blocks, encode_points, encode_simple
from hsparse.format.selections.serialized_selection import ALL
from hsparse.hdf5.format.chunk_indexes.chunk_records import sort_rows
from hsparse.hdf5.format.file_fields import Addressed, Key, address_to
from hsparse.hdf5.format.messages.file_type import (
    OBJECT_REFERENCE,
    FileType,
    dims_of_array,
    has_addresses,
    is_written_as_stored,
)
from hsparse.hdf5.format.plan.file_plan import ALIGNMENT
from hsparse.hdf5.format.plan.planned_structures import GlobalHeapPlan
from hsparse.model.file_backed import BackingFile
from hsparse.model.json_values import Values
from hsparse.model.link import region_json
from hsparse.model.vlen_array import VlenArray

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
class ShiftedParts:
    """Of which stored chunks those of a file are put together, see `hsparse.hdf5.format.plan.shifted_chunks`.

    `rows: (n, k)` are rows of `source`, -1 for none: those that are at `steps: (k, rank)` from each chunk of the file,
    which begins at `first` in the stored one of its own coordinates.
    """

    source: PlannedChunks
    first: tuple[int, ...]
    steps: NDArray[np.int64]
    rows: NDArray[np.intp]

    def take(self, places: NDArray[np.intp] | NDArray[np.bool_]) -> ShiftedParts:
        """Return the parts of some chunks of the file, numbers or booleans."""
        return replace(self, rows=self.rows[places])


@dataclass(frozen=True, slots=True, eq=False)
class PlannedChunks:
    """Stored chunks in row-major order of `scaled: (n, rank) uint64`.

    `digest: (n,) uint64` is of each object's etag (`hsparse.format.chunk_map`), `size: (n,) uint64` the bytes that the
    chunk takes in the file, with what only it refers to. `sections: (n, k, 3)` and `defined: (n,)` are as in
    `ChunkRows`. `stored: (n,) bool` is False for chunks without an object: they have the fill value. `foreign` says
    that chunks are compressed as HSDS does it (`hsparse.format.filters.filters_json`), which no file can have.

    `backing` has the places of a file-backed dataset's pieces in another file; their digests are 0. `packed: (n, 2)
    uint64` are the sizes of a sparse chunk's elements and of its booleans, if they are deflated in the file. `shifted`
    says of which stored chunks these are put together, whose digests are then mixed.
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
        if self.shifted is not None:
            columns += [self.shifted.rows, self.shifted.source.scaled]
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
            None if self.shifted is None else self.shifted.take(places),
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
        """Return the chunks that have bytes from `start` to before `stop`, offsets in the piece."""
        if start >= stop:
            return range(0)
        first = int(np.searchsorted(self.starts, np.uint64(start), "right")) - 1
        last = int(np.searchsorted(self.starts, np.uint64(stop), "left"))
        return range(first, min(last, len(self.chunks)))


KeyOf: TypeAlias = Callable[[str], Key | None]
"""Returns the planned object that a reference (`datasets/d-...`) leads to, None where it leads nowhere."""
REFERENCE_SIZE = 48
"""Bytes of an object reference in hsparse."""
LENGTH_PREFIX = 4


def plan_elements(datatype: FileType, values: Values, heap: GlobalHeapPlan, key_of: KeyOf) -> Addressed:
    """Return the elements' bytes in a file, of `values` of the type `datatype.item`.

    Raises `Unsupported` for types that hsparse does not have, and for region references that cannot be written.
    """
    data = values.heap.data if isinstance(values, VlenArray) else byte_view(values)
    if is_written_as_stored(datatype):
        return Addressed(bytes(data))
    if not has_addresses(datatype):
        rows = np.frombuffer(data, np.uint8).reshape(-1, _stored_size(datatype))
        return Addressed(_file_rows(datatype, rows).tobytes())
    count = values.size if isinstance(values, VlenArray) else len(data) // _stored_size(datatype)
    writing = _Writing(heap, key_of, data)
    result = bytearray(count * datatype.size)
    for number in range(count):
        writing.put(datatype, result, number * datatype.size)
    return Addressed(bytes(result), tuple(writing.places))


@dataclass(slots=True)
class _Writing:
    """Elements read from `data` at `at`; `places` are those of addresses in the written bytes.

    `known` caches `is_written_as_stored` by the identity of types, since it is called for each part of each element.
    """

    heap: GlobalHeapPlan
    key_of: KeyOf
    data: memoryview
    at: int = 0
    places: list[tuple[int, Key]] = field(default_factory=list)
    known: dict[int, bool] = field(default_factory=dict)

    def is_written_as_stored(self, datatype: FileType) -> bool:
        found = self.known.get(id(datatype))
        if found is None:
            found = self.known[id(datatype)] = is_written_as_stored(datatype)
        return found

    def put(self, datatype: FileType, out: bytearray, place: int) -> None:
        """Write the next part at `place` of `out`."""
        item = datatype.item
        kind = item["class"]
        if self.is_written_as_stored(datatype):
            out[place : place + datatype.size] = self.take(datatype.size)
        elif kind == "H5T_STRING" and item["length"] != "H5T_VARIABLE":
            rows = np.frombuffer(self.take(datatype.size), np.uint8).reshape(1, -1)
            out[place : place + datatype.size] = _file_rows(datatype, rows).tobytes()
        elif kind == "H5T_COMPOUND":
            for part, offset in zip(datatype.parts, datatype.offsets, strict=True):
                self.put(part, out, place + offset)
        elif kind == "H5T_ARRAY":
            (base,) = datatype.parts
            for number in range(prod(dims_of_array(item))):
                self.put(base, out, place + number * base.size)
        elif kind == "H5T_REFERENCE" and item["base"] == OBJECT_REFERENCE:
            name = bytes(self.take(REFERENCE_SIZE)).rstrip(b"\0").decode()
            key = self.key_of(name) if name else None
            self.places += [] if key is None else [(place, key)]
        else:
            self.put_run(datatype, out, place)

    def put_run(self, datatype: FileType, out: bytearray, place: int) -> None:
        """Write the place of a sequence, text or region reference, and its payload to the heap."""
        run = self.take(int.from_bytes(self.take(LENGTH_PREFIX), "little"))
        if datatype.item["class"] == "H5T_REFERENCE":
            found = self.region(bytes(run))
        elif not datatype.parts:
            found = Addressed(bytes(run))
        else:
            found = self.sequence(datatype.parts[0], run)
        if not found.data and (datatype.parts or datatype.item["class"] == "H5T_REFERENCE"):
            return  # empty text has an object, too: without one it would be NULL
        if datatype.item["class"] != "H5T_REFERENCE":
            size = datatype.parts[0].size if datatype.parts else 1
            struct.pack_into("<I", out, place, len(found.data) // size)
            place += LENGTH_PREFIX
        key, number = self.heap.add(found)
        self.places.append((place, key))
        struct.pack_into("<I", out, place + 8, number)

    def sequence(self, base: FileType, run: memoryview) -> Addressed:
        if self.is_written_as_stored(base):
            return Addressed(bytes(run))
        inner = _Writing(self.heap, self.key_of, run, known=self.known)
        out = bytearray()
        while inner.at < len(run):
            out += bytes(base.size)
            inner.put(base, out, len(out) - base.size)
        return Addressed(bytes(out), tuple(inner.places))

    def region(self, data: bytes) -> Addressed:
        """Return the payload of a region reference: the dataset's address, and the selection."""
        try:
            value = region_json(data)
            key = None if value is None else self.key_of(f"datasets/d-{value['id']}")
            return Addressed(b"") if key is None else Addressed.join((address_to(key), _selection(value)))
        except ValueError as error:
            raise Unsupported(f"A region reference cannot be written: {error}.") from error

    def take(self, size: int) -> memoryview:
        self.at += size
        return self.data[self.at - size : self.at]


def _file_rows(datatype: FileType, rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return elements without addresses, (n, bytes), with the gaps and the padding of a file."""
    item = datatype.item
    if is_written_as_stored(datatype):
        return rows
    if item["class"] == "H5T_ARRAY":
        (base,) = datatype.parts
        flat = rows.reshape(len(rows) * prod(dims_of_array(item)), -1)
        return _file_rows(base, flat).reshape(len(rows), datatype.size)
    if item["class"] == "H5T_STRING":
        is_behind = np.logical_and.accumulate(rows[:, ::-1] == 0, axis=1)[:, ::-1]
        return np.where(is_behind, np.uint8(ord(" ")), rows)
    result, at = np.zeros((len(rows), datatype.size), np.uint8), 0
    for part, offset in zip(datatype.parts, datatype.offsets, strict=True):
        size = _stored_size(part)
        result[:, offset : offset + part.size] = _file_rows(part, rows[:, at : at + size])
        at += size
    return result


def _stored_size(datatype: FileType) -> int:
    """Return the bytes that an element without parts of variable length has in hsparse."""
    item = datatype.item
    if item["class"] == "H5T_COMPOUND":
        return sum(map(_stored_size, datatype.parts))
    if item["class"] == "H5T_ARRAY":
        return prod(dims_of_array(item)) * _stored_size(datatype.parts[0])
    return REFERENCE_SIZE if item["class"] == "H5T_REFERENCE" else datatype.size


def _selection(value: dict[str, Any]) -> Addressed:
    """Return a selection in the encodings that every HDF5 library reads."""
    selection = value.get("selection")
    if not selection:
        return Addressed(encode_simple(ALL))
    numbers = np.array(selection, np.uint64)
    if value.get("select_type") == "H5S_SEL_POINTS":
        return Addressed(encode_points(list(numbers.T), version=1))
    return Addressed(encode_blocks(numbers[:, 0], numbers[:, 1], version=1))
