"""The elements of a sparse chunk as columns of coordinates, for readers that assemble many chunks.

A `SparseChunk` has row-major offsets. Converting the stored coordinates to offsets and back would take a third of the
decoding time of chunks with 32,000 points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hsparse.format.buffer import Buffer
from hsparse.format.filters.definition import Filter
from hsparse.format.kinds.sparse import check_defined, unseal_sparse
from hsparse.format.selections import orthogonal as ax
from hsparse.format.selections.encoded_selection import decode_columns
from hsparse.format.selections.extent import expand, strides
from hsparse.format.selections.orthogonal import Axis, Orthogonal, StridedSpan
from hsparse.format.selections.points import Selection
from hsparse.format.structured.container import decoding

Column: TypeAlias = NDArray[Any]
SEARCH_COST = 16
"""The approximate number of coordinates that are tested one by one in the time of one binary search."""


@dataclass(frozen=True, slots=True, eq=False)
class ChunkColumns:
    """The defined elements of a chunk of dimensions `dims`, in row-major order, without duplicates.

    `columns` has the unsigned coordinates in the chunk, (n,), for each dimension, in the width in which they are
    stored. `values` are (n,) and may be a view of the chunk's object.
    """

    dims: tuple[int, ...]
    columns: tuple[Column, ...]
    values: Column

    def __len__(self) -> int:
        return len(self.values)

    def view(self, dtype: np.dtype[Any]) -> ChunkColumns:
        """Return the elements with their values viewed as another dtype of the same size."""
        return ChunkColumns(self.dims, self.columns, self.values.view(dtype))

    def select(self, selection: Selection) -> ChunkColumns:
        """Return the elements inside a selection, which is in the chunk's own coordinates."""
        if isinstance(selection, Orthogonal):
            places = self._in_product(selection)
        else:
            places = np.flatnonzero(selection.contains(self._offsets()))
        if (places.stop - places.start if isinstance(places, slice) else len(places)) == len(self):
            return self
        return ChunkColumns(self.dims, tuple(column[places] for column in self.columns), self.values[places])

    def _in_product(self, selection: Orthogonal) -> slice | NDArray[np.intp]:
        """Return a numpy index of the elements inside an orthogonal selection; the first column must ascend."""
        places: slice | NDArray[np.intp] = slice(0, len(self))
        for dim, axis in enumerate(selection.axes):
            if ax.is_whole(axis, self.dims[dim]):
                continue
            column = self._column(dim)
            if not dim:
                places = _in_ascending(axis, column)
                continue
            found = np.flatnonzero(ax.contains(axis, column[places]))
            places = found + places.start if isinstance(places, slice) else places[found]
        return places

    def _column(self, dim: int) -> Column:
        """Return the coordinates along dimension `dim`, as uint64 if their dtype cannot hold its length."""
        column = self.columns[dim]
        return column.astype(np.uint64) if self.dims[dim] > np.iinfo(column.dtype).max else column

    def _offsets(self) -> NDArray[np.uint32]:
        """Return the elements' row-major offsets in the chunk, (n,)."""
        offsets = np.zeros(len(self), np.uint32)
        for column, stride in zip(self.columns, strides(self.dims), strict=True):
            offsets += column.astype(np.uint32) * np.uint32(stride)
        return offsets


def read_columns(
    data: Buffer, dims: tuple[int, ...], dtype: np.dtype[Any], pipelines: Sequence[tuple[Filter, ...]]
) -> ChunkColumns:
    """Decode the object of a sparse chunk to columns; raise the same errors as `decode_sparse`."""
    selection, numbers, footer = unseal_sparse(data, dims, dtype, pipelines)
    count = len(numbers) // dtype.itemsize
    with decoding(0):
        columns, order = decode_columns(selection, dims, count)
    values: Column = np.ndarray((count,), dtype, numbers)
    values = values if order is None else values[order]
    check_defined(len(values), footer)
    return ChunkColumns(dims, columns, values)


def _in_ascending(axis: Axis, column: Column) -> slice | NDArray[np.intp]:
    """Return a numpy index of those coordinates in an ascending `column` that are indices of `axis`."""
    bounds = ax.bounds(axis)
    if bounds is None:
        return slice(0, 0)
    if isinstance(axis, StridedSpan) and axis.contiguous:
        low, high = np.array((bounds[0], bounds[1] - 1), column.dtype)
        return slice(int(np.searchsorted(column, low)), int(np.searchsorted(column, high, "right")))
    wanted = ax.indices(axis)
    if not (wanted[1:] > wanted[:-1]).all():
        wanted = np.unique(wanted)
    ends = np.flatnonzero(np.diff(wanted) != 1)  # the ends of runs of adjacent indices
    if 2 * len(ends) * SEARCH_COST > len(column):
        return np.flatnonzero(ax.contains(axis, column))
    firsts = wanted[np.append(0, ends + 1)].astype(column.dtype)
    lasts = wanted[np.append(ends, len(wanted) - 1)].astype(column.dtype)
    starts, stops = np.searchsorted(column, firsts), np.searchsorted(column, lasts, "right")
    return expand(starts.astype(np.uint64), stops.astype(np.uint64)).astype(np.intp)
