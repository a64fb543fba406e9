"""Sparse chunks of variable-length elements: reading and changing their columns.

The columns, and the objects that store them, are defined in `hsparse.format.kinds.vlen_chunk`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from hsparse.errors import TooLarge
from hsparse.format.buffer import Buffer
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.kinds.chunk_kind import (
    ChunkChange,
    DefinedElements,
    DirectWrite,
    check_drop_fill,
    checked_sections,
)
from hsparse.format.kinds.dense_vlen import VlenKind, heap_bytes, picked, taken
from hsparse.format.kinds.sparse import change_bytes, sealed_direct
from hsparse.format.kinds.sparse_kind import SparseKind
from hsparse.format.kinds.vlen_chunk import (
    ENCODED_COPIES,
    SECTIONS_COPIES,
    VLEN_BYTES,
    SparseVlenChunk,
    decode_sparse_vlen,
    encode_sparse_vlen,
    open_sparse_vlen,
)
from hsparse.format.plan.chunk_plan import ChunkSelection
from hsparse.format.reductions.partials import REDUCTION_BYTES, Partials, count_positions
from hsparse.format.reductions.reduction import Codes, Reduction
from hsparse.format.selections.orthogonal import Orthogonal
from hsparse.format.selections.points import Selection, lookup
from hsparse.model.layout import MAX_CHUNK_BYTES, MAX_REFERENCES
from hsparse.model.vlen_array import VlenArray, VlenFields, take_elements


class SparseVlen(VlenKind, SparseKind[SparseVlenChunk]):
    """`ChunkKind` of `SparseVlenChunk`."""

    def __init__(self, spec: ChunkSpec) -> None:
        self.spec = spec
        self._element = spec.datatype.element
        self._fill = spec.vlen_fill
        self._itemsize = spec.dtype.itemsize

    def decode(self, data: Buffer) -> SparseVlenChunk:
        return decode_sparse_vlen(data, self.spec.dims, self._element, self.spec.filters)

    def encode(self, chunk: SparseVlenChunk) -> Buffer:
        return encode_sparse_vlen(chunk, self._element, self.spec.filters)

    def open_direct(
        self, data: bytes, sections: NDArray[np.uint64], scaled: tuple[int, ...], stop: tuple[int, ...]
    ) -> DirectWrite[SparseVlenChunk]:
        spec = self.spec
        chunk = open_sparse_vlen(
            data, checked_sections(data, sections), spec.dims, self._element, spec.filters
        )
        if len(chunk.values.heap) > MAX_CHUNK_BYTES:
            raise TooLarge(
                f"The chunk's elements have {len(chunk.values.heap)} bytes; the limit is {MAX_CHUNK_BYTES}: make the "
                "dataset's chunks smaller."
            )
        return DirectWrite(chunk, sealed_direct(chunk.offsets, chunk.dims, data, sections, stop))

    def read(
        self, chunk: SparseVlenChunk, selection: Selection, fields: tuple[str, ...], limit: int
    ) -> VlenArray | int | None:
        arrays, index = self._selected(chunk, selection)
        if not index.any():
            return None
        found = taken(arrays, index.reshape(selection.shape), limit, fields)
        return picked(found, self._element, fields, limit)

    def defined(
        self, chunk: SparseVlenChunk, selection: Selection, places_only: bool, limit: int, alone: bool
    ) -> DefinedElements | int | None:
        mask = selection.contains(chunk.offsets)
        count = int(np.count_nonzero(mask))
        if not count:
            return None
        if places_only:
            return DefinedElements(chunk.offsets[mask], VlenArray.of([]))
        nbytes = int(chunk.values.sizes[mask].sum(dtype=np.int64)) + chunk.offsets.itemsize * count
        if nbytes > limit and not (alone and count == 1):
            return nbytes
        some = chunk if count == len(mask) else chunk.select(mask)
        return DefinedElements(some.offsets, some.values)

    def reduce(
        self, chunk: SparseVlenChunk, selection: Orthogonal, reduction: Reduction, codes: Codes | None
    ) -> Partials:
        positions = selection.order_of(chunk.offsets[selection.places(chunk.offsets)]).astype(np.uint64)
        return count_positions(positions, selection.shape, reduction, codes)

    def write(
        self, at: ChunkSelection, values: Any, fields: tuple[str, ...], drop_fill: bool
    ) -> ChunkChange[SparseVlenChunk, None]:
        if drop_fill:
            check_drop_fill(fields)
        selection, fill = at.selection, self._fill
        named = VlenFields.named(self._element, fields) if fields else None

        def change(chunk: SparseVlenChunk | None) -> tuple[SparseVlenChunk | None, None]:
            base = SparseVlenChunk.empty(self.spec.dims) if chunk is None else chunk
            offsets, new = selection.offsets().astype(np.uint32), values
            if named is not None:
                new = named.merge(take_elements(*self._selected(base, selection)), values)
            if drop_fill:
                keep = ~_equal(new, fill)
                offsets = offsets[np.broadcast_to(keep, offsets.shape)]
                new = new if new.size == 1 else new.reshape((new.size,))[keep]
            if not len(offsets):
                return chunk, None
            return base.merge(offsets, new, self._element.references), None

        return change

    def replaces(self, at: ChunkSelection, values: Any) -> bool:
        # A write that makes the chunk too large fails, and the old chunk must stay.
        references = at.selection.size * self._element.references
        return heap_bytes(values, at.selection) <= MAX_CHUNK_BYTES and references <= MAX_REFERENCES

    def nbytes(self, chunk: SparseVlenChunk) -> int:
        return chunk.nbytes

    def encode_bound(self, chunk: SparseVlenChunk) -> int:
        return ENCODED_COPIES * chunk.nbytes + len(chunk.offsets) * VLEN_BYTES

    def reduce_bound(self, chunk: SparseVlenChunk, selection: Orthogonal) -> int:
        return len(chunk.offsets) * REDUCTION_BYTES

    def load_bound(self, selection: Selection) -> int:
        return self.change_bound(selection)

    def change_bound(self, selection: Selection) -> int:
        return change_bytes(selection, self._itemsize)

    def defined_work(self, chunk: SparseVlenChunk, selection: Selection) -> int:
        return chunk.nbytes

    def sections_bound(self, sizes: Sequence[int]) -> int:
        return SECTIONS_COPIES * sum(sizes) + sum(sizes[1:2]) // self._element.file_size * VLEN_BYTES

    def _selected(
        self, chunk: SparseVlenChunk, selection: Selection
    ) -> tuple[list[VlenArray], NDArray[np.intp]]:
        """Return arguments of `take_elements` to read the selection, (n,); the element at index 0 is the fill value."""
        there, found = lookup(selection, chunk.offsets)
        return [self._fill, chunk.values], np.where(there, found + 1, 0)


def _equal(values: VlenArray, one: VlenArray) -> NDArray[np.bool_]:
    """Return a mask, (n,), of the elements with the same bytes as `one`."""
    size = len(one.heap)
    equal: NDArray[np.bool_] = values.sizes == size
    if size:
        windows = sliding_window_view(values.heap, size) if equal.any() else np.empty((0, size), np.uint8)
        equal[equal] = (windows[values.offsets[:-1][equal]] == one.heap).all(axis=1)
    return equal
