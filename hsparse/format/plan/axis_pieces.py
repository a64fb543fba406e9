"""One axis of an orthogonal selection, cut at chunk boundaries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hsparse.format.selections import axis as ax
from hsparse.format.selections.axis import Axis, Span

Place: TypeAlias = slice | NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class AxisPiece:
    """The piece of an axis in one chunk: `axis` in the chunk's coordinates, and its positions as `place`.

    `full` says that it has every index of the chunk that lies inside the extent.
    """

    chunk: int
    axis: Axis
    place: Place
    full: bool


def count_pieces(axis: Axis, chunk: int) -> int:
    """Return how many chunks of length `chunk` the axis intersects, exactly, without listing a span's indices."""
    found = ax.bounds(axis)
    if found is None:
        return 0
    if not isinstance(axis, Span):
        return int(np.unique(axis // np.uint64(chunk)).size)
    if axis.contiguous or axis.stride - axis.block < chunk:
        return (found[1] - 1) // chunk - found[0] // chunk + 1
    # gaps of a chunk or more: no chunk has two blocks, so the blocks' chunks add up
    firsts = _floor_sum(axis.count, chunk, axis.stride, axis.start)
    return _floor_sum(axis.count, chunk, axis.stride, axis.start + axis.block - 1) - firsts + axis.count


def chunk_numbers(axis: Axis, chunk: int) -> NDArray[np.int64]:
    """Return the numbers of the chunks that the axis intersects, ascending, (k,) int64."""
    found = ax.bounds(axis)
    if found is None:
        return np.zeros(0, np.int64)
    if isinstance(axis, Span) and (axis.contiguous or axis.stride - axis.block < chunk):
        return np.arange(found[0] // chunk, (found[1] - 1) // chunk + 1, dtype=np.int64)
    if isinstance(axis, Span) and axis.block > 1:
        ends = [ax.indices(Span(axis.start + end, axis.stride, axis.count)) for end in (0, axis.block - 1)]
        firsts, lasts = (end.astype(np.int64) // chunk for end in ends)
        sizes = lasts - firsts + 1
        within = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        result: NDArray[np.int64] = np.repeat(firsts, sizes) + within
        return result
    return np.unique(ax.indices(axis) // np.uint64(chunk)).astype(np.int64)


def axis_intersects(axis: Axis, chunk: int, length: int, chunks: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which of `chunks`, (k,) numbers in any order, an axis over an extent of `length` intersects."""
    if not isinstance(axis, Span):
        return np.isin(chunks, axis.astype(np.int64) // chunk)
    ends = np.where(chunks < length // chunk, np.minimum(chunks + 1, length // chunk) * chunk, length)
    result: NDArray[np.bool_] = axis.below(ends) > axis.below(chunks * chunk)
    return result


def cut_axis(axis: Axis, chunk: int, length: int, chunks: NDArray[np.int64] | None = None) -> list[AxisPiece]:
    """Cut an axis over an extent of `length`; the pieces come in the order of their chunks.

    With `chunks`, ascending, only pieces in these are returned; a chunk that the axis does not intersect has none.
    """
    wanted = chunk_numbers(axis, chunk) if chunks is None else chunks
    if isinstance(axis, Span):
        return _span_pieces(axis, chunk, length, wanted)
    return _list_pieces(axis, chunk, length, wanted)


def _span_pieces(axis: Span, chunk: int, length: int, wanted: NDArray[np.int64]) -> list[AxisPiece]:
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
            # Work on a range is less than on a list.
            inside: Axis = Span.range(run.start, run.stop) if isinstance(run, slice) else listed
            full = ax.covers(inside, 0, min(chunk, length - number * chunk))
            result.append(AxisPiece(number, inside, as_place(place), full))
    return result


def as_place(positions: NDArray[Any]) -> Place:
    """Return ascending positions as a slice when they are contiguous, else as they are."""
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
