"""Sparse chunks of fixed-size elements: their columns in memory, operations on the columns, and stored objects."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest, Corrupt, Unsupported
from hsparse.format.buffer import Buffer, byte_view
from hsparse.format.byte_planes import BytePlanes
from hsparse.format.chunk_map import sections_of
from hsparse.format.chunk_spec import ChunkSpec, statistics_bytes
from hsparse.format.fields import packed_type, pick_fields, set_fields
from hsparse.format.filters.definition import Filter
from hsparse.format.kinds.chunk_kind import (
    ChunkChange,
    DefinedElements,
    DirectWrite,
    FoundElements,
    Search,
    check_drop_fill,
    checked_sections,
)
from hsparse.format.kinds.sparse_kind import SparseKind
from hsparse.format.plan.chunk_plan import ChunkSelection
from hsparse.format.reductions.partials import Partials, reduce_positions, reduction_bytes
from hsparse.format.reductions.reduction import Codes, Reduction
from hsparse.format.selections.boxes import Boxes
from hsparse.format.selections.encoded_selection import decode_offsets
from hsparse.format.selections.extent import ravel
from hsparse.format.selections.orthogonal import Orthogonal, StridedSpan
from hsparse.format.selections.points import Selection, coords_at, is_regular, lookup
from hsparse.format.selections.selection_encoding import encode_offsets
from hsparse.format.structured.container import (
    METADATA_FIXED,
    Footer,
    Section,
    StoredChunk,
    build,
    decoding,
    open_chunk,
    open_planes,
    open_section,
    seal,
    unseal,
)

Array = NDArray[Any]
Offsets = NDArray[np.uint32]
ValueColumn = NDArray[Any]

POSITION_BYTES = 24
"""Bytes of memory for a selected element while it is looked up, ordered, and turned into a position."""
RECORD_LIMIT = 16
"""The most bytes per element and dimension in an encoded selection, as in a block with 8-byte coordinates."""
IMAGE_LIMIT = 4096
"""An upper bound on the bytes of an encoded selection without its points or blocks."""


@dataclass(frozen=True, slots=True, eq=False)
class SparseChunk:
    """The defined elements of a chunk of dimensions `dims`; immutable.

    `offsets: (n,) uint32` are row-major offsets in the chunk, strictly ascending. `values: (n,)` have the stored dtype.
    Both arrays are made read-only.
    """

    dims: tuple[int, ...]
    offsets: Offsets
    values: ValueColumn

    def __post_init__(self) -> None:
        self.offsets.flags.writeable = False
        self.values.flags.writeable = False

    @classmethod
    def empty(cls, dims: tuple[int, ...], dtype: np.dtype[Any]) -> SparseChunk:
        """Return a chunk without defined elements."""
        return cls(dims, np.empty(0, np.uint32), np.empty(0, dtype))

    @property
    def nbytes(self) -> int:
        """The bytes of memory that the columns take."""
        return self.offsets.nbytes + self.values.nbytes

    def merge(self, offsets: NDArray[Any], values: ValueColumn) -> SparseChunk:
        """Return the chunk with the elements at `offsets: (m,)`, in any order, set to `values: (m,)`.

        The last value of a repeated offset wins. Raises `BadRequest` if an offset is outside the chunk.
        """
        assert len(offsets) == len(values)
        if not len(offsets):
            return self
        if int(offsets.max()) >= math.prod(self.dims) or int(offsets.min()) < 0:
            raise BadRequest(
                f"The offsets {offsets.min()} to {offsets.max()} must all be inside a chunk of {self.dims}."
            )
        offsets, values = _ascending(offsets, values)
        dtype = self.values.dtype
        if not len(self.offsets):
            return self._with(np.array(offsets), np.array(values, dtype))
        if offsets[0] > self.offsets[-1]:
            return self._with(np.concatenate((self.offsets, offsets)), _join(self.values, values, dtype))
        if offsets[-1] < self.offsets[0]:
            return self._with(np.concatenate((offsets, self.offsets)), _join(values, self.values, dtype))
        return self._interleave(offsets, values)

    def select(self, mask: NDArray[Any]) -> SparseChunk:
        """Return the chunk with only the elements selected by `mask`: a mask (n,) or ascending indices."""
        return self._with(self.offsets[mask], _plain(self.values)[mask].view(self.values.dtype))

    def _interleave(self, offsets: Offsets, values: ValueColumn) -> SparseChunk:
        """Merge ascending columns in linear time: one search, then one pass over each column."""
        place = np.searchsorted(self.offsets, offsets)
        known = self.offsets[np.minimum(place, len(self.offsets) - 1)] == offsets
        old = _plain(self.values)
        new = _plain(np.ascontiguousarray(values, self.values.dtype))
        if known.any():
            old = old.copy()
            old[place[known]] = new[known]
        fresh = ~known
        added = int(np.count_nonzero(fresh))
        if not added:
            return self._with(self.offsets, old.view(self.values.dtype))
        # The place of a fresh element is the number of old and fresh elements with smaller offsets.
        where = place[fresh] + np.arange(added)
        stay = np.ones(len(old) + added, np.bool_)
        stay[where] = False
        all_offsets = np.empty(len(stay), np.uint32)
        all_offsets[stay], all_offsets[where] = self.offsets, offsets[fresh]
        all_values = np.empty((len(stay), *old.shape[1:]), old.dtype)
        all_values[stay], all_values[where] = old, new[fresh]
        return self._with(all_offsets, all_values.view(self.values.dtype))

    def _with(self, offsets: Offsets, values: ValueColumn) -> SparseChunk:
        return SparseChunk(self.dims, offsets, values)


def encode_sparse(
    chunk: SparseChunk,
    pipelines: Sequence[tuple[Filter, ...]],
    max_dims: tuple[int, ...] | None = None,
    columns: Sequence[str] = (),
) -> bytes:
    """Return the object's bytes of a chunk: the filtered selection, the filtered values, and the footer.

    The footer has the statistics of `columns`. The object of a chunk without defined elements is a tombstone, so that
    a conditional put can erase the last element. Raises `BadRequest` if a filter that is not optional fails.
    """
    if chunk.values.dtype.hasobject:
        raise Unsupported("Sparse chunks of a variable-length datatype are not supported.")
    selection = encode_offsets(chunk.offsets, chunk.dims, max_dims)
    stored = build((selection, byte_view(chunk.values)), METADATA_FIXED, pipelines)
    return seal(stored, len(chunk.offsets), statistics_bytes(chunk.values, columns))


def decode_sparse(
    data: Buffer, dims: tuple[int, ...], dtype: np.dtype[Any], pipelines: Sequence[tuple[Filter, ...]]
) -> SparseChunk:
    """Return the chunk in an object's bytes; raise `Corrupt`, naming the section, if any byte is damaged."""
    selection, values, footer = unseal_sparse(data, dims, dtype, pipelines)
    chunk = _decode(selection, values, dims, dtype, data)
    check_defined(len(chunk.offsets), footer)
    return chunk


def unseal_sparse(
    data: Buffer, dims: tuple[int, ...], dtype: np.dtype[Any], pipelines: Sequence[tuple[Filter, ...]]
) -> tuple[BytePlanes | Buffer, Buffer, Footer]:
    """Return the unfiltered selection (possibly still shuffled), the unfiltered values, and the footer of an object.

    Raises `Corrupt` if any byte is damaged.
    """
    if dtype.hasobject:
        raise Unsupported("Sparse chunks of a variable-length datatype are not supported.")
    content, footer = unseal(data)
    check_sizes(footer.sections, dims, dtype.itemsize)
    if len(pipelines) != 2:
        raise Corrupt(f"The chunk has 2 sections; the dataset's chunks need {len(pipelines)}.")
    places, fixed = footer.sections
    selection = open_planes(0, content[: places.size], places, METADATA_FIXED, pipelines[0])
    values = open_section(1, content[fixed.offset :], fixed, METADATA_FIXED, pipelines[1])
    return selection, values, footer


def check_defined(count: int, footer: Footer) -> None:
    """Raise `Corrupt` unless `count` is the number of defined elements in the footer."""
    if count != footer.defined:
        raise Corrupt(f"Section 0 (selection) has {count} elements; the footer has {footer.defined}.")


def open_sparse(
    content: Buffer,
    sections: Sequence[Section],
    dims: tuple[int, ...],
    dtype: np.dtype[Any],
    pipelines: Sequence[tuple[Filter, ...]],
) -> SparseChunk:
    """Return a chunk from the bytes in an HDF5 file, which have no footer; raise `Corrupt` as `decode_sparse`."""
    check_sizes(sections, dims, dtype.itemsize)
    selection, values = open_chunk(content, sections, METADATA_FIXED, pipelines)
    return _decode(selection, values, dims, dtype, content)


def _decode(
    selection: BytePlanes | Buffer,
    values: Buffer,
    dims: tuple[int, ...],
    dtype: np.dtype[Any],
    stored: Buffer,
) -> SparseChunk:
    """Return the chunk in two unfiltered sections, which may be views of the bytes `stored`."""
    count = len(values) // dtype.itemsize
    with decoding(0):
        offsets, order = decode_offsets(selection, dims, count)
    column: ValueColumn = np.ndarray((count,), dtype, values)
    if order is not None:
        column = column[order]
    if np.may_share_memory(column, np.frombuffer(stored, np.uint8)):
        column = column.copy()  # a view would keep the whole object in memory
    return SparseChunk(dims, offsets, column)


def check_sizes(sections: Sequence[Section], dims: tuple[int, ...], itemsize: int) -> None:
    """Raise `Corrupt` if the sections are larger than in any possible chunk of `dims`."""
    if len(sections) != 2:
        raise Corrupt(f"The chunk has {len(sections)} sections; fixed-size sparse data needs 2.")
    selection, values = sections
    count, rest = divmod(values.unfiltered, itemsize)
    if rest or count > math.prod(dims):
        raise Corrupt(
            f"Section 1 (fixed-size values) has {values.unfiltered} bytes, which is no number of {itemsize}-byte"
            f" elements that a chunk of {dims} can have."
        )
    if selection.unfiltered > RECORD_LIMIT * max(len(dims), 1) * count + IMAGE_LIMIT:
        raise Corrupt(f"Section 0 (selection) has {selection.unfiltered} bytes, too many for {count} values.")


def _ascending(offsets: NDArray[Any], values: ValueColumn) -> tuple[Offsets, ValueColumn]:
    """Return the columns sorted by ascending offsets, with only the last element of a repeated offset."""
    narrow = offsets.astype(np.uint32, copy=False)
    if (narrow[1:] > narrow[:-1]).all():
        return narrow, values
    # Sorting combined keys of offset and index is 10 times as fast as a stable argsort.
    keys = narrow.astype(np.uint64) << np.uint64(32) | np.arange(len(narrow), dtype=np.uint64)
    keys.sort()
    narrow = (keys >> np.uint64(32)).astype(np.uint32)
    last = np.append(narrow[1:] != narrow[:-1], True)
    return narrow[last], values[(keys[last] & np.uint64(0xFFFFFFFF)).astype(np.intp)]


def _plain(values: ValueColumn) -> ValueColumn:
    """Return compounds as a view of opaque bytes, because numpy would copy compounds field by field."""
    return values if values.dtype.names is None else values.view(f"V{values.dtype.itemsize}")


def _join(first: ValueColumn, second: ValueColumn, dtype: np.dtype[Any]) -> ValueColumn:
    """Concatenate two columns as `dtype`; numpy's own concatenate would convert to the machine's byte order."""
    result = np.empty((len(first) + len(second), *first.shape[1:]), dtype)
    result[: len(first)] = first
    result[len(first) :] = second
    return result


OFFSETS_BYTES = 24
"""Measured bytes of memory per element's offset while it is computed, merged and encoded."""
DECODED_BYTES = 48
"""Measured bytes of memory per offset while a chunk is decoded, unless all its elements are defined."""
RUN_BYTES = 24
"""Measured bytes of additional memory per run of selected elements; a single element is a run."""


class Sparse(SparseKind[SparseChunk]):
    """`ChunkKind` of `SparseChunk`."""

    chunks_at_once = 32

    def __init__(self, spec: ChunkSpec) -> None:
        self.spec = spec
        self._dtype = spec.dtype
        self._fill = spec.fill_value

    def decode(self, data: Buffer) -> SparseChunk:
        return decode_sparse(data, self.spec.dims, self._dtype, self.spec.filters)

    def encode(self, chunk: SparseChunk) -> Buffer:
        return encode_sparse(chunk, self.spec.filters, columns=self.spec.statistic_columns)

    def open_direct(
        self, data: bytes, sections: NDArray[np.uint64], scaled: tuple[int, ...], stop: tuple[int, ...]
    ) -> DirectWrite[SparseChunk]:
        chunk = open_sparse(
            data, checked_sections(data, sections), self.spec.dims, self._dtype, self.spec.filters
        )
        words = statistics_bytes(chunk.values, self.spec.statistic_columns)
        return DirectWrite(chunk, sealed_direct(chunk.offsets, chunk.dims, data, sections, stop, words))

    def read(
        self, chunk: SparseChunk, selection: Selection, fields: tuple[str, ...], limit: int
    ) -> Array | None:
        values = self._read(chunk, selection)
        return None if values is None else pick_fields(values, fields)

    def defined(
        self, chunk: SparseChunk, selection: Selection, places_only: bool, limit: int, alone: bool
    ) -> DefinedElements | None:
        found = inside(chunk, selection)
        if not len(found.offsets):
            return None
        if places_only:  # an empty view would keep the values in memory
            return DefinedElements(found.offsets, np.empty((0, *found.values.shape[1:]), found.values.dtype))
        return DefinedElements(found.offsets, found.values)

    def find(self, chunk: SparseChunk, selection: Selection, search: Search) -> FoundElements:
        return search.result(*self._answers(chunk, selection, search))

    def reduce(
        self, chunk: SparseChunk, selection: Orthogonal, reduction: Reduction, codes: Codes | None
    ) -> Partials:
        if selection.is_all:
            return reduce_positions(chunk.offsets, chunk.values, chunk.dims, reduction, codes)
        there = selection.places(chunk.offsets)
        positions = selection.order_of(chunk.offsets[there]).astype(np.uint64)
        return reduce_positions(positions, chunk.values[there], selection.shape, reduction, codes)

    def write(
        self, at: ChunkSelection, values: Any, fields: tuple[str, ...], drop_fill: bool
    ) -> ChunkChange[SparseChunk, None]:
        if drop_fill:
            check_drop_fill(fields)
        selection, fill = at.selection, self._fill
        dtype = packed_type(self._dtype, fields) if fields else self._dtype
        given = (values if values.dtype == dtype else values.view(dtype)).reshape(-1)

        def change(chunk: SparseChunk | None) -> tuple[SparseChunk | None, None]:
            offsets, column = selection.offsets().astype(np.uint32), given
            if column.size == 1:
                column = np.broadcast_to(column, offsets.shape)
            if drop_fill:
                keep = _bits(column) != _bits(fill.reshape(1))
                keep = keep.any(axis=1) if keep.ndim == 2 else keep
                offsets, column = offsets[keep], column[keep]
            if not len(offsets):
                return chunk, None
            base = self._empty() if chunk is None else chunk
            if fields:
                there, places = lookup(selection, base.offsets)
                merged = np.full(len(offsets), fill, fill.dtype)
                merged[there] = base.values[places[there]]
                set_fields(merged, column, fields)
                column = merged
            return base.merge(offsets, column), None

        return change

    def replaces(self, at: ChunkSelection, values: Any) -> bool:
        return True

    def update(
        self, at: ChunkSelection, search: Search, value: Array
    ) -> ChunkChange[SparseChunk, FoundElements]:
        selection = at.selection

        def change(chunk: SparseChunk | None) -> tuple[SparseChunk | None, FoundElements]:
            if chunk is None and not search.query.takes(self._fill):
                return None, FoundElements.none(self._dtype)
            base = self._empty() if chunk is None else chunk
            found = FoundElements(*self._answers(base, selection, search))
            if not len(found.positions):
                return chunk, found
            set_fields(found.values, value, search.fields)
            offsets = ravel(coords_at(selection, found.positions), selection.extent)
            return base.merge(offsets.astype(np.uint32), found.values), found

        return change

    def nbytes(self, chunk: SparseChunk) -> int:
        return chunk.nbytes

    def answer_bytes(self, values: Any) -> int:
        return int(values.nbytes)

    def encode_bound(self, chunk: SparseChunk) -> int:
        count = len(chunk.offsets)
        return 3 * chunk.values.nbytes + count * 2 * offset_bytes(count, self.spec.dims)

    def reduce_bound(self, chunk: SparseChunk, selection: Orthogonal) -> int:
        count = len(chunk.offsets)
        copied = 0 if selection.is_all else count * (POSITION_BYTES + self._dtype.itemsize)
        return reduction_bytes(count) + copied

    def load_bound(self, selection: Selection) -> int:
        return 0

    def change_bound(self, selection: Selection) -> int:
        return change_bytes(selection, self._dtype.itemsize)

    def defined_work(self, chunk: SparseChunk, selection: Selection) -> int:
        if selection.is_all:  # the chunk itself is returned
            return 0
        return 1 + len(chunk.offsets) // 4 + chunk.values.nbytes // 64  # few values are copied

    def sections_bound(self, sizes: Sequence[int]) -> int:
        count = sum(sizes[1:]) // self._dtype.itemsize
        return 2 * sum(sizes) + count * offset_bytes(count, self.spec.dims)

    def _empty(self) -> SparseChunk:
        return SparseChunk.empty(self.spec.dims, self._dtype)

    def _read(self, chunk: SparseChunk, selection: Selection) -> Array | None:
        """Return the selected values, with the fill value for undefined elements, or None if all are undefined."""
        if not len(chunk.offsets):
            return None
        result = np.full(selection.size, self._fill, self._dtype)
        if is_regular(selection) or isinstance(selection, Boxes):
            found = inside(chunk, selection)
            if not len(found.offsets):
                return None
            result[selection.order_of(found.offsets)] = found.values
        else:
            there, places = lookup(selection, chunk.offsets)
            result[there] = chunk.values[places[there]]
        return result.reshape(selection.shape)

    def _answers(
        self, chunk: SparseChunk, selection: Selection, search: Search
    ) -> tuple[NDArray[np.uint32], Array]:
        """Return the positions of the elements that match the query, ascending, and a copy of the elements."""
        query = search.query
        if isinstance(selection, Orthogonal) and not query.takes(self._fill):
            # Only defined elements can match, because the fill value does not.
            found = inside(chunk, selection)
            mask = query.mask(found.values)
            return selection.order_of(found.offsets[mask]).astype(np.uint32), found.values[mask]
        read = self._read(chunk, selection)
        values = np.broadcast_to(self._fill, selection.shape) if read is None else read
        mask = query.mask(values)
        return np.flatnonzero(mask).astype(np.uint32), values[mask]


def inside(chunk: SparseChunk, selection: Selection) -> SparseChunk:
    """Return the chunk with only the elements inside the selection."""
    if selection.is_all:
        return chunk
    if not isinstance(selection, Orthogonal):
        return chunk.select(selection.contains(chunk.offsets))
    places = selection.places(chunk.offsets)
    if isinstance(places, slice):  # copied: a view would keep the whole chunk in memory
        return SparseChunk(chunk.dims, chunk.offsets[places].copy(), chunk.values[places].copy())
    return chunk.select(places)


def offset_bytes(count: int, dims: tuple[int, ...]) -> int:
    """Return the estimated bytes of memory per offset for decoding `count` offsets of a chunk of `dims`."""
    return np.dtype(np.uint32).itemsize if count == math.prod(dims) else DECODED_BYTES


def change_bytes(selection: Selection, itemsize: int) -> int:
    """Return the estimated memory to write the selected elements of `itemsize` bytes, without the chunk's memory."""
    runs, last = selection.size, selection.axes[-1] if is_regular(selection) and selection.axes else None
    if isinstance(last, StridedSpan):
        runs //= max(1, last.size if last.contiguous else last.block)
    return selection.size * (itemsize + OFFSETS_BYTES) + runs * RUN_BYTES


def _bits(values: Array) -> Array:
    """Return the values' bits, (n,) integers or (n, itemsize) bytes, in which NaN equals NaN and -0.0 is not 0.0."""
    contiguous = np.ascontiguousarray(values)
    size = contiguous.dtype.itemsize
    if size in (1, 2, 4, 8):
        return contiguous.view(f"u{size}")
    return contiguous.view(np.uint8).reshape(len(contiguous), size)


def sealed_direct(
    offsets: Offsets,
    dims: tuple[int, ...],
    data: bytes,
    table: NDArray[np.uint64],
    stop: tuple[int, ...],
    statistics: bytes = b"",
) -> bytes:
    """Return the object of a directly written chunk; raise `BadRequest` for elements at or beyond `stop`."""
    kept = Orthogonal.box(dims, (0,) * len(dims), stop)
    if not kept.is_all and not kept.contains(offsets).all():
        raise BadRequest(
            f"Section 0 (selection) has elements beyond the extent, which ends at {list(stop)} in the chunk."
        )
    sections, view = sections_of(table), memoryview(data)
    images = tuple(view[section.offset : section.offset + section.size] for section in sections)
    return seal(StoredChunk(images, sections), len(offsets), statistics)
