"""From the coordinates in a chunk to those in the dataset: narrow columns, written where they stay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hsparse.client.sources.elements import Elements
from hsparse.format.kinds.chunk_columns import ChunkColumns
from hsparse.format.selections.points import Selection

MAX_NARROW = 2**31
"""Extents below it have columns of int32, the type that scipy's sparse arrays take as it is."""


def allocate_elements(count: int, extent: Sequence[int], dtype: np.dtype[Any]) -> Elements:
    """Return room for `count` elements of a dataset."""
    kinds = (np.int32 if length < MAX_NARROW else np.int64 for length in extent)
    return Elements(tuple(np.empty(count, kind) for kind in kinds), np.empty(count, dtype))


def narrow_elements(elements: Elements, extent: Sequence[int]) -> Elements:
    """Return elements with columns of the types that `allocate_elements` has."""
    room = allocate_elements(0, extent, elements.values.dtype)
    pairs = zip(elements.columns, room.columns, strict=True)
    return Elements(tuple(column.astype(kind.dtype) for column, kind in pairs), elements.values)


def cut_elements(elements: Elements, start: int, stop: int) -> Elements:
    """Return a view of some of the elements."""
    return Elements(tuple(column[start:stop] for column in elements.columns), elements.values[start:stop])


def write_elements(chunk: ChunkColumns, origin: Sequence[int], room: Elements) -> None:
    """Write all elements of a chunk, whose first element is at `origin`, into room of just that length."""
    for column, first, target in zip(chunk.columns, origin, room.columns, strict=True):
        target[...] = column
        if first:
            target += target.dtype.type(first)
    room.values[...] = chunk.values.view(room.values.dtype)


def select_elements(
    chunk: ChunkColumns, selection: Selection, origin: Sequence[int], extent: Sequence[int]
) -> Elements:
    """Return the elements of a chunk that a selection of the chunk's own coordinates takes."""
    some = chunk.select(selection)
    room = allocate_elements(len(some), extent, chunk.values.dtype)
    write_elements(some, origin, room)
    return room
