"""Dense chunks of variable-length elements: reading and changing their columns.

The object of such a chunk is bare as in HSDS (filtered elements in length-prefixed form), or structured if the
dataset's layout is structured. `hsparse.format.kinds.vlen_chunk` defines both forms.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest, TooLarge, Unsupported
from hsparse.format.buffer import Buffer
from hsparse.format.chunk_map import MASK
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.filters.pipeline import undo_filters
from hsparse.format.kinds.chunk_kind import ChunkChange, DirectWrite, FoundElements, Search
from hsparse.format.kinds.dense import DenseKind, filled_beyond, outside_of
from hsparse.format.kinds.vlen_chunk import (
    ENCODED_COPIES,
    SECTIONS_COPIES,
    VLEN_BYTES,
    decode_bare_vlen,
    decode_dense_vlen,
    encode_bare_vlen,
    encode_dense_vlen,
)
from hsparse.format.plan.chunk_plan import ChunkSelection
from hsparse.format.reductions.partials import Partials, count_positions
from hsparse.format.reductions.reduction import Codes, Reduction
from hsparse.format.selections.orthogonal import Orthogonal
from hsparse.format.selections.points import Selection
from hsparse.format.structured.container import claimed_sizes
from hsparse.model.layout import MAX_CHUNK_BYTES
from hsparse.model.vlen_array import VlenArray, VlenFields, split_elements, take_elements, taken_sizes


class VlenKind:
    """The common part of every `ChunkKind` of variable-length elements."""

    chunks_at_once = 8
    """Fewer chunks than for fixed-size elements, because the size of a chunk is unknown until it is loaded."""

    def find(self, chunk: Any, selection: Selection, search: Search) -> FoundElements:
        raise no_vlen_search()

    def update(self, at: ChunkSelection, search: Search, value: Any) -> ChunkChange[Any, FoundElements]:
        raise no_vlen_search()

    def answer_bytes(self, values: Any) -> int:
        return len(values.heap)


class DenseVlen(VlenKind, DenseKind[VlenArray]):
    """`ChunkKind` of `VlenArray` of shape `spec.dims`."""

    def __init__(self, spec: ChunkSpec) -> None:
        self.spec = spec
        self._element = spec.datatype.element
        self._fill = spec.vlen_fill
        self._nbytes = math.prod(spec.dims) * spec.datatype.guessed_size
        self._offsets = math.prod(spec.dims) * VLEN_BYTES

    def decode(self, data: Buffer) -> VlenArray:
        spec = self.spec
        if spec.structured:
            return decode_dense_vlen(data, spec.dims, self._element, spec.filters)
        return decode_bare_vlen(data, spec.dims, self._element, spec.filters[0])

    def encode(self, chunk: VlenArray) -> Buffer:
        if self.spec.structured:
            return encode_dense_vlen(chunk, self._element, self.spec.filters)
        return encode_bare_vlen(chunk, self.spec.filters[0])

    def open_direct(
        self, data: bytes, sections: NDArray[np.uint64], scaled: tuple[int, ...], stop: tuple[int, ...]
    ) -> DirectWrite[VlenArray]:
        if self.spec.structured:
            raise BadRequest(
                f"{self.spec.dataset} has dense structured chunks, which cannot be written directly: write values."
            )
        spec, pipeline, mask = self.spec, self.spec.filters[0], int(sections[0, MASK])
        given: DirectWrite[VlenArray]
        if mask:
            given = DirectWrite(
                split_elements(
                    undo_filters(pipeline, data, mask, None, MAX_CHUNK_BYTES), self._element, spec.dims
                ),
                None,
            )
        else:
            given = DirectWrite(
                decode_bare_vlen(data, spec.dims, self._element, pipeline, MAX_CHUNK_BYTES), data
            )
        if stop != spec.dims:
            trimmed, _ = self.trim(scaled, stop)(given.chunk)
            assert trimmed is not None
            same = np.array_equal(trimmed.offsets, given.chunk.offsets)
            if not (same and np.array_equal(trimmed.heap, given.chunk.heap)):
                raise filled_beyond(stop)
        return given

    def missing(self, scaled: tuple[int, ...]) -> None:
        return None

    def read(
        self, chunk: VlenArray, selection: Selection, fields: tuple[str, ...], limit: int
    ) -> VlenArray | int:
        if selection.is_all:
            found = chunk.reshape(selection.shape) if len(chunk.heap) <= limit or fields else len(chunk.heap)
        else:
            found = taken([chunk], places(selection).reshape(selection.shape), limit, fields)
        return picked(found, self._element, fields, limit)

    def reduce(
        self, chunk: VlenArray, selection: Orthogonal, reduction: Reduction, codes: Codes | None
    ) -> Partials:
        positions = np.arange(selection.size, dtype=np.uint64)
        return count_positions(positions, selection.shape, reduction, codes)

    def write(
        self, at: ChunkSelection, values: Any, fields: tuple[str, ...], drop_fill: bool
    ) -> ChunkChange[VlenArray, None]:
        dims, fill = self.spec.dims, self._fill
        named = VlenFields.named(self._element, fields) if fields else None

        def change(array: VlenArray | None) -> tuple[VlenArray, None]:
            old = fill if array is None else array
            index = np.arange(old.size) if array is not None else np.zeros(math.prod(dims), np.intp)
            where = places(at.selection)
            new = values if named is None else named.merge(take_elements([old], index[where]), values)
            index[where] = old.size + (np.arange(new.size) if new.size == len(where) else 0)
            return _checked([old, new], index.reshape(dims)), None

        return change

    def replaces(self, at: ChunkSelection, values: Any) -> bool:
        # A write that makes the chunk too large fails, and the old chunk must stay.
        return heap_bytes(values, at.selection) <= MAX_CHUNK_BYTES

    def trim(
        self, scaled: tuple[int, ...], stop: tuple[int, ...], start: tuple[int, ...] = ()
    ) -> ChunkChange[VlenArray, None]:
        def change(array: VlenArray | None) -> tuple[VlenArray | None, None]:
            if array is None:
                return None, None
            index = np.arange(array.size).reshape(array.shape)
            for outside in outside_of(stop, start):
                index[outside] = array.size
            return _checked([array, self._fill], index), None

        return change

    def decode_bound(self, data: Buffer) -> int:
        if self.spec.structured:
            return SECTIONS_COPIES * sum(claimed_sizes(data)) + self._offsets
        if not self.spec.filters[0]:
            return len(data) + self._offsets
        return 2 * MAX_CHUNK_BYTES + self._offsets

    def encode_bound(self, chunk: VlenArray) -> int:
        return ENCODED_COPIES * chunk.nbytes + chunk.size * VLEN_BYTES

    def read_work(self, chunk: VlenArray, selection: Selection, fields: tuple[str, ...]) -> int:
        return chunk.nbytes + selection.size

    def direct_bound(self, sections: NDArray[np.uint64]) -> int:
        return 2 * MAX_CHUNK_BYTES  # the decoded bytes, twice while the buffer grows


# --- shared with `sparse_vlen` ---------------------------------------------------------------------


def places(selection: Selection) -> NDArray[np.intp]:
    """Return the row-major offsets of the selected elements, (n,)."""
    return selection.offsets().astype(np.intp)


def taken(
    arrays: list[VlenArray], index: NDArray[np.intp], limit: int, fields: tuple[str, ...]
) -> VlenArray | int:
    """Return the elements at `index` of the concatenated arrays, or their size in bytes if it exceeds `limit`.

    With `fields`, the function `picked` applies the limit instead.
    """
    if not fields:
        nbytes = int(taken_sizes(arrays, index).sum(dtype=np.int64))
        if nbytes > limit:
            return nbytes
    return take_elements(arrays, index)


def picked(found: VlenArray | int, element: Any, fields: tuple[str, ...], limit: int) -> VlenArray | int:
    """Return the elements `found` with only these fields, or their size in bytes if it exceeds `limit`."""
    if isinstance(found, int) or not fields:
        return found
    values = VlenFields.named(element, fields).pick(found)
    return values if len(values.heap) <= limit else len(values.heap)


def heap_bytes(values: VlenArray, selection: Selection) -> int:
    """Return the heap bytes of the selected elements; `values` has one element per selected element, or one for all."""
    return len(values.heap) * (1 if values.size == selection.size else selection.size)


def no_vlen_search() -> Unsupported:
    """Return the error for a query over variable-length elements."""
    return Unsupported("Variable-length elements do not support this operation: read the values.")


def _checked(arrays: list[VlenArray], index: NDArray[np.intp]) -> VlenArray:
    nbytes = int(taken_sizes(arrays, index).sum(dtype=np.int64))
    if nbytes > MAX_CHUNK_BYTES:
        raise TooLarge(
            f"A chunk would have {nbytes} bytes; the limit is {MAX_CHUNK_BYTES}: make the dataset's chunks smaller."
        )
    return take_elements(arrays, index)
