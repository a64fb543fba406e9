"""Dense chunks of elements of a fixed size: an array, and a bare object of its filtered bytes.

The object is what an HDF5 file holds. It has no place for a filter mask, so every filter counts as mandatory. Where
HDF5 would skip a filter because the data cannot be made smaller (lzf, blosc), the filter's own form for such data is
stored, which HDF5 decodes like any other. `hsparse.format.filters.filters_json` chooses the pipeline, and reads the
objects that HSDS wrote.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest, Unsupported
from hsparse.format.buffer import Buffer, byte_view
from hsparse.format.chunk_map import MASK
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.fields import as_type, packed_type, pick_fields, set_fields
from hsparse.format.filters.definition import Filter
from hsparse.format.filters.filters_json import decode_hsds_frame
from hsparse.format.filters.pipeline import apply_filters, undo_filters
from hsparse.format.kinds.chunk_kind import ChunkChange, DirectWrite, FoundElements, Search
from hsparse.format.plan.chunk_plan import ChunkSelection
from hsparse.format.reductions.partials import REDUCTION_BYTES, Partials, reduce_array
from hsparse.format.reductions.reduction import Codes, Reduction
from hsparse.format.selections.boxes import Boxes
from hsparse.format.selections.extent import ravel
from hsparse.format.selections.orthogonal import Orthogonal
from hsparse.format.selections.points import Selection, coords_at, gather, is_regular, scatter
from hsparse.model.vlen_array import VlenArray

Array = NDArray[Any]
Chunk = TypeVar("Chunk", bound=Array | VlenArray)
COPY_RATIO = 2
"""A view of less than 1/COPY_RATIO of its chunk is copied: it would keep the whole chunk in memory."""


def encode_dense(array: Array, pipeline: tuple[Filter, ...]) -> Buffer:
    """Return the object of a chunk; without filters a view of `array`, which must not change any more.

    `BadRequest` when a filter cannot encode it.
    """
    if array.dtype.hasobject:
        raise Unsupported("Dense chunks of a variable-length datatype are not supported.")
    data, mask = apply_filters(
        tuple(replace(filter, optional=False) for filter in pipeline), byte_view(array)
    )
    assert mask == 0
    return data


def decode_dense(
    data: Buffer, dims: tuple[int, ...], dtype: np.dtype[Any], pipeline: tuple[Filter, ...]
) -> Array:
    """Return a chunk's elements, shape `dims`, read-only where it is a view of `data`.

    `Corrupt` when the object does not decode to exactly that many elements.
    """
    if dtype.hasobject:
        raise Unsupported("Dense chunks of a variable-length datatype are not supported.")
    size = math.prod(dims) * dtype.itemsize
    content = decode_hsds_frame(data, pipeline, size)
    if content is None or len(content) != size:
        content = undo_filters(pipeline, data, 0, size)
    return np.ndarray(dims, dtype, content)


class DenseKind(Generic[Chunk]):
    """What is the same in each `ChunkKind` of dense chunks: `_nbytes` is about the size of one."""

    spec: ChunkSpec
    _nbytes: int

    def defined(self, chunk: Chunk, selection: Selection, places_only: bool, limit: int, alone: bool) -> None:
        raise not_sparse(self.spec)

    def count(self, chunk: Chunk, selection: Selection) -> int:
        raise not_sparse(self.spec)

    def erase(self, selection: Selection) -> ChunkChange[Chunk, None]:
        raise not_sparse(self.spec)

    def nbytes(self, chunk: Chunk) -> int:
        return chunk.nbytes

    def reduce_bound(self, chunk: Chunk, selection: Orthogonal) -> int:
        return selection.size * REDUCTION_BYTES

    def load_bound(self, selection: Selection) -> int:
        return self._nbytes

    def change_bound(self, selection: Selection) -> int:
        return self._nbytes

    def defined_work(self, chunk: Chunk, selection: Selection) -> int:
        return 0  # it is refused


class Dense(DenseKind[Array]):
    """`ChunkKind` of arrays of shape `spec.dims`. Committed arrays are read-only, drafts that a change made are not."""

    chunks_at_once = 32

    def __init__(self, spec: ChunkSpec) -> None:
        self.spec = spec
        self._dtype = spec.dtype
        self._fill = spec.fill_value
        self._fill.flags.writeable = False  # no draft of a chunk without dimensions
        self._nbytes = math.prod(spec.dims) * spec.datatype.guessed_size

    def decode(self, data: Buffer) -> Array:
        array = decode_dense(data, self.spec.dims, self._dtype, self.spec.filters[0])
        array.flags.writeable = False
        return array

    def encode(self, chunk: Array) -> Buffer:
        chunk.flags.writeable = False
        return encode_dense(chunk, self.spec.filters[0])

    def open_direct(
        self, data: bytes, sections: NDArray[np.uint64], scaled: tuple[int, ...], stop: tuple[int, ...]
    ) -> DirectWrite[Array]:
        pipeline, mask = self.spec.filters[0], int(sections[0, MASK])
        given: DirectWrite[Array]
        if mask:
            content = undo_filters(pipeline, data, mask, math.prod(self.spec.dims) * self._dtype.itemsize)
            given = DirectWrite(np.ndarray(self.spec.dims, self._dtype, content), None)
        else:
            given = DirectWrite(decode_dense(data, self.spec.dims, self._dtype, pipeline), data)
        given.chunk.flags.writeable = False  # filters may return what is not: `trim` would not copy it
        if stop != self.spec.dims:
            trimmed, _ = self.trim(scaled, stop)(given.chunk)
            if trimmed is None or trimmed.tobytes() != given.chunk.tobytes():
                raise filled_beyond(stop)
        return given

    def missing(self, scaled: tuple[int, ...]) -> Array | None:
        return self.spec.fill_of(scaled) if self.spec.arange else None

    def read(self, chunk: Array, selection: Selection, fields: tuple[str, ...], limit: int) -> Array:
        if fields:
            return pick_fields(read_array(chunk, selection), fields)
        return read_detached(chunk, selection)

    def find(self, chunk: Array, selection: Selection, search: Search) -> FoundElements:
        return search.among(read_array(chunk, selection))

    def reduce(
        self, chunk: Array, selection: Orthogonal, reduction: Reduction, codes: Codes | None
    ) -> Partials:
        return reduce_array(read_array(chunk, selection), reduction, codes)

    def write(
        self, at: ChunkSelection, values: Any, fields: tuple[str, ...], drop_fill: bool
    ) -> ChunkChange[Array, None]:
        spec, selection = self.spec, at.selection
        values = as_type(values, packed_type(self._dtype, fields))

        def change(array: Array | None) -> tuple[Array, None]:
            in_order = isinstance(selection, Boxes) or selection.is_all
            if at.full and in_order and values.size == selection.size and not fields:
                # A copy, unless the array owns its memory: a view would keep the whole request in memory.
                whole = values.reshape(spec.dims)
                return (whole.copy() if whole.base is not None else np.ascontiguousarray(whole)), None
            changed = _draft(self._or_fill(array, at.scaled), spec.dims)
            given = values.reshape(selection.shape if values.size == selection.size else ())
            if fields:
                merged = read_array(changed, selection).copy()
                set_fields(merged, given, fields)
                given = merged
            scatter(changed, selection, given)
            return changed, None

        return change

    def replaces(self, at: ChunkSelection, values: Any) -> bool:
        return True

    def update(self, at: ChunkSelection, search: Search, value: Array) -> ChunkChange[Array, FoundElements]:
        selection = at.selection

        def change(array: Array | None) -> tuple[Array | None, FoundElements]:
            if array is None and not self.spec.arange and not search.query.takes(self._fill):
                return None, FoundElements.none(self._dtype)
            base = _draft(self._or_fill(None, at.scaled), self.spec.dims) if array is None else array
            values = read_array(base, selection)
            mask = search.query.mask(values)
            found = FoundElements(np.flatnonzero(mask).astype(np.uint32), values[mask])
            if not len(found.positions):
                return array, found
            set_fields(found.values, value, search.fields)
            changed = _draft(base, self.spec.dims)
            offsets = ravel(coords_at(selection, found.positions), selection.extent)
            changed.reshape(-1)[offsets.astype(np.intp)] = found.values
            return changed, found

        return change

    def trim(
        self, scaled: tuple[int, ...], stop: tuple[int, ...], start: tuple[int, ...] = ()
    ) -> ChunkChange[Array, None]:
        def change(array: Array | None) -> tuple[Array | None, None]:
            if array is None:
                return None, None
            fill = self._or_fill(None, scaled)
            changed = _draft(array, array.shape)
            for outside in outside_of(stop, start):
                changed[outside] = fill[outside] if fill.ndim else fill
            return changed, None

        return change

    def answer_bytes(self, values: Any) -> int:
        return int(values.nbytes)

    def decode_bound(self, data: Buffer) -> int:
        return self._nbytes * (2 if self.spec.filters[0] else 1)

    def encode_bound(self, chunk: Array) -> int:
        return self._nbytes * (3 if self.spec.filters[0] else 1)

    def read_work(self, chunk: Array, selection: Selection, fields: tuple[str, ...]) -> int:
        nbytes = selection.size * self._dtype.itemsize
        # A large hyperslab is a view of the chunk; a small one is copied, see `COPY_RATIO`.
        copied = fields or not is_regular(selection) or nbytes * COPY_RATIO < chunk.nbytes
        return nbytes if copied else 0

    def direct_bound(self, sections: NDArray[np.uint64]) -> int:
        return self._nbytes

    def _or_fill(self, array: Array | None, scaled: tuple[int, ...]) -> Array:
        """Return the array or, without one, the values of unwritten elements: of no dimensions, or of the chunk's.

        To be called in a change, which runs in a thread: they may have to be computed.
        """
        if array is not None:
            return array
        return self.spec.fill_of(scaled) if self.spec.arange else self._fill


def read_array(array: Array, selection: Selection) -> Array:
    """Return the selected values of a whole chunk's array in the selection's shape, a view where there is one."""
    return gather(array, selection).reshape(selection.shape)


def read_detached(array: Array, selection: Selection) -> Array:
    """Return what `read_array` does, copied where a view would keep a much larger chunk in memory.

    An answer has the values of many chunks, and is held until the last of them was read.
    """
    found = read_array(array, selection)
    return found.copy() if found.nbytes * COPY_RATIO < array.nbytes else found


def outside_of(stop: tuple[int, ...], start: tuple[int, ...]) -> list[tuple[slice, ...]]:
    """Return the indices of what is at or beyond `stop`, or before `start`, in each dimension of a chunk."""
    cuts = [(dim, slice(first, None)) for dim, first in enumerate(stop)]
    cuts += [(dim, slice(None, first)) for dim, first in enumerate(start)]
    return [(slice(None),) * dim + (cut,) for dim, cut in cuts]


def not_sparse(spec: ChunkSpec) -> BadRequest:
    """Return the error for a sparse operation on a dense chunk."""
    return BadRequest(f"{spec.dataset} is not sparse: all its elements are always defined.")


def filled_beyond(stop: tuple[int, ...]) -> BadRequest:
    """Return the error for a directly written dense chunk that has data outside the extent."""
    return BadRequest(
        f"Elements beyond the extent, which has {list(stop)} of the chunk, must be the fill value: they would "
        "be there when the dataset grows."
    )


def _draft(array: Array, dims: tuple[int, ...]) -> Array:
    """Return an array of `dims` that may be modified: `array` if it is one, or a new one with its values."""
    if array.shape == dims and array.flags.writeable:
        return array  # an earlier change of the group made it, or it was computed
    return np.full(dims, array, array.dtype)
