"""The chunk grid of a dataset, which relates elements to chunks, and pages of a selection.

Pages are parts of a selection of bounded size, in its iteration order.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest
from hsparse.format.selections import orthogonal as ax
from hsparse.format.selections.boxes import Boxes
from hsparse.format.selections.extent import check_extent
from hsparse.format.selections.orthogonal import Axis, Orthogonal, StridedSpan
from hsparse.format.selections.points import Points, Selection


@dataclass(frozen=True, slots=True)
class Grid:
    """A grid of chunks of dimensions `chunk` over `extent`, both in elements; edge chunks reach beyond the extent.

    The scaled coordinates of a chunk are the coordinates of its first element divided by `chunk`. The only chunk of a
    scalar is `()`.
    """

    extent: tuple[int, ...]
    chunk: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "extent", check_extent(self.extent))
        object.__setattr__(self, "chunk", check_extent(self.chunk))
        if len(self.chunk) != len(self.extent):
            raise BadRequest(f"A chunk must have {len(self.extent)} dimensions, not {len(self.chunk)}.")
        for dim, length in enumerate(self.chunk):
            if length < 1:
                raise BadRequest(f"Dimension {dim} of the chunk is 0; it must be at least 1.")

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of chunks in each dimension."""
        return tuple(-(-length // step) for length, step in zip(self.extent, self.chunk, strict=True))

    @property
    def size(self) -> int:
        """The number of chunks."""
        return math.prod(self.counts)

    def holds(self, scaled: Sequence[int]) -> bool:
        """Return whether the grid has a chunk at `scaled`: the chunk must intersect the extent."""
        right = len(scaled) == len(self.chunk)
        return right and all(0 <= i < n for i, n in zip(scaled, self.counts, strict=True))

    def origin(self, scaled: Sequence[int]) -> tuple[int, ...]:
        """Return the coordinates of the chunk's first element."""
        return tuple(int(i) * step for i, step in zip(scaled, self.chunk, strict=True))

    def bounds(self, scaled: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return a pair: the start and the (exclusive) stop of the chunk at `scaled`, clipped to the extent."""
        start = self.origin(scaled)
        return start, tuple(map(min, self.extent, map(int.__add__, start, self.chunk)))

    def clipped(self, scaled: Sequence[int]) -> tuple[int, ...]:
        """Return the dimensions of the part of the chunk inside the extent."""
        return tuple(b - a for a, b in zip(*self.bounds(scaled), strict=True))

    def is_edge(self, scaled: Sequence[int]) -> bool:
        """Return whether the chunk reaches beyond the extent."""
        return self.clipped(scaled) != self.chunk

    def scaled(self, coords: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return the scaled coordinates, (n, rank) uint64, of the chunks of elements at `coords: (n, rank) uint64`."""
        result = np.empty_like(coords)
        for dim, length in enumerate(self.chunk):
            result[:, dim] = divide(coords[:, dim], length)
        return result


def divide(column: NDArray[Any], length: int) -> NDArray[Any]:
    """Return `column // length`, computed by a shift if `length` is a power of two."""
    kind = column.dtype.type
    power = length & (length - 1) == 0
    result: NDArray[Any] = column >> kind(length.bit_length() - 1) if power else column // kind(length)
    return result


def pages(selection: Selection, grid: Grid, max_elements: int) -> Iterator[Selection]:
    """Yield pages of at most `max_elements` elements; the pages' concatenated values are the selection's values.

    If possible, a page of an orthogonal selection ends at a chunk boundary of the first axis, so that few chunks are
    read twice. Pages of points are one-dimensional.
    """
    if max_elements < 1:
        raise BadRequest("A page must have room for at least one element.")
    if selection.size == 0:
        return
    if selection.size <= max_elements:
        yield selection
    elif isinstance(selection, Orthogonal):
        for axes in _split_axes(selection.axes, grid.chunk, max_elements):
            yield Orthogonal.trusted(selection.extent, axes)
    elif isinstance(selection, Points):
        for first in range(0, selection.size, max_elements):
            yield Points.trusted(selection.extent, selection.coordinates[first : first + max_elements])
    else:
        yield from _split_boxes(selection, max_elements, 0)


def _split_axes(axes: tuple[Axis, ...], chunk: tuple[int, ...], limit: int) -> Iterator[tuple[Axis, ...]]:
    rest = math.prod(axis.size for axis in axes[1:])
    axis = axes[0]
    first = 0
    while first < axis.size:
        if rest > limit:
            row = ax.take(axis, first, first + 1)
            for tail in _split_axes(axes[1:], chunk[1:], limit):
                yield (row, *tail)
            first += 1
        else:
            last = _page_end(axis, chunk[0], first, limit // rest)
            yield (ax.take(axis, first, last), *axes[1:])
            first = last


def _page_end(axis: Axis, chunk: int, first: int, most: int) -> int:
    """Return the end of a page of at most `most` positions of `axis` that begins at position `first`."""
    last = min(first + most, axis.size)
    if last == axis.size or not isinstance(axis, StridedSpan):
        return last
    after = ax.take(axis, last, last + 1)
    found = ax.bounds(after)
    assert found is not None
    aligned = int(axis.below(np.array([found[0] // chunk * chunk], np.int64))[0])
    return aligned if aligned > first else last


def _split_boxes(boxes: Boxes, limit: int, dim: int) -> Iterator[Boxes]:
    """Yield pages of a union of boxes that have length 1 in the dimensions before `dim`."""
    begin, row, room = 0, 0, limit
    for row, stop, per_row in _bands(boxes, dim):
        while row < stop:
            if per_row <= room:
                rows = min(stop - row, room // per_row)
                row, room = row + rows, room - rows * per_row
                continue
            if room < limit:
                yield _rows(boxes, dim, begin, row)
            else:
                yield from _split_boxes(_rows(boxes, dim, row, row + 1), limit, dim + 1)
                row += 1
            begin, room = row, limit
    if room < limit:
        yield _rows(boxes, dim, begin, row)


def _bands(boxes: Boxes, dim: int) -> Iterator[tuple[int, int, int]]:
    """Yield triples `(start, stop, n)`: a range of indices in `dim`, at each of which the boxes have n > 0 elements."""
    change: dict[int, int] = {}
    corners = zip(boxes.starts.tolist(), boxes.stops.tolist(), strict=True)
    for start, stop in corners:
        size = math.prod(b - a for a, b in zip(start[dim + 1 :], stop[dim + 1 :], strict=True))
        change[start[dim]] = change.get(start[dim], 0) + size
        change[stop[dim]] = change.get(stop[dim], 0) - size
    per_row = 0
    for low, high in itertools.pairwise(sorted(change)):
        per_row += change[low]
        if per_row:
            yield low, high, per_row


def _rows(boxes: Boxes, dim: int, low: int, high: int) -> Boxes:
    rank = len(boxes.extent)
    start = [low if d == dim else 0 for d in range(rank)]
    return boxes.clip(start, [high if d == dim else boxes.extent[d] for d in range(rank)])
