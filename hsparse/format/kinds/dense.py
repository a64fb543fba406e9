"""Dense chunks of fixed-size elements: arrays in memory, and objects that hold only their filtered bytes.

An object has the same bytes as the chunk in an HDF5 file. It cannot store a filter mask, so every filter counts as
mandatory. If data does not compress, HDF5 would skip filters such as lzf and blosc; the object has the filter's own
uncompressed form instead, which HDF5 can decode. `hsparse.format.filters.filters_json` chooses the pipeline, and
decodes objects that HSDS wrote.
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
from hsparse.format.reductions.partials import Partials, reduce_array, reduction_bytes
from hsparse.format.reductions.reduction import Codes, Reduction
from hsparse.format.selections.boxes import Boxes
from hsparse.format.selections.extent import ravel
from hsparse.format.selections.orthogonal import Orthogonal, StridedSpan
from hsparse.format.selections.points import Selection, coords_at, gather, is_regular, scatter
from hsparse.model.vlen_array import VlenArray

Array = NDArray[Any]
Chunk = TypeVar("Chunk", bound=Array | VlenArray)
COPY_RATIO = 2
"""A view of less than 1/COPY_RATIO of its chunk is copied, because it would keep the whole chunk in memory."""


def encode_dense(array: Array, pipeline: tuple[Filter, ...]) -> Buffer:
    """Return the bytes of a chunk's object; without filters a view of `array`, which must not change any more.

    Raises `BadRequest` if a filter cannot encode the chunk.
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
    """Return a chunk's elements in the shape `dims`; the result is read-only if it is a view of `data`.

    Raises `Corrupt` if the object does not decode to exactly these elements.
    """
    if dtype.hasobject:
        raise Unsupported("Dense chunks of a variable-length datatype are not supported.")
    size = math.prod(dims) * dtype.itemsize
    content = decode_hsds_frame(data, pipeline, size)
    if content is None or len(content) != size:
        content = undo_filters(pipeline, data, 0, size)
    return np.ndarray(dims, dtype, content)


class DenseKind(Generic[Chunk]):
    """The common part of every `ChunkKind` of dense chunks; `_nbytes` is the estimated size of a chunk in bytes."""

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
        is_view = all(
            isinstance(axis, StridedSpan) for axis in selection.axes
        )  # index lists copy the elements
        copied = 0 if is_view else selection.size * self.spec.datatype.guessed_size
        return reduction_bytes(selection.size) + copied

    def load_bound(self, selection: Selection) -> int:
        return self._nbytes

    def change_bound(self, selection: Selection) -> int:
        return self._nbytes

    def defined_work(self, chunk: Chunk, selection: Selection) -> int:
        return 0  # `defined` raises


class Dense(DenseKind[Array]):
    """`ChunkKind` of arrays of shape `spec.dims`. Committed arrays are read-only; drafts of changes are writable."""

    chunks_at_once = 32

    def __init__(self, spec: ChunkSpec) -> None:
        self.spec = spec
        self._dtype = spec.dtype
        self._fill = spec.fill_value
        self._fill.flags.writeable = False  # so that `_draft` copies it for a chunk without dimensions
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
        given.chunk.flags.writeable = False  # filters may return writable bytes, which `trim` would change
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
                # Copy the array unless it owns its memory: a view would keep the whole request in memory.
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
        # A large hyperslab is read as a view of the chunk; a small one is copied, see `COPY_RATIO`.
        copied = fields or not is_regular(selection) or nbytes * COPY_RATIO < chunk.nbytes
        return nbytes if copied else 0

    def direct_bound(self, sections: NDArray[np.uint64]) -> int:
        return self._nbytes

    def _or_fill(self, array: Array | None, scaled: tuple[int, ...]) -> Array:
        """Return `array`, or if it is None the values of an unwritten chunk (shape () if all are the fill value).

        Call it only in a change: changes run in a worker thread, and the values of an arange must be computed.
        """
        if array is not None:
            return array
        return self.spec.fill_of(scaled) if self.spec.arange else self._fill


def read_array(array: Array, selection: Selection) -> Array:
    """Return the selected values of a chunk's array in the selection's shape, as a view if numpy can return one."""
    return gather(array, selection).reshape(selection.shape)


def read_detached(array: Array, selection: Selection) -> Array:
    """Return the result of `read_array`, copied if a view would keep a much larger chunk in memory.

    A response has values of many chunks, and stays in memory until the last chunk has been read.
    """
    found = read_array(array, selection)
    return found.copy() if found.nbytes * COPY_RATIO < array.nbytes else found


def outside_of(stop: tuple[int, ...], start: tuple[int, ...]) -> list[tuple[slice, ...]]:
    """Return numpy indices of a chunk's elements that are at or beyond `stop`, or before `start`, in any dimension."""
    cuts = [(dim, slice(first, None)) for dim, first in enumerate(stop)]
    cuts += [(dim, slice(None, first)) for dim, first in enumerate(start)]
    return [(slice(None),) * dim + (cut,) for dim, cut in cuts]


def not_sparse(spec: ChunkSpec) -> BadRequest:
    """Return the error for a sparse operation on a dense chunk."""
    return BadRequest(f"{spec.dataset} is not sparse: all its elements are always defined.")


def filled_beyond(stop: tuple[int, ...]) -> BadRequest:
    """Return the error for a directly written dense chunk that has data outside the extent."""
    return BadRequest(
        f"Elements beyond the extent, which ends at {list(stop)} in the chunk, must be the fill value: they would "
        "appear when the dataset grows."
    )


def _draft(array: Array, dims: tuple[int, ...]) -> Array:
    """Return a writable array of shape `dims`: `array` itself if it is writable, or else a copy."""
    if array.shape == dims and array.flags.writeable:
        return array  # the draft of an earlier change in the group, or a computed array
    return np.full(dims, array, array.dtype)
