"""What reads and writes do to a dense chunk of a variable-length type. Its columns are never modified."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import TooLarge
from hsparse.format.selection import Selection
from hsparse.model.chunk_spec import ChunkSpec
from hsparse.model.layout import MAX_CHUNK_BYTES
from hsparse.model.variable_array import VariableArray, take, taken_sizes
from hsparse.model.variable_fields import Fields
from hsparse.wire.message import Part

Change = Callable[[VariableArray | None], tuple[VariableArray, None]]


def read(array: VariableArray, selection: Selection) -> VariableArray:
    """Return the selected elements in the selection's shape."""
    if selection.is_all:
        return array.reshape(selection.shape)
    return take([array], _places(selection).reshape(selection.shape))


def nbytes_of(array: VariableArray, selection: Selection) -> int:
    """Return the bytes that the selected elements have together."""
    if selection.is_all:
        return len(array.heap)
    return int(taken_sizes([array], _places(selection)).sum(dtype=np.int64))


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
