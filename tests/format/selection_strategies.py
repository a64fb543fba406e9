"""Hypothesis strategies: extents, chunks and selections over them, small enough to enumerate.

They are cached: Hypothesis validates and labels each new strategy, which takes as long as to draw from it.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from hsparse.format.plan.grid import Grid
from hsparse.format.selections.boxes import Boxes
from hsparse.format.selections.orthogonal import Axis, Orthogonal, StridedSpan
from hsparse.format.selections.points import Points, Selection


@cache
def extents(min_rank: int = 1, max_rank: int = 3, least: int = 1) -> st.SearchStrategy[tuple[int, ...]]:
    lengths = st.integers(least, 9)
    return st.lists(lengths, min_size=min_rank, max_size=max_rank).map(tuple)


@cache
@st.composite
def spans(draw: st.DrawFn, length: int) -> StridedSpan:
    if length == 0 or draw(st.integers(0, 9)) == 0:
        return StridedSpan(0, 1, 0, 1)
    start = draw(st.integers(0, length - 1))
    block = draw(st.integers(1, min(4, length - start)))
    stride = draw(st.integers(block, block + 4))
    count = draw(st.integers(1, 1 + (length - start - block) // stride))
    return StridedSpan(start, stride, count, block)


@cache
@st.composite
def index_lists(draw: st.DrawFn, length: int, unique: bool = False) -> NDArray[np.uint64]:
    if length == 0:
        return np.zeros(0, np.uint64)
    values = st.lists(st.integers(0, length - 1), max_size=length if unique else 12, unique=unique)
    return np.array(draw(values), np.uint64)


@cache
def axes(length: int, unique: bool = False) -> st.SearchStrategy[Axis]:
    return st.one_of(spans(length), index_lists(length, unique), st.just(StridedSpan.range(0, length)))


@cache
@st.composite
def orthogonals(draw: st.DrawFn, extent: tuple[int, ...], unique: bool = False) -> Orthogonal:
    return Orthogonal(extent, tuple(draw(axes(length, unique)) for length in extent))


@cache
@st.composite
def points(draw: st.DrawFn, extent: tuple[int, ...]) -> Points:
    if math.prod(extent) == 0:
        return Points(extent, np.zeros((0, len(extent)), np.uint64))
    one = st.tuples(*(st.integers(0, length - 1) for length in extent))
    found = draw(st.lists(one, max_size=24))
    return Points(extent, np.array(found, np.uint64).reshape(len(found), len(extent)))


@cache
@st.composite
def boxes(draw: st.DrawFn, extent: tuple[int, ...]) -> Boxes:
    """Disjoint boxes in any order: drawn one by one, those that meet an earlier one left out."""
    taken = np.zeros(extent, np.bool_)
    starts, stops = [], []
    for _ in range(draw(st.integers(0, 6)) if taken.size else 0):
        low = [draw(st.integers(0, length - 1)) for length in extent]
        high = [draw(st.integers(a + 1, length)) for a, length in zip(low, extent, strict=True)]
        block = tuple(map(slice, low, high))
        if not taken[block].any():
            taken[block] = True
            starts.append(low)
            stops.append(high)
    shape = (len(starts), len(extent))
    return Boxes(
        extent, np.array(starts, np.uint64).reshape(shape), np.array(stops, np.uint64).reshape(shape)
    )


@cache
def selections(extent: tuple[int, ...]) -> st.SearchStrategy[Selection]:
    return st.one_of(orthogonals(extent), points(extent), boxes(extent))


@st.composite
def any_selections(draw: st.DrawFn, least: int = 0) -> Selection:
    return draw(selections(draw(extents(least=least))))


@cache
@st.composite
def grids(draw: st.DrawFn, extent: tuple[int, ...]) -> Grid:
    return Grid(extent, tuple(draw(st.integers(1, length + 2)) for length in extent))


@cache
@st.composite
def offset_sets(draw: st.DrawFn, extent: tuple[int, ...]) -> NDArray[np.uint32]:
    """Ascending offsets in `extent`, uint32: any set, or a structured one with some elements flipped."""
    size = math.prod(extent)
    if draw(st.booleans()):
        mask = np.array(draw(st.lists(st.booleans(), min_size=size, max_size=size)), np.bool_)
    else:
        mask = np.zeros(size, np.bool_)
        mask[draw(selections(extent)).offsets().astype(np.intp)] = True
        for place in draw(st.lists(st.integers(0, size - 1), max_size=3)) if size else ():
            mask[place] ^= True
    return np.flatnonzero(mask).astype(np.uint32)


def iterate(selection: Selection) -> list[tuple[int, ...]]:
    """The coordinates of a selection in its iteration order, by the plainest means."""
    if isinstance(selection, Points):
        return [tuple(row) for row in selection.coordinates.tolist()]
    if isinstance(selection, Boxes):
        found = set()
        for low, high in zip(selection.starts.tolist(), selection.stops.tolist(), strict=True):
            block = [b - a for a, b in zip(low, high, strict=True)]
            found |= {tuple(a + i for a, i in zip(low, step, strict=True)) for step in np.ndindex(*block)}
        return sorted(found)
    lists = [list_axis(axis) for axis in selection.axes]
    return [
        tuple(some[i] for some, i in zip(lists, step, strict=True)) for step in np.ndindex(*map(len, lists))
    ]


def list_axis(axis: Axis) -> list[int]:
    if isinstance(axis, StridedSpan):
        return [axis.start + i * axis.stride + j for i in range(axis.count) for j in range(axis.block)]
    return [int(index) for index in axis]
