"""Convert chunks of a matrix to the compressed rows (CSR) of a selection, without coordinates of all elements.

The module also converts coordinates in a chunk to coordinates in the dataset, as narrow columns written in place.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.client.sources.elements import Elements
from hsparse.client.sparse.compressed_rows import BandPiece, CompressedRows, RowBands
from hsparse.format.kinds.chunk_columns import ChunkColumns
from hsparse.format.plan.chunk_plan import PlannedChunk
from hsparse.format.selections import orthogonal as ax
from hsparse.format.selections.orthogonal import Axis, Orthogonal, StridedSpan
from hsparse.format.selections.points import Selection


class DirectRows:
    """Builds the compressed rows of an orthogonal selection of rank 2 from its planned chunks.

    Coordinates are positions in the selection. `defined` gives the number of elements of each chunk. Each chunk is
    added once, by any thread. A band, the chunks with the same rows, is converted when its last chunk is added.
    """

    def __init__(
        self,
        selection: Orthogonal,
        planned: Sequence[PlannedChunk],
        defined: Sequence[int],
        dtype: np.dtype[Any],
    ) -> None:
        self._lock = threading.Lock()
        self._pieces: list[list[BandPiece | None]] = []
        self._left: list[int] = []
        self._slots: dict[tuple[int, ...], tuple[int, int]] = {}
        rows, most = [], []
        pairs = zip(planned, defined, strict=True)
        for band, (_, some) in enumerate(groupby(pairs, lambda pair: pair[0].scaled[0])):
            members = list(some)
            self._slots |= {one.scaled: (band, number) for number, (one, _) in enumerate(members)}
            self._pieces.append([None] * len(members))
            self._left.append(len(members))
            first = _first(members[0][0], 0)
            rows.append((first, first + members[0][0].selection.shape[0]))
            most.append(sum(count for _, count in members))
        self._bands = RowBands((selection.shape[0], selection.shape[1]), rows, most, dtype)

    def add(self, one: PlannedChunk, chunk: ChunkColumns) -> None:
        """Add the elements of a planned chunk."""
        band, number = self._slots[one.scaled]
        piece = self._piece(one, chunk)
        with self._lock:
            self._pieces[band][number] = piece
            self._left[band] -= 1
            if self._left[band]:
                return
            pieces, self._pieces[band] = self._pieces[band], []
        self._bands.fill(band, [some for some in pieces if some is not None and len(some.values)])

    def result(self) -> CompressedRows:
        """Return the rows, after all chunks were added."""
        return self._bands.result()

    def _piece(self, one: PlannedChunk, chunk: ChunkColumns) -> BandPiece | None:
        """Return the selected elements of a chunk, or None if there are none."""
        assert isinstance(one.selection, Orthogonal)
        some = chunk if one.selection.is_all else chunk.select(one.selection)
        if not len(some):
            return None
        rows, columns = (
            _positions(axis, column) for axis, column in zip(one.selection.axes, some.columns, strict=True)
        )
        return BandPiece(rows, columns, some.values, _first(one, 1))


def _positions(axis: Axis, column: NDArray[Any]) -> NDArray[Any]:
    """Return the positions of selected coordinates of a chunk in an ascending axis of its chunk selection."""
    if isinstance(axis, StridedSpan) and axis.contiguous:
        return column - column.dtype.type(axis.start) if axis.start else column
    return ax.positions(axis, column)


def _first(one: PlannedChunk, dim: int) -> int:
    """Return a chunk's first position in the selection along `dim`; a chunk has a contiguous range of positions."""
    place = one.place[dim]
    return int(place.start or 0) if isinstance(place, slice) else int(place.flat[0])


MAX_NARROW = 2**31
"""Columns of shorter extents are int32, an index type that scipy's sparse arrays take without conversion."""


def allocate_elements(count: int, extent: Sequence[int], dtype: np.dtype[Any]) -> Elements:
    """Return uninitialized arrays for `count` elements of a dataset, with int32 columns for short extents."""
    kinds = (np.int32 if length < MAX_NARROW else np.int64 for length in extent)
    return Elements(tuple(np.empty(count, kind) for kind in kinds), np.empty(count, dtype))


def narrow_elements(elements: Elements, extent: Sequence[int]) -> Elements:
    """Return elements with their columns converted to the types that `allocate_elements` uses."""
    room = allocate_elements(0, extent, elements.values.dtype)
    pairs = zip(elements.columns, room.columns, strict=True)
    return Elements(tuple(column.astype(kind.dtype) for column, kind in pairs), elements.values)


def cut_elements(elements: Elements, start: int, stop: int) -> Elements:
    """Return a view of the elements from `start` to `stop`."""
    return Elements(tuple(column[start:stop] for column in elements.columns), elements.values[start:stop])


def write_elements(chunk: ChunkColumns, origin: Sequence[int], room: Elements) -> None:
    """Write all elements of the chunk at `origin` into `room`, which has exactly their length."""
    for column, first, target in zip(chunk.columns, origin, room.columns, strict=True):
        target[...] = column
        if first:
            target += target.dtype.type(first)
    room.values[...] = chunk.values.view(room.values.dtype)


def select_elements(
    chunk: ChunkColumns, selection: Selection, origin: Sequence[int], extent: Sequence[int]
) -> Elements:
    """Return the elements of the chunk at `origin` that `selection`, in the chunk's own coordinates, takes."""
    some = chunk.select(selection)
    room = allocate_elements(len(some), extent, chunk.values.dtype)
    write_elements(some, origin, room)
    return room
