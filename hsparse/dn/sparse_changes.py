"""What reads, writes and erasures do to a sparse chunk's columns. Chunks are never modified in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeGuard, TypeVar

import numpy as np
from numpy.typing import NDArray

from hsparse.format.fields import set_fields
from hsparse.format.kinds.sparse_chunk import SparseChunk
from hsparse.format.kinds.vlen_chunk import SparseVlenChunk
from hsparse.format.selections.selection import Boxes, Orthogonal, Selection, Span, lookup
from hsparse.model.chunk_spec import ChunkSpec
from hsparse.wire.chunk_message import SparseValues

Array = NDArray[Any]
Change = Callable[[SparseChunk | None], tuple[SparseChunk | None, None]]
Chunk = TypeVar("Chunk", SparseChunk, SparseVlenChunk)


def read(chunk: SparseChunk, selection: Selection, fill: Array) -> Array | None:
    """Return the selected values in the selection's shape, the fill value where undefined; None if all is."""
    if not len(chunk.offsets):
        return None
    result = np.full(selection.size, fill, fill.dtype)
    if _ascending(selection):
        found = inside(chunk, selection)
        if not len(found.offsets):
            return None
        result[selection.order_of(found.offsets)] = found.values
    else:
        there, places = lookup(selection, chunk.offsets)
        result[there] = chunk.values[places[there]]
    return result.reshape(selection.shape)


def defined(
    chunk: SparseChunk | SparseVlenChunk, selection: Selection, places_only: bool
) -> SparseValues | None:
    """Return the defined elements inside the selection, ascending; None where there are none.

    Of a variable-length type `places_only` must be set.
    """
    if isinstance(chunk, SparseVlenChunk):
        assert places_only
        found = SparseChunk(chunk.dims, chunk.offsets, np.zeros(len(chunk.offsets), "V1"))
    else:
        found = chunk
    found = inside(found, selection)
    if not len(found.offsets):
        return None
    return SparseValues(found.offsets, found.values[:0] if places_only else found.values)


def count(chunk: SparseChunk | SparseVlenChunk, selection: Selection) -> int:
    """Return the number of defined elements inside the selection."""
    return (
        len(chunk.offsets) if selection.is_all else int(np.count_nonzero(selection.contains(chunk.offsets)))
    )


def write(
    spec: ChunkSpec,
    selection: Selection,
    values: Array,
    fill: Array,
    drop_fill: bool,
    fields: tuple[str, ...] = (),
) -> Change:
    """Return the change that defines the selected elements; with `drop_fill` those unlike the fill value.

    With `fields` the values have those alone: the others are as they were, or the fill value's.
    """

    def change(chunk: SparseChunk | None) -> tuple[SparseChunk | None, None]:
        offsets = selection.offsets().astype(np.uint32)
        column = (
            np.broadcast_to(values.reshape(-1), offsets.shape) if values.size == 1 else values.reshape(-1)
        )
        if drop_fill:
            keep = _bits(column) != _bits(fill.reshape(1))
            keep = keep.any(axis=1) if keep.ndim == 2 else keep
            offsets, column = offsets[keep], column[keep]
        if not len(offsets):
            return chunk, None
        base = SparseChunk.empty(spec.dims, fill.dtype) if chunk is None else chunk
        if fields:
            there, places = lookup(selection, base.offsets)
            merged = np.full(len(offsets), fill, fill.dtype)
            merged[there] = base.values[places[there]]
            set_fields(merged, column, fields)
            column = merged
        return base.merge(offsets, column), None

    return change


def erase(selection: Selection) -> Callable[[Chunk | None], tuple[Chunk | None, None]]:
    """Return the change that makes the selected elements undefined."""

    def change(chunk: Chunk | None) -> tuple[Chunk | None, None]:
        if chunk is None:
            return None, None
        gone = selection.contains(chunk.offsets)
        return (chunk.select(~gone) if gone.any() else chunk), None

    return change


def trim(spec: ChunkSpec, stop: list[int]) -> Callable[[Chunk | None], tuple[Chunk | None, None]]:
    """Return the change that makes undefined what lies at or beyond `stop` in any dimension."""
    inside = Orthogonal.box(spec.dims, (0,) * len(spec.dims), tuple(map(min, stop, spec.dims)))

    def change(chunk: Chunk | None) -> tuple[Chunk | None, None]:
        if chunk is None:
            return None, None
        keep = inside.contains(chunk.offsets)
        return (chunk if keep.all() else chunk.select(keep)), None

    return change


def _ascending(selection: Selection) -> TypeGuard[Orthogonal | Boxes]:
    """Whether the selection meets each of its elements once, in row-major order."""
    if isinstance(selection, Orthogonal):
        return all(isinstance(axis, Span) for axis in selection.axes)
    return isinstance(selection, Boxes)


def inside(chunk: Chunk, selection: Selection) -> Chunk:
    """Return the chunk with only its elements inside the selection."""
    return chunk if selection.is_all else chunk.select(selection.contains(chunk.offsets))


def _bits(values: Array) -> Array:
    """Return the bits as integers (n,), or as bytes (n, itemsize): NaN equals itself, -0.0 is not 0.0."""
    contiguous = np.ascontiguousarray(values)
    size = contiguous.dtype.itemsize
    if size in (1, 2, 4, 8):
        return contiguous.view(f"u{size}")
    return contiguous.view(np.uint8).reshape(len(contiguous), size)
