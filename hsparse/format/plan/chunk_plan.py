"""The plan of a request: a selection of a dataset, cut into chunk selections.

The module first cuts one axis of an orthogonal selection at chunk boundaries. It then has one section for each type of
selection: orthogonal, points, boxes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest, TooLarge
from hsparse.format.plan.grid import Grid
from hsparse.format.selections import orthogonal as ax
from hsparse.format.selections.boxes import Boxes
from hsparse.format.selections.extent import count_runs
from hsparse.format.selections.orthogonal import Axis, Orthogonal, StridedSpan
from hsparse.format.selections.points import Points, Selection

Place: TypeAlias = slice | NDArray[np.intp]


class AxisPiece(NamedTuple):
    """The part of an axis in one chunk: its indices in the chunk's coordinates, and `place`, its positions in the axis.

    `full` says that the piece has every index of the chunk that lies inside the extent.
    """

    chunk: int
    axis: Axis
    place: Place
    full: bool


def count_pieces(axis: Axis, chunk: int) -> int:
    """Return the exact number of chunks of length `chunk` that an axis intersects, without listing a span's indices."""
    if not isinstance(axis, StridedSpan):
        return int(np.unique(axis // np.uint64(chunk)).size)
    if axis.count == 1 and axis.block:
        return (axis.start + axis.block - 1) // chunk - axis.start // chunk + 1
    if not axis.size:
        return 0
    if axis.contiguous or axis.stride - axis.block < chunk:
        return (axis.stop - 1) // chunk - axis.start // chunk + 1
    # The gaps have the length of a chunk or more, so no chunk has two blocks: add up the chunks of all blocks.
    firsts = _floor_sum(axis.count, chunk, axis.stride, axis.start)
    return _floor_sum(axis.count, chunk, axis.stride, axis.start + axis.block - 1) - firsts + axis.count


def chunk_numbers(axis: Axis, chunk: int) -> NDArray[np.int64]:
    """Return the numbers of the chunks that the axis intersects, ascending, (k,) int64."""
    found = ax.bounds(axis)
    if found is None:
        return np.zeros(0, np.int64)
    if isinstance(axis, StridedSpan) and (axis.contiguous or axis.stride - axis.block < chunk):
        return np.arange(found[0] // chunk, (found[1] - 1) // chunk + 1, dtype=np.int64)
    if isinstance(axis, StridedSpan) and axis.block > 1:
        ends = [
            ax.indices(StridedSpan(axis.start + end, axis.stride, axis.count)) for end in (0, axis.block - 1)
        ]
        firsts, lasts = (end.astype(np.int64) // chunk for end in ends)
        sizes = lasts - firsts + 1
        within = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        result: NDArray[np.int64] = np.repeat(firsts, sizes) + within
        return result
    return np.unique(ax.indices(axis) // np.uint64(chunk)).astype(np.int64)


def axis_intersects(axis: Axis, chunk: int, length: int, chunks: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return a mask, (k,), of the chunk numbers `chunks: (k,)` that an axis over an extent of `length` intersects."""
    if not isinstance(axis, StridedSpan):
        return np.isin(chunks, axis.astype(np.int64) // chunk)
    ends = np.where(chunks < length // chunk, np.minimum(chunks + 1, length // chunk) * chunk, length)
    result: NDArray[np.bool_] = axis.below(ends) > axis.below(chunks * chunk)
    return result


def cut_axis(axis: Axis, chunk: int, length: int, chunks: NDArray[np.int64] | None = None) -> list[AxisPiece]:
    """Cut an axis over an extent of `length` at chunk boundaries; return the pieces in the order of their chunks.

    If `chunks` (ascending) is given, only pieces in chunks with these numbers are returned. No piece is empty.
    """
    if isinstance(axis, StridedSpan) and axis.count <= 1:
        return _range_pieces(axis.start, axis.start + axis.count * axis.block, chunk, length, chunks)
    wanted = chunk_numbers(axis, chunk) if chunks is None else chunks
    if isinstance(axis, StridedSpan):
        return _span_pieces(axis, chunk, length, wanted)
    return _list_pieces(axis, chunk, length, wanted)


def _range_pieces(
    start: int, stop: int, chunk: int, length: int, chunks: NDArray[np.int64] | None
) -> list[AxisPiece]:
    wanted = range(start // chunk, -(-stop // chunk)) if chunks is None else chunks.tolist()
    result = []
    for number in wanted:
        origin = number * chunk
        first, last = max(start, origin), min(stop, origin + chunk)
        if last > first:
            inside = StridedSpan(first - origin, 1, 1, last - first)
            full = last - first == min(chunk, length - origin)
            result.append(AxisPiece(number, inside, slice(first - start, last - start), full))
    return result


def _span_pieces(axis: StridedSpan, chunk: int, length: int, wanted: NDArray[np.int64]) -> list[AxisPiece]:
    whole = length // chunk
    ends = np.where(wanted < whole, np.minimum(wanted + 1, whole) * chunk, length)
    firsts = axis.below(wanted * chunk).tolist()
    lasts = axis.below(ends).tolist()
    result = []
    for number, first, last in zip(wanted.tolist(), firsts, lasts, strict=True):
        if last > first:
            inside = ax.translate(ax.take(axis, first, last), -number * chunk)
            full = last - first == min(chunk, length - number * chunk)
            result.append(AxisPiece(number, inside, slice(first, last), full))
    return result


def _list_pieces(
    axis: NDArray[np.uint64], chunk: int, length: int, wanted: NDArray[np.int64]
) -> list[AxisPiece]:
    numbers = (axis // np.uint64(chunk)).astype(np.int64)
    order = np.argsort(numbers, kind="stable")
    grouped = numbers[order]
    firsts = np.searchsorted(grouped, wanted, "left").tolist()
    lasts = np.searchsorted(grouped, wanted, "right").tolist()
    result = []
    for number, first, last in zip(wanted.tolist(), firsts, lasts, strict=True):
        if last > first:
            place = order[first:last]
            listed = axis[place] - np.uint64(number * chunk)
            run = as_place(listed)
            # Ranges are processed faster than lists.
            inside: Axis = StridedSpan.range(run.start, run.stop) if isinstance(run, slice) else listed
            full = ax.covers(inside, 0, min(chunk, length - number * chunk))
            result.append(AxisPiece(number, inside, as_place(place), full))
    return result


def as_place(positions: NDArray[Any]) -> Place:
    """Return ascending positions as a slice if the positions are contiguous, or else unchanged."""
    first, last = int(positions[0]), int(positions[-1])
    if last - first == len(positions) - 1 and bool((positions[1:] > positions[:-1]).all()):
        return slice(first, last + 1)
    return positions


def _floor_sum(count: int, modulus: int, step: int, start: int) -> int:
    """Return the sum of `(step * i + start) // modulus` over `i` in `0..count-1`, in logarithmic time."""
    total = 0
    while count > 0:
        total += (step // modulus) * (count * (count - 1) // 2) + (start // modulus) * count
        step, start = step % modulus, start % modulus
        top = step * count + start
        count, start, modulus, step = top // modulus, top % modulus, step, modulus
    return total


@dataclass(frozen=True, slots=True)
class ChunkSelection:
    """The part of a selection that falls into the chunk at scaled coordinates `scaled`.

    `selection` is in the chunk's own coordinates, over its full dimensions. `full` says that the selection covers every
    element of the chunk that lies inside the extent.
    """

    scaled: tuple[int, ...]
    selection: Selection
    full: bool = False

    def begins_outside(self, extent: tuple[int, ...], dims: tuple[int, ...]) -> bool:
        """Return whether the chunk, which has dimensions `dims`, begins outside `extent`; False if `extent` is ().

        A negative number in `extent` stands for the extent's lower bound in that dimension, negated.
        """
        return any(
            scaled * dim >= length if length >= 0 else scaled * dim < -length
            for scaled, dim, length in zip(self.scaled, dims, extent, strict=False)
        )


@dataclass(frozen=True, slots=True, eq=False)
class PlannedChunk:
    """A chunk selection with its place in the whole selection.

    `place` is a numpy index into an array `result` of the whole selection's shape: `result[place]` are the chunk's
    values in the shape of `selection`. The other fields are as in `ChunkSelection`.
    """

    scaled: tuple[int, ...]
    selection: Selection
    place: tuple[Any, ...]
    full: bool

    @property
    def origin(self) -> tuple[int, ...]:
        """The chunk's first position along each axis of the whole selection, whose axes must ascend."""
        return tuple(int(some.start) if isinstance(some, slice) else int(some.flat[0]) for some in self.place)


def plan(
    selection: Selection, grid: Grid, existing: NDArray[np.uint64] | None = None
) -> tuple[PlannedChunk, ...]:
    """Cut a selection into chunk selections, in row-major order of the chunks that the selection intersects.

    If `existing: (k, rank) uint64` is given, the plan has only chunks at these scaled coordinates. The number of chunk
    selections is not bounded here: call `count_chunks` first.
    """
    if selection.extent != grid.extent:
        raise BadRequest(f"The selection has extent {list(selection.extent)}, not {list(grid.extent)}.")
    if selection.size == 0 or (existing is not None and not len(existing)):
        return ()
    # A scalar has one chunk, and numpy cannot find unique rows without columns.
    only = None if existing is None or not grid.chunk else np.unique(existing.astype(np.int64), axis=0)
    if isinstance(selection, Orthogonal):
        return _plan_orthogonal(selection, grid, only)
    if isinstance(selection, Points):
        return _plan_points(selection, grid, only)
    return _plan_boxes(selection, grid, only)


def chunk_selections(planned: Sequence[PlannedChunk]) -> tuple[ChunkSelection, ...]:
    """Return the planned chunks without their places, as `ChunkSelection`s for messages to data nodes."""
    return tuple([ChunkSelection(chunk.scaled, chunk.selection, chunk.full) for chunk in planned])


def run_of(planned: Sequence[PlannedChunk], first: int, room: int) -> int:
    """Return the end of the longest run of chunks from `first` that has one chunk, or at most `room` elements."""
    total = planned[first].selection.size
    until = first + 1
    while until < len(planned) and (total := total + planned[until].selection.size) <= room:
        until += 1
    return until


def count_chunks(selection: Selection, grid: Grid) -> int:
    """Return the number of chunks that the selection intersects, which is the length of its plan."""
    if isinstance(selection, Orthogonal):
        return math.prod(map(count_pieces, selection.axes, grid.chunk))
    if isinstance(selection, Points):
        return _distinct(*_numbers(grid.scaled(selection.coordinates)))
    if not selection.size:
        return 0
    return _distinct(*_numbers(_cut_boxes(selection, grid)[1]))


def selection_intersects(selection: Selection, grid: Grid, scaled: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Return a mask, (k,), of the chunks at `scaled: (k, rank) uint64` in the grid that the selection intersects."""
    if selection.size == 0 or not len(scaled):
        return np.zeros(len(scaled), np.bool_)
    if isinstance(selection, Points):
        return _member(scaled.astype(np.int64), grid.scaled(selection.coordinates).astype(np.int64))
    if not isinstance(selection, Orthogonal):
        return _member(scaled.astype(np.int64), _cut_boxes(selection, grid)[1].astype(np.int64))
    found = np.ones(len(scaled), np.bool_)
    for dim, axis in enumerate(selection.axes):
        found &= axis_intersects(axis, grid.chunk[dim], grid.extent[dim], scaled[:, dim].astype(np.int64))
    return found


# --- orthogonal -----------------------------------------------------------------------------------


def _plan_orthogonal(
    selection: Orthogonal, grid: Grid, only: NDArray[np.int64] | None
) -> tuple[PlannedChunk, ...]:
    by_dim = []
    for dim, axis in enumerate(selection.axes):
        wanted = None if only is None else np.unique(only[:, dim])
        by_dim.append(cut_axis(axis, grid.chunk[dim], grid.extent[dim], wanted))
    lists = sum([not isinstance(axis, StridedSpan) for axis in selection.axes])
    rows: Iterable[Sequence[AxisPiece]] = itertools.product(*by_dim)
    if only is not None:
        rows = _rows_in(by_dim, only)
    result = []
    for row in rows:
        chunk, axes, place, full = zip(*row, strict=True) if row else ((), (), (), ())
        if lists > 1:
            place = _product_place(place)
        result.append(PlannedChunk(chunk, Orthogonal.trusted(grid.chunk, axes), place, all(full)))
    return tuple(result)


def _rows_in(by_dim: Sequence[Sequence[AxisPiece]], only: NDArray[np.int64]) -> Iterator[list[AxisPiece]]:
    """Yield one piece per dimension for each chunk in `only: (k, rank)` that the selection intersects."""
    found = [{piece.chunk: piece for piece in some} for some in by_dim]
    for row in only.tolist():
        pieces = [some.get(number) for some, number in zip(found, row, strict=True)]
        if None not in pieces:
            yield [piece for piece in pieces if piece is not None]


def _product_place(places: Sequence[Place]) -> tuple[Any, ...]:
    """Return a numpy index of all combinations of `places`, one per dimension; several places may be lists."""
    if sum(not isinstance(place, slice) for place in places) < 2:
        return tuple(places)
    return np.ix_(*(np.r_[place] if isinstance(place, slice) else place for place in places))


# --- points ---------------------------------------------------------------------------------------


def _plan_points(selection: Points, grid: Grid, only: NDArray[np.int64] | None) -> tuple[PlannedChunk, ...]:
    scaled = grid.scaled(selection.coordinates)
    numbers, highest = _numbers(scaled)
    # numpy sorts 16-bit integers by radix, several times faster than wider ones
    order = np.argsort(numbers.astype(np.uint16) if highest < 2**16 else numbers, kind="stable")
    grouped = numbers[order]
    firsts = np.flatnonzero(np.concatenate(([True], grouped[1:] != grouped[:-1])))
    lasts = np.append(firsts[1:], len(grouped))
    chunks = scaled[order[firsts]]
    if only is not None:
        keep = _member(chunks.astype(np.int64), only)
        firsts, lasts, chunks = firsts[keep], lasts[keep], chunks[keep]
    local = np.empty((len(order), len(grid.chunk)), np.uint64)
    for dim, length in enumerate(grid.chunk):
        column = selection.coordinates[:, dim] - scaled[:, dim] * np.uint64(length)
        local[:, dim] = column[order]
    result = []
    smallest = math.prod([n % step or step for n, step in zip(grid.extent, grid.chunk, strict=True)])
    for first, last, chunk in zip(firsts.tolist(), lasts.tolist(), chunks.tolist(), strict=True):
        points = Points.trusted(grid.chunk, local[first:last])
        place = _flat_place(order[first:last], selection.shape)
        full = last - first >= smallest and _covers(points, grid.clipped(chunk))
        result.append(PlannedChunk(tuple(chunk), points, place, full))
    return tuple(result)


def _flat_place(positions: NDArray[np.intp], shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Return positions in the flattened result as a numpy index into the result's shape."""
    if not shape:  # a result of shape () has one point, whose values have the shape (1,)
        return (None,)
    if len(shape) == 1:
        return (as_place(positions),)
    return np.unravel_index(positions, shape)


def _covers(points: Points, clipped: tuple[int, ...]) -> bool:
    volume = math.prod(clipped)
    return points.size >= volume and int(np.unique(points.offsets()).size) == volume


def _distinct(numbers: NDArray[np.uint64], highest: int) -> int:
    """Return the number of distinct `numbers`, which are at most `highest`; a table is much faster than `np.unique`."""
    if highest > max(len(numbers), 2**16):
        return int(np.unique(numbers).size)
    there = np.zeros(highest + 1, np.bool_)
    there[numbers] = True
    return int(np.count_nonzero(there))


def _numbers(scaled: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], int]:
    """Return a pair: numbers of the rows of `scaled` that sort as the rows in row-major order, and an upper bound."""
    numbers = np.zeros(len(scaled), np.uint64)
    if not len(scaled):
        return numbers, 0
    total = 1
    for dim in range(scaled.shape[1]):
        column = scaled[:, dim]
        low = column.min()
        span = int(column.max() - low) + 1
        column = column - low
        if total * span >= 2**64:  # few rows in a huge grid: number only the values that occur
            numbers = np.unique(numbers, return_inverse=True)[1].astype(np.uint64)
            column = np.unique(column, return_inverse=True)[1].astype(np.uint64)
            total, span = int(numbers.max()) + 1, int(column.max()) + 1
        numbers = numbers * np.uint64(span) + column
        total *= span
    return numbers, total - 1


def _member(rows: NDArray[np.int64], only: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return a mask of the `rows` that are among the rows of `only`."""
    numbers, _ = _numbers(np.concatenate((rows, only)).astype(np.uint64))
    return np.isin(numbers[: len(rows)], numbers[len(rows) :])


# --- boxes ----------------------------------------------------------------------------------------

MAX_CUTS = 1 << 22
"""The most pieces into which chunk boundaries, or rows, may cut a union of boxes."""


def _plan_boxes(selection: Boxes, grid: Grid, only: NDArray[np.int64] | None) -> tuple[PlannedChunk, ...]:
    box, scaled = _cut_boxes(selection, grid)
    if only is not None:
        keep = _member(scaled.astype(np.int64), only)
        box, scaled = box[keep], scaled[keep]
        if not len(box):
            return ()
    order = np.argsort(_numbers(scaled)[0], kind="stable")
    box, scaled = box[order], scaled[order]
    origins = scaled * np.array(grid.chunk, np.uint64)
    ends = origins + np.array(grid.chunk, np.uint64)
    starts = np.maximum(selection.starts[box], origins) - origins
    stops = np.minimum(selection.stops[box], ends) - origins
    new = np.concatenate(([True], (scaled[1:] != scaled[:-1]).any(axis=1)))
    firsts = np.flatnonzero(new)
    lasts = np.append(firsts[1:], len(box))
    if count_runs(selection.starts, selection.stops, selection.extent) > MAX_CUTS:
        raise TooLarge(f"The boxes have more than {MAX_CUTS} rows; select less at a time.")
    begins, run_ends = selection.runs()
    places = np.cumsum(run_ends - begins) - (run_ends - begins)
    result = []
    for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
        chunk = tuple(scaled[first].tolist())
        boxes = Boxes.trusted(grid.chunk, starts[first:last], stops[first:last])
        origin = np.array(grid.origin(chunk), np.uint64)
        moved = Boxes.trusted(grid.extent, boxes.starts + origin, boxes.stops + origin).offsets()
        run = np.searchsorted(begins, moved, "right") - 1
        place = as_place((places[run] + moved - begins[run]).astype(np.intp))
        result.append(PlannedChunk(chunk, boxes, (place,), boxes.size == math.prod(grid.clipped(chunk))))
    return tuple(result)


def _cut_boxes(selection: Boxes, grid: Grid) -> tuple[NDArray[np.intp], NDArray[np.uint64]]:
    """Return box numbers, (p,), and scaled coordinates, (p, rank), of the pairs of a box and a chunk that intersect."""
    firsts = grid.scaled(selection.starts)
    counts = grid.scaled(selection.stops - np.uint64(1)) - firsts + np.uint64(1)
    per_box = counts.astype(np.float64).prod(axis=1)
    if per_box.sum() > MAX_CUTS:
        raise TooLarge(f"The boxes meet more than {MAX_CUTS} chunks; select less at a time.")
    sizes = per_box.astype(np.intp)
    box = np.repeat(np.arange(len(sizes)), sizes)
    rest = (np.arange(len(box)) - np.repeat(np.cumsum(sizes) - sizes, sizes)).astype(np.uint64)
    scaled = np.empty((len(box), len(grid.chunk)), np.uint64)
    for dim in range(len(grid.chunk) - 1, -1, -1):
        rest, step = np.divmod(rest, counts[box, dim])
        scaled[:, dim] = firsts[box, dim] + step
    return box, scaled
