"""What reads and writes do to a dense chunk's array. Committed arrays are read-only, new ones are not yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.format.fields import set_fields
from hsparse.format.selections.selection import Boxes, Selection, gather, scatter
from hsparse.model.chunk_spec import ChunkSpec
from hsparse.wire.chunk_message import Part

Array = NDArray[Any]
Change = Callable[[Array | None], tuple[Array, None]]


def read(array: Array, selection: Selection) -> Array:
    """Return the selected values in the selection's shape, a view where there is one."""
    return gather(array, selection).reshape(selection.shape)


def write(spec: ChunkSpec, part: Part, values: Array, fill: Array, fields: tuple[str, ...] = ()) -> Change:
    """Return the change that sets the selected elements, or with `fields` those fields of them.

    `fill`, of no dimensions or the chunk's, is elsewhere.
    """
    selection = part.selection

    def change(array: Array | None) -> tuple[Array, None]:
        in_order = isinstance(selection, Boxes) or selection.is_all
        if part.full and in_order and values.size == selection.size and not fields:
            # A copy, unless it is all of its buffer: a view would keep the whole request in memory.
            whole = values.reshape(spec.dims)
            return (whole.copy() if whole.base is not None else np.ascontiguousarray(whole)), None
        changed = draft(array, spec.dims, fill)
        given = values.reshape(selection.shape if values.size == selection.size else ())
        if fields:
            merged = gather(changed, selection).reshape(selection.shape).copy()
            set_fields(merged, given, fields)
            given = merged
        scatter(changed, selection, given)
        return changed, None

    return change


def trim(stop: list[int], fill: Array) -> Callable[[Array | None], tuple[Array | None, None]]:
    """Return the change that sets what lies at or beyond `stop`, in any dimension, to the fill value."""

    def change(array: Array | None) -> tuple[Array | None, None]:
        if array is None:
            return None, None
        changed = draft(array, array.shape, fill)
        for dim, first in enumerate(stop):
            outside = (slice(None),) * dim + (slice(first, None),)
            changed[outside] = fill[outside] if fill.ndim else fill
        return changed, None

    return change


def draft(array: Array | None, dims: tuple[int, ...], fill: Array) -> Array:
    """Return an array that may be modified: the one an earlier change of the group made, or a new one."""
    if array is None:
        return np.full(dims, fill, fill.dtype)
    return array if array.flags.writeable else array.copy()
