"""What queries find in a chunk's value, and what they change of it. Chunks are never modified in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hsparse.dn import dense_changes, sparse_changes
from hsparse.format.fields import pick_fields, set_fields
from hsparse.format.kinds.sparse_chunk import SparseChunk
from hsparse.format.query import Query
from hsparse.format.selections.extent import ravel
from hsparse.format.selections.selection import Orthogonal, Selection, coords_at
from hsparse.model.chunk_spec import ChunkSpec
from hsparse.wire.chunk_message import FindElements, Found, UpdateElements

Array: TypeAlias = NDArray[Any]
Value: TypeAlias = Array | SparseChunk
Change: TypeAlias = Callable[[Value | None], tuple[Value | None, Found]]


def find(value: Value, selection: Selection, query: Query, fill: Array, message: FindElements) -> Found:
    """Return the selected elements that answer the query, with the fields that the message asks for."""
    positions, rows = _answers(value, selection, query, fill)
    if message.limit:
        positions, rows = positions[: message.limit], rows[: message.limit]
    if message.places_only:
        return Found(positions, rows[:0])
    return Found(positions, pick_fields(rows, message.fields))


def update(message: UpdateElements, selection: Selection, query: Query, fill: Array, value: Array) -> Change:
    """Return the change that sets what the query finds to `value`, and tells it.

    A missing chunk is `fill`, of no dimensions or the chunk's.
    """
    spec = message.spec

    def change(chunk: Value | None) -> tuple[Value | None, Found]:
        if chunk is None and not fill.ndim and not query.takes(fill):
            return None, nothing(fill.dtype)
        base = _empty(spec, fill) if chunk is None else chunk
        positions, rows = _answers(base, selection, query, fill)
        if not len(positions):
            return chunk, Found(positions, rows)
        set_fields(rows, value, message.fields)
        offsets = ravel(coords_at(selection, positions), selection.extent)
        found = Found(positions, rows)
        if isinstance(base, SparseChunk):
            return base.merge(offsets.astype(np.uint32), rows), found
        draft = dense_changes.draft(base, spec.dims, fill)
        draft.reshape(-1)[offsets.astype(np.intp)] = rows
        return draft, found

    return change


def nothing(dtype: np.dtype[Any]) -> Found:
    """Return what is found where nothing is."""
    return Found(np.zeros(0, np.uint32), np.zeros(0, dtype))


def _empty(spec: ChunkSpec, fill: Array) -> Value:
    if spec.sparse:
        return SparseChunk.empty(spec.dims, fill.dtype)
    return dense_changes.draft(None, spec.dims, fill)


def _answers(
    value: Value, selection: Selection, query: Query, fill: Array
) -> tuple[NDArray[np.uint32], Array]:
    """Return the positions of what the query finds, ascending, and the elements, which may be modified."""
    if not isinstance(value, SparseChunk):
        array = dense_changes.read(value, selection)
    elif isinstance(selection, Orthogonal) and not query.takes(fill):
        return _defined_answers(value, selection, query)
    else:
        read = sparse_changes.read(value, selection, fill)
        array = np.broadcast_to(fill, selection.shape) if read is None else read
    mask = query.mask(array)
    return np.flatnonzero(mask).astype(np.uint32), array[mask]


def _defined_answers(
    chunk: SparseChunk, selection: Orthogonal, query: Query
) -> tuple[NDArray[np.uint32], Array]:
    """Look at the defined elements alone: the others are fill value, which does not answer the query."""
    found = sparse_changes.defined(chunk, selection, places_only=False)
    if found is None:
        none = nothing(query.dtype)
        return none.positions, none.values
    mask = query.mask(found.values)
    return selection.order_of(found.offsets[mask]).astype(np.uint32), found.values[mask]
