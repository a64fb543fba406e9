"""Parts of virtual datasets: against numpy's order of the selected elements."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import Corrupt, TooLarge
from hsparse.format.plan import unlimited_selection, virtual_plan
from hsparse.format.plan.unlimited_selection import block_of, clipped, end_of_slices, slices_before
from hsparse.format.plan.virtual_plan import Listed, Product, bounds_of, is_product, mapped_part, ordered
from hsparse.format.selections.orthogonal import StridedSpan
from hsparse.format.selections.serialized_selection import (
    UNLIMITED,
    AllElements,
    BlockList,
    NoElements,
    PointList,
    Regular,
    Serialized,
)


def blocks(*corners: tuple[tuple[int, ...], tuple[int, ...]]) -> BlockList:
    """Return blocks of first and last indices."""
    starts, ends = (np.array(some, np.uint64) for some in zip(*corners, strict=True))
    return BlockList(starts, ends, 4)


def chosen(selection: Serialized, dims: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return the selected coordinates in the order of the selection, one by one."""
    inside: Any
    match selection:
        case AllElements():
            return list(np.ndindex(*dims))
        case NoElements():
            return []
        case PointList(coords):
            return [tuple(row) for row in coords.tolist()]
        case Regular(spans):
            lists = [
                [s.start + n * s.stride + k for n in range(s.count) for k in range(s.block)] for s in spans
            ]
            return list(product(*lists))
        case BlockList(starts, ends):
            inside = {
                one
                for a, b in zip(starts.tolist(), ends.tolist(), strict=True)
                for one in product(*(range(x, y + 1) for x, y in zip(a, b, strict=True)))
            }
    return sorted(inside)


@st.composite
def spans(draw: st.DrawFn, length: int) -> StridedSpan:
    block = draw(st.integers(1, length))
    stride = draw(st.integers(block, length + 1))
    start = draw(st.integers(0, length - block))
    count = draw(st.integers(1, (length - start - block) // stride + 1))
    return StridedSpan(start, stride, count, block)


@st.composite
def selections(draw: st.DrawFn, dims: tuple[int, ...]) -> Serialized:
    kind = draw(st.sampled_from(["regular", "all", "points", "blocks"]))
    if kind == "all":
        return AllElements()
    if kind == "regular":
        return Regular(tuple(draw(spans(length)) for length in dims))
    places = draw(st.sets(st.tuples(*(st.integers(0, n - 1) for n in dims)), min_size=1))
    points = np.array(draw(st.permutations(sorted(places))), np.uint64)
    return PointList(points) if kind == "points" else BlockList(points, points, 4)


@given(data=st.data())
def test_elements_correspond_in_their_order(data: st.DataObject) -> None:
    dims, others = (tuple(data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=3))) for _ in range(2))
    virtual = data.draw(selections(dims))
    source = data.draw(selections(others))
    pairs = list(zip(chosen(virtual, dims), chosen(source, others), strict=False))
    one, other = ordered(virtual, dims), ordered(source, others)
    if one.size != other.size:
        if not (one.size > other.size and isinstance(virtual, PointList)):
            return
        virtual = PointList(virtual.coords[: other.size])
        one = ordered(virtual, dims)
    start = tuple(data.draw(st.integers(0, length - 1)) for length in dims)
    stop = tuple(data.draw(st.integers(a + 1, length)) for a, length in zip(start, dims, strict=True))
    expected = {
        tuple(map(int.__sub__, to, start)): of
        for to, of in pairs
        if all(a <= x < b for x, a, b in zip(to, start, stop, strict=True))
    }
    part = mapped_part(one, other, start, stop)
    if part is None:
        assert not expected
        return
    assert part.products == is_product(one, other)
    if part.products:
        targets, sources = (
            list(product(*(one.tolist() for one in some))) for some in (part.target, part.source)
        )
    else:
        targets, sources = (
            list(zip(*map(np.ndarray.tolist, some), strict=True)) for some in (part.target, part.source)
        )
    assert dict(zip(targets, sources, strict=True)) == expected


def test_a_dataset_without_dimensions() -> None:
    part = mapped_part(ordered(AllElements(), ()), ordered(AllElements(), (1,)), (), ())
    assert part is not None
    assert part.products
    assert [one.tolist() for one in part.source] == [[0]]


def test_blocks_that_are_a_product_are_no_list_of_elements() -> None:
    rows = blocks(*(((row, 0), (row, 999_999)) for row in (1, 3, 4)))
    found = ordered(rows, (5, 10**6))
    assert isinstance(found, Product)
    assert found.counts == (3, 10**6)
    large = ordered(blocks(((5, 0), (5, 10**9)), ((9, 0), (9, 10**9))), (12, 2 * 10**9))
    assert isinstance(large, Product)
    assert large.axes == (StridedSpan(5, 4, 2, 1), StridedSpan(0, 1, 1, 10**9 + 1))
    assert large.bounds == ((5, 0), (10, 10**9 + 1))
    assert isinstance(ordered(blocks(((0, 0), (1, 1)), ((1, 2), (2, 3))), (5, 5)), Listed)


@pytest.mark.parametrize(
    "selection",
    [
        Regular((StridedSpan(1, 4, 2, 3),)),
        PointList(np.array([[0], [7]], np.uint64)),
        blocks(((0,), (1,)), ((6,), (7,))),
    ],
)
def test_selections_outside_of_the_extent(selection: Serialized) -> None:
    assert ordered(selection, (8,)).size
    with pytest.raises(Corrupt, match="up to 8 in dimension 0 is mapped; the dataset ends at 7"):
        ordered(selection, (7,))
    with pytest.raises(Corrupt, match="1 dimensions is mapped; the dataset has 2"):
        ordered(selection, (8, 8))


def test_too_many_single_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (virtual_plan, unlimited_selection):
        monkeypatch.setattr(module, "MAX_LISTED", 7)
    with pytest.raises(TooLarge, match="selection of 8 elements"):
        ordered(blocks(((0, 0), (1, 1)), ((1, 2), (2, 3))), (5, 5))
    with pytest.raises(TooLarge, match="of 8 blocks"):
        clipped(Regular((StridedSpan(0, 4, UNLIMITED, 2), StridedSpan(0, 2, 2, 1))), 0, 7)


@pytest.mark.parametrize("block", [1, 2, 3, UNLIMITED])
@pytest.mark.parametrize("stride", [3, 5])
@pytest.mark.parametrize("start", [0, 4])
def test_selections_without_end(start: int, stride: int, block: int) -> None:
    count = 1 if block == UNLIMITED else UNLIMITED
    span = StridedSpan(start, stride, count, block)
    indices = [at for at in range(start, 60) if block == UNLIMITED or (at - start) % stride < block]
    selection = Regular((StridedSpan.range(2, 4), span))
    assert bounds_of(selection, 2) == (4, 0)
    for end in range(40):
        slices = slices_before(span, end)
        assert slices == len([at for at in indices if at < end])
        assert end_of_slices(span, slices) == (indices[slices - 1] + 1 if slices else 0)
        expected = list(product((2, 3), indices[:slices]))
        assert chosen(clipped(selection, 1, slices), (60, 60)) == expected
    if block != UNLIMITED:
        for number in range(4):
            found = chosen(block_of(selection, 1, number), (60, 60))
            assert found == list(product((2, 3), indices[number * block : (number + 1) * block]))


def test_bounds() -> None:
    assert bounds_of(AllElements(), 2) == bounds_of(NoElements(), 2) == (0, 0)
    with pytest.raises(Corrupt, match="1 dimensions is mapped; the dataset has 2"):
        bounds_of(Regular((StridedSpan(0, 1, 1, 1),)), 2)
    with pytest.raises(Corrupt, match="a dataset ends at"):
        end_of_slices(StridedSpan(0, 2**62, UNLIMITED, 1), 2**40)
    assert bounds_of(PointList(np.array([[3, 1], [0, 7]], np.uint64)), 2) == (4, 8)
    assert bounds_of(blocks(((0, 0), (1, 1)), ((1, 2), (2, 3))), 2) == (3, 4)
