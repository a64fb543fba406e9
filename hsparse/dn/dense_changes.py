"""What reads and writes do to a dense chunk's array. Committed arrays are read-only, new ones are not yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.format.selection import Boxes, Selection, gather, scatter
from hsparse.model.chunk_spec import ChunkSpec
from hsparse.wire.message import Part

Array = NDArray[Any]
Change = Callable[[Array | None], tuple[Array, None]]


def read(array: Array, selection: Selection) -> Array:
    """Return the selected values in the selection's shape, a view where there is one."""
    return gather(array, selection).reshape(selection.shape)


def write(spec: ChunkSpec, part: Part, values: Array, fill: Array) -> Change:
    """Return the change that sets the selected elements; `fill`, of no dimensions or the chunk's, is elsewhere."""
    selection = part.selection

    def change(array: Array | None) -> tuple[Array, None]:
        in_order = isinstance(selection, Boxes) or selection.is_all
        if part.full and in_order and values.size == selection.size:
            # A copy, unless it is all of its buffer: a view would keep the whole request in memory.
            whole = values.reshape(spec.dims)
            return (whole.copy() if whole.base is not None else np.ascontiguousarray(whole)), None
        draft = _draft(array, spec.dims, fill)
        scatter(draft, selection, values.reshape(selection.shape if values.size == selection.size else ()))
        return draft, None

    return change


def trim(stop: list[int], fill: Array) -> Callable[[Array | None], tuple[Array | None, None]]:
    """Return the change that sets what lies at or beyond `stop`, in any dimension, to the fill value."""

    def change(array: Array | None) -> tuple[Array | None, None]:
        if array is None:
            return None, None
        draft = _draft(array, array.shape, fill)
        for dim, first in enumerate(stop):
            outside = (slice(None),) * dim + (slice(first, None),)
            draft[outside] = fill[outside] if fill.ndim else fill
        return draft, None

    return change


def _draft(array: Array | None, dims: tuple[int, ...], fill: Array) -> Array:
    """Return an array that may be modified: the one an earlier change of the group made, or a new one."""
    if array is None:
        return np.full(dims, fill, fill.dtype)
    return array if array.flags.writeable else array.copy()
