"""Sparse chunks of elements of a fixed size: reading and changing their columns.

The columns and the object that holds them: `hsparse.format.kinds.sparse_chunk`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from hsparse.format.buffer import Buffer
from hsparse.format.chunk_map import UNFILTERED
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.fields import packed_type, pick_fields, set_fields
from hsparse.format.kinds.chunk_kind import (
    ChunkChange,
    DefinedElements,
    DirectWrite,
    FoundElements,
    Search,
    check_drop_fill,
    checked_sections,
    sealed,
)
from hsparse.format.kinds.sparse_chunk import SparseChunk, decode_sparse, encode_sparse, open_sparse
from hsparse.format.kinds.vlen_chunk import SparseVlenChunk
from hsparse.format.plan.chunk_plan import ChunkSelection
from hsparse.format.reductions.partials import REDUCTION_BYTES, Partials, reduce_positions
from hsparse.format.reductions.reduction import Codes, Reduction
from hsparse.format.selections.boxes import Boxes
from hsparse.format.selections.extent import ravel
from hsparse.format.selections.orthogonal import Orthogonal, Span
from hsparse.format.selections.points import Selection, coords_at, is_regular, lookup
from hsparse.format.structured.container import claimed_sizes

Array = NDArray[Any]
Chunk = TypeVar("Chunk", SparseChunk, SparseVlenChunk)

OFFSETS_BYTES = 24
"""Bytes of an element's offset while it is computed, merged and encoded, by measurement."""
DECODED_BYTES = 48
"""Bytes of an offset while it is decoded, by measurement; of a full chunk they are counted up."""
RUN_BYTES = 24
"""Bytes of a run of elements besides, by measurement: single elements are runs of one."""


class Sparse:
    """`ChunkKind` of `SparseChunk`."""

    chunks_at_once = 32

    def __init__(self, spec: ChunkSpec) -> None:
        self.spec = spec
        self._dtype = spec.dtype
        self._fill = spec.fill_value

    def decode(self, data: Buffer) -> SparseChunk:
        return decode_sparse(data, self.spec.dims, self._dtype, self.spec.filters)

    def encode(self, chunk: SparseChunk) -> Buffer:
        return encode_sparse(chunk, self.spec.filters, statistics=self.spec.statistics)

    def open_direct(
        self, data: bytes, sections: NDArray[np.uint64], scaled: tuple[int, ...], stop: tuple[int, ...]
    ) -> DirectWrite[SparseChunk]:
        chunk = open_sparse(
            data, checked_sections(data, sections), self.spec.dims, self._dtype, self.spec.filters
        )
        return sealed(chunk, data, sections, stop, statistics=self.spec.statistics)

    def missing(self, scaled: tuple[int, ...]) -> None:
        return None

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

    def count(self, chunk: SparseChunk, selection: Selection) -> int:
        return count_defined(chunk.offsets, selection)

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

    def erase(self, selection: Selection) -> ChunkChange[SparseChunk, None]:
        return erase(selection)

    def trim(self, scaled: tuple[int, ...], stop: tuple[int, ...]) -> ChunkChange[SparseChunk, None]:
        return trim(self.spec.dims, stop)

    def nbytes(self, chunk: SparseChunk) -> int:
        return chunk.nbytes

    def answer_bytes(self, values: Any) -> int:
        return int(values.nbytes)

    def decode_bound(self, data: Buffer) -> int:
        return self._sections_bound(claimed_sizes(data))

    def encode_bound(self, chunk: SparseChunk) -> int:
        count = len(chunk.offsets)
        return 3 * chunk.values.nbytes + count * 2 * offset_bytes(count, self.spec.dims)

    def reduce_bound(self, chunk: SparseChunk, selection: Orthogonal) -> int:
        return len(chunk.offsets) * (REDUCTION_BYTES + self._dtype.itemsize)

    def load_bound(self, selection: Selection) -> int:
        return 0

    def change_bound(self, selection: Selection) -> int:
        return change_bytes(selection, self._dtype.itemsize)

    def read_work(self, chunk: SparseChunk, selection: Selection, fields: tuple[str, ...]) -> int:
        return chunk.nbytes + selection.size

    def defined_work(self, chunk: SparseChunk, selection: Selection) -> int:
        return 0 if selection.is_all else chunk.nbytes  # all of it is there already

    def direct_bound(self, sections: NDArray[np.uint64]) -> int:
        return self._sections_bound(sections[:, UNFILTERED].tolist())

    def _sections_bound(self, sizes: Sequence[int]) -> int:
        """Return about how much memory decoding sections of these unfiltered sizes takes, with the chunk."""
        count = sum(sizes[1:]) // self._dtype.itemsize
        return 2 * sum(sizes) + count * offset_bytes(count, self.spec.dims)

    def _empty(self) -> SparseChunk:
        return SparseChunk.empty(self.spec.dims, self._dtype)

    def _read(self, chunk: SparseChunk, selection: Selection) -> Array | None:
        """Return the selected values, the fill value where undefined; None where all are undefined."""
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
        """Return the positions of the elements that answer the query, ascending, and a copy of the elements."""
        query = search.query
        if isinstance(selection, Orthogonal) and not query.takes(self._fill):
            # The defined elements alone: the others are fill value, which does not answer the query.
            found = inside(chunk, selection)
            mask = query.mask(found.values)
            return selection.order_of(found.offsets[mask]).astype(np.uint32), found.values[mask]
        read = self._read(chunk, selection)
        values = np.broadcast_to(self._fill, selection.shape) if read is None else read
        mask = query.mask(values)
        return np.flatnonzero(mask).astype(np.uint32), values[mask]


# --- shared with `sparse_vlen` ----------------------------------------------------------------------


def inside(chunk: Chunk, selection: Selection) -> Chunk:
    """Return the chunk with only its elements inside the selection."""
    return chunk if selection.is_all else chunk.select(selection.contains(chunk.offsets))


def offset_bytes(count: int, dims: tuple[int, ...]) -> int:
    """Return about how many bytes an element's offset takes while so many are decoded, in a chunk of `dims`."""
    return np.dtype(np.uint32).itemsize if count == math.prod(dims) else DECODED_BYTES


def count_defined(offsets: NDArray[np.uint32], selection: Selection) -> int:
    """Return how many of the chunk's offsets are selected."""
    return len(offsets) if selection.is_all else int(np.count_nonzero(selection.contains(offsets)))


def change_bytes(selection: Selection, itemsize: int) -> int:
    """Return about how many bytes writing the selected elements, of `itemsize` bytes each, takes besides the chunk."""
    runs, last = selection.size, selection.axes[-1] if is_regular(selection) and selection.axes else None
    if isinstance(last, Span):
        runs //= max(1, last.size if last.contiguous else last.block)
    return selection.size * (itemsize + OFFSETS_BYTES) + runs * RUN_BYTES


def erase(selection: Selection) -> Callable[[Chunk | None], tuple[Chunk | None, None]]:
    """Return the change that makes the selected elements undefined."""

    def change(chunk: Chunk | None) -> tuple[Chunk | None, None]:
        if chunk is None:
            return None, None
        gone = selection.contains(chunk.offsets)
        return (chunk.select(~gone) if gone.any() else chunk), None

    return change


def trim(dims: tuple[int, ...], stop: tuple[int, ...]) -> Callable[[Chunk | None], tuple[Chunk | None, None]]:
    """Return the change that makes elements at or beyond `stop` in any dimension undefined."""
    kept = Orthogonal.box(dims, (0,) * len(dims), tuple(map(min, stop, dims)))

    def change(chunk: Chunk | None) -> tuple[Chunk | None, None]:
        if chunk is None:
            return None, None
        keep = kept.contains(chunk.offsets)
        return (chunk if keep.all() else chunk.select(keep)), None

    return change


def _bits(values: Array) -> Array:
    """Return the bits as integers (n,), or as bytes (n, itemsize): NaN equals itself, -0.0 is not 0.0."""
    contiguous = np.ascontiguousarray(values)
    size = contiguous.dtype.itemsize
    if size in (1, 2, 4, 8):
        return contiguous.view(f"u{size}")
    return contiguous.view(np.uint8).reshape(len(contiguous), size)
