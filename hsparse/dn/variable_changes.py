"""What reads and writes do to chunks of a variable-length type. Their columns are never modified."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from hsparse.errors import TooLarge
from hsparse.format.kinds.vlen_chunk import SparseVlenChunk
from hsparse.format.selections.selection import Selection, lookup
from hsparse.model.chunk_spec import ChunkSpec
from hsparse.model.layout import MAX_CHUNK_BYTES, MAX_REFERENCES
from hsparse.model.variable_array import VariableArray, take, taken_sizes
from hsparse.model.variable_fields import Fields
from hsparse.wire.chunk_message import Part, SparseVariableValues

Change = Callable[[VariableArray | None], tuple[VariableArray, None]]
SparseChange = Callable[[SparseVlenChunk | None], tuple[SparseVlenChunk | None, None]]


def read(
    value: VariableArray | SparseVlenChunk, selection: Selection, fill: VariableArray
) -> VariableArray | None:
    """Return the selected elements in the selection's shape, the fill value where undefined; None if all is."""
    if isinstance(value, VariableArray) and selection.is_all:
        return value.reshape(selection.shape)
    parts, index = _selected(value, selection, fill)
    if isinstance(value, SparseVlenChunk) and not index.any():
        return None
    return take(parts, index.reshape(selection.shape))


def nbytes_of(value: VariableArray | SparseVlenChunk, selection: Selection, fill: VariableArray) -> int:
    """Return the bytes that the selected elements have together."""
    if isinstance(value, VariableArray) and selection.is_all:
        return len(value.heap)
    return int(taken_sizes(*_selected(value, selection, fill)).sum(dtype=np.int64))


def _selected(
    value: VariableArray | SparseVlenChunk, selection: Selection, fill: VariableArray
) -> tuple[list[VariableArray], NDArray[np.intp]]:
    """Return what `take` is given to read the selection, flat; 0 stands for the fill value of a sparse chunk."""
    if isinstance(value, VariableArray):
        return [value], _places(selection)
    there, places = lookup(selection, value.offsets)
    return [fill, value.values], np.where(there, places + 1, 0)


def defined(
    chunk: SparseVlenChunk, selection: Selection, limit: int, alone: bool
) -> SparseVariableValues | int | None:
    """Return the defined elements inside the selection, ascending; None where there are none.

    Where they have more than `limit` bytes: how many. With `alone` a single element has no limit.
    """
    mask = selection.contains(chunk.offsets)
    count = int(np.count_nonzero(mask))
    if not count:
        return None
    nbytes = int(chunk.values.sizes[mask].sum(dtype=np.int64)) + chunk.offsets.itemsize * count
    if nbytes > limit and not (alone and count == 1):
        return nbytes
    some = chunk if count == len(mask) else chunk.select(mask)
    return SparseVariableValues(some.offsets, some.values)


def write(
    spec: ChunkSpec, part: Part, values: VariableArray, fill: VariableArray, fields: Fields | None
) -> Change:
    """Return the change that sets the selected elements or, of compounds, some fields: each its own, or all one."""

    def change(array: VariableArray | None) -> tuple[VariableArray, None]:
        old = fill if array is None else array
        index = np.arange(old.size) if array is not None else np.zeros(math.prod(spec.dims), np.intp)
        places = _places(part.selection)
        new = values if fields is None else fields.merge(take([old], index[places]), values)
        index[places] = old.size + (np.arange(new.size) if new.size == len(places) else 0)
        return _checked([old, new], index.reshape(spec.dims)), None

    return change


def define(
    spec: ChunkSpec,
    selection: Selection,
    values: VariableArray,
    fill: VariableArray,
    drop_fill: bool,
    fields: Fields | None,
) -> SparseChange:
    """Return the change that defines the selected elements of a sparse chunk, as `sparse_changes.write` does."""

    def change(chunk: SparseVlenChunk | None) -> tuple[SparseVlenChunk | None, None]:
        base = SparseVlenChunk.empty(spec.dims) if chunk is None else chunk
        offsets, new = selection.offsets().astype(np.uint32), values
        if fields is not None:
            new = fields.merge(take(*_selected(base, selection, fill)), values)
        if drop_fill:
            keep = ~_equal(new, fill)
            offsets = offsets[np.broadcast_to(keep, offsets.shape)]
            new = new if new.size == 1 else new.reshape((new.size,))[keep]
        if not len(offsets):
            return chunk, None
        return base.merge(offsets, new, spec.datatype.element.references), None

    return change


def _equal(values: VariableArray, one: VariableArray) -> NDArray[np.bool_]:
    """Return which elements, (n,), are byte by byte the one."""
    size = len(one.heap)
    equal: NDArray[np.bool_] = values.sizes == size
    if size:
        windows = sliding_window_view(values.heap, size) if equal.any() else np.empty((0, size), np.uint8)
        equal[equal] = (windows[values.offsets[:-1][equal]] == one.heap).all(axis=1)
    return equal


def surely_fits(spec: ChunkSpec, selection: Selection, values: VariableArray) -> bool:
    """Say whether a chunk of these elements alone is not too large, so that writing them raises nothing."""
    nbytes = len(values.heap) if values.size == selection.size else len(values.heap) * selection.size
    references = selection.size * spec.datatype.element.references
    return nbytes <= MAX_CHUNK_BYTES and (not spec.sparse or references <= MAX_REFERENCES)


def trim(
    stop: list[int], fill: VariableArray
) -> Callable[[VariableArray | None], tuple[VariableArray | None, None]]:
    """Return the change that sets what lies at or beyond `stop`, in any dimension, to the fill value."""

    def change(array: VariableArray | None) -> tuple[VariableArray | None, None]:
        if array is None:
            return None, None
        index = np.arange(array.size).reshape(array.shape)
        for dim, first in enumerate(stop):
            index[(slice(None),) * dim + (slice(first, None),)] = array.size
        return _checked([array, fill], index), None

    return change


def _checked(parts: list[VariableArray], index: NDArray[np.intp]) -> VariableArray:
    nbytes = int(taken_sizes(parts, index).sum(dtype=np.int64))
    if nbytes > MAX_CHUNK_BYTES:
        raise TooLarge(
            f"A chunk would have {nbytes} bytes; the limit is {MAX_CHUNK_BYTES}: make the dataset's chunks smaller."
        )
    return take(parts, index)


def _places(selection: Selection) -> NDArray[np.intp]:
    return selection.offsets().astype(np.intp)
