"""Which chunks, and which parts of them or of a virtual dataset, a selection has."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import BadRequest, Corrupt, TooLarge
from hsparse.format.plan import unlimited_selection, virtual_plan
from hsparse.format.plan.chunk_plan import (
    PlannedChunk,
    chunk_numbers,
    count_chunks,
    count_pieces,
    cut_axis,
    plan,
    selection_intersects,
)
from hsparse.format.plan.grid import Grid, pages
from hsparse.format.plan.unlimited_selection import block_of, clipped, end_of_slices, slices_before
from hsparse.format.plan.virtual_plan import Listed, Product, bounds_of, is_product, mapped_part, ordered
from hsparse.format.selections.boxes import Boxes
from hsparse.format.selections.orthogonal import Axis, Orthogonal, StridedSpan
from hsparse.format.selections.points import Points, gather
from hsparse.format.selections.serialized_selection import (
    UNLIMITED,
    AllElements,
    BlockList,
    NoElements,
    PointList,
    Regular,
    Serialized,
)
from tests.format.selection_strategies import (
    any_selections,
    axes,
    boxes,
    extents,
    grids,
    iterate,
    list_axis,
    orthogonals,
)


def chunk_of(array: np.ndarray, share: PlannedChunk, grid: Grid) -> np.ndarray:
    """The full chunk of a share, -1 outside the extent."""
    start, stop = grid.bounds(share.scaled)
    chunk = np.full(grid.chunk, -1)
    chunk[tuple(map(slice, grid.clipped(share.scaled)))] = array[tuple(map(slice, start, stop))]
    return chunk


@given(st.data())
def test_shares_read_and_write_every_place_once(data: st.DataObject) -> None:
    selection = data.draw(any_selections())
    grid = data.draw(grids(selection.extent))
    array = np.arange(math.prod(selection.extent)).reshape(selection.extent)
    values = gather(array, selection)
    result = np.full(selection.shape, -1)
    shares = plan(selection, grid)
    for share in shares:
        part = gather(chunk_of(array, share, grid), share.selection)
        assert part.size
        assert values[share.place].tolist() == part.tolist()
        assert (result[share.place] == -1).all()
        result[share.place] = part
        inside = set(part.ravel().tolist())
        assert share.full == (len(inside) == math.prod(grid.clipped(share.scaled)))
    assert result.tolist() == values.tolist()
    scaled = [share.scaled for share in shares]
    assert scaled == sorted(set(scaled))
    assert count_chunks(selection, grid) == len(shares)


@given(st.data())
def test_existing_chunks_only(data: st.DataObject) -> None:
    selection = data.draw(any_selections(least=1))
    grid = data.draw(grids(selection.extent))
    every = list(np.ndindex(*grid.counts))
    some = data.draw(st.lists(st.sampled_from(every), max_size=6))
    existing = np.array(some, np.uint64).reshape(len(some), len(grid.chunk))
    expected = [share for share in plan(selection, grid) if share.scaled in some]
    if grid.chunk:
        wanted = {share.scaled for share in expected}
        assert selection_intersects(selection, grid, existing).tolist() == [
            tuple(one) in wanted for one in some
        ]
    found = plan(selection, grid, existing)
    assert [share.scaled for share in found] == [share.scaled for share in expected]
    for one, other in zip(found, expected, strict=True):
        assert one.selection == other.selection
        assert one.full == other.full


@given(st.data())
def test_points_of_any_shape(data: st.DataObject) -> None:
    extent = data.draw(extents())
    whole = data.draw(orthogonals(extent))
    selection = Points(extent, whole.coords(), whole.shape)
    grid = data.draw(grids(extent))
    array = np.arange(math.prod(extent)).reshape(extent)
    result = np.full(selection.shape, -1)
    for share in plan(selection, grid):
        result[share.place] = gather(chunk_of(array, share, grid), share.selection)
    assert result.tolist() == gather(array, selection).tolist()


def test_scalar() -> None:
    grid = Grid((), ())
    for selection in (Orthogonal.all(()), Points((), np.zeros((1, 0), np.uint64), ())):
        for existing in (None, np.zeros((1, 0), np.uint64)):
            (share,) = plan(selection, grid, existing)
            result = np.zeros(())
            result[share.place] = np.full(share.selection.shape, 5.0)
            assert result == 5.0
            assert share.full
            assert share.scaled == ()
        assert plan(selection, grid, np.zeros((0, 0), np.uint64)) == ()
        assert count_chunks(selection, grid) == 1


def test_grids_with_more_chunks_than_64_bits_count() -> None:
    top = 2**62
    grid = Grid((top, top, 4), (1, 1, 1))
    coords = np.array([[top - 1, top - 1, 3], [0, 5, 0], [top - 1, top - 1, 2], [0, 5, 0]], np.uint64)
    shares = plan(Points(grid.extent, coords), grid)
    expected = sorted({tuple(row) for row in coords.tolist()})
    assert [share.scaled for share in shares] == expected
    assert count_chunks(Points(grid.extent, coords), grid) == 3
    assert len(plan(Points(grid.extent, coords), grid, coords[:1])) == 1
    assert count_chunks(Orthogonal.all(grid.extent), grid) == 2**126


def test_existing_makes_few_shares_of_a_huge_selection() -> None:
    grid = Grid((2**40, 2**40), (4, 4))
    existing = np.array([[5, 7], [2**38 - 1, 2**38 - 1]], np.uint64)
    shares = plan(Orthogonal.all(grid.extent), grid, existing)
    assert [share.scaled for share in shares] == [tuple(row) for row in existing.tolist()]
    assert all(share.full and share.selection.is_all for share in shares)


def test_another_extent_is_refused() -> None:
    with pytest.raises(BadRequest, match=r"extent \[4\], not \[5\]"):
        plan(Orthogonal.all((4,)), Grid((5,), (2,)))


def test_unions_of_boxes_are_bounded() -> None:
    tall = 2**40
    columns = Boxes((tall, 8), [[0, 0], [0, 4]], [[tall, 2], [tall, 6]])
    with pytest.raises(TooLarge, match="chunks"):
        count_chunks(columns, Grid(columns.extent, (1, 8)))
    assert count_chunks(columns, Grid(columns.extent, (tall // 4, 8))) == 4
    with pytest.raises(TooLarge, match="rows"):
        plan(columns, Grid(columns.extent, (tall // 4, 8)))


LENGTH = 40
AXES = axes(LENGTH)


@given(AXES, st.integers(1, 12))
def test_pieces(axis: Axis, chunk: int) -> None:
    listed = list_axis(axis)
    numbers = sorted({index // chunk for index in listed})
    assert chunk_numbers(axis, chunk).tolist() == numbers
    assert count_pieces(axis, chunk) == len(numbers)
    found = cut_axis(axis, chunk, LENGTH)
    assert [piece.chunk for piece in found] == numbers
    for piece in found:
        inside = [index - piece.chunk * chunk for index in listed if index // chunk == piece.chunk]
        assert list_axis(piece.axis) == inside
        assert [index - piece.chunk * chunk for index in np.array(listed)[piece.place].tolist()] == inside
        length = min(chunk, LENGTH - piece.chunk * chunk)
        assert piece.full == (set(inside) == set(range(length)))


@given(st.integers(0, 50), st.integers(1, 60), st.integers(1, 30), st.integers(1, 5), st.integers(1, 9))
def test_count_of_spans_with_gaps(start: int, gap: int, count: int, block: int, chunk: int) -> None:
    span = StridedSpan(start, block + gap, count, block)
    assert count_pieces(span, chunk) == len({index // chunk for index in list_axis(span)})


def test_the_last_chunk_may_end_beyond_64_bits() -> None:
    length = 2**63 - 1
    found = cut_axis(StridedSpan.range(2**62 - 1, length), 2**62, length)
    assert [(piece.chunk, piece.full) for piece in found] == [(0, False), (1, True)]


@given(st.data())
def test_chunks_tile_the_extent(data: st.DataObject) -> None:
    grid = data.draw(grids(data.draw(extents(1, 3, least=0))))
    cover = np.zeros(grid.extent, np.int64)
    for scaled in np.ndindex(*grid.counts):
        start, stop = grid.bounds(scaled)
        block = tuple(map(slice, start, stop))
        cover[block] += 1
        assert grid.holds(scaled)
        assert grid.clipped(scaled) == cover[block].shape
        assert grid.is_edge(scaled) == (grid.clipped(scaled) != grid.chunk)
        coords = np.stack(np.indices(cover.shape), axis=-1)[block].reshape(-1, len(grid.extent))
        assert (grid.scaled(coords.astype(np.uint64)) == np.array(scaled, np.uint64)).all()
    assert (cover == 1).all()
    assert grid.size == len(list(np.ndindex(*grid.counts)))
    assert not grid.holds(grid.counts)


def test_grids_that_are_refused() -> None:
    with pytest.raises(BadRequest, match="chunk must have 2 dimensions, not 1"):
        Grid((4, 4), (2,))
    with pytest.raises(BadRequest, match="Dimension 1 of the chunk"):
        Grid((4, 4), (2, 0))
    assert not Grid((4, 4), (2, 2)).holds((0,))
    assert not Grid((4, 4), (2, 2)).holds((0, -1))


@given(st.data())
def test_pages_are_the_selection_in_order(data: st.DataObject) -> None:
    selection = data.draw(any_selections())
    grid = data.draw(grids(selection.extent))
    limit = data.draw(st.integers(1, 40))
    places = []
    for page in pages(selection, grid, limit):
        assert 0 < page.size <= limit
        assert page.extent == selection.extent
        places += iterate(page)
    assert places == iterate(selection)


@given(st.data())
def test_pages_of_boxes(data: st.DataObject) -> None:
    selection = data.draw(extents(1, 3, least=4).flatmap(boxes))
    limit = data.draw(st.integers(1, max(1, selection.size - 1)))
    found = list(pages(selection, Grid(selection.extent, selection.extent), limit))
    assert all(0 < page.size <= limit for page in found)
    assert [place for page in found for place in iterate(page)] == iterate(selection)


def test_pages_end_at_chunk_boundaries() -> None:
    grid = Grid((100, 10), (8, 10))
    found = list(pages(Orthogonal.box((100, 10), (3, 0), (60, 10)), grid, 200))
    ends = [page.bounds() for page in found]
    assert [(low[0], high[0]) for low, high in filter(None, ends)] == [(3, 16), (16, 32), (32, 48), (48, 60)]


def test_pages_of_more_than_memory_come_one_by_one() -> None:
    extent = (2**40, 2**30)
    pieces = pages(
        Orthogonal(extent, (StridedSpan(0, 2, 2**39), StridedSpan.range(0, 2**30))),
        Grid(extent, (4, 4)),
        2**20,
    )
    first, second = next(pieces), next(pieces)
    assert first.bounds() == ((0, 0), (1, 2**20))
    assert second.bounds() == ((0, 2**20), (1, 2**21))


def test_scalar_and_refused() -> None:
    scalar = Orthogonal.all(())
    assert list(pages(scalar, Grid((), ()), 1)) == [scalar]
    with pytest.raises(BadRequest, match="at least one"):
        list(pages(scalar, Grid((), ()), 0))


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
    with pytest.raises(Corrupt, match="reaches 8 in dimension 0; its dataset ends at 7"):
        ordered(selection, (7,))
    with pytest.raises(Corrupt, match="has 1 dimensions; its dataset has 2"):
        ordered(selection, (8, 8))


def test_too_many_single_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (virtual_plan, unlimited_selection):
        monkeypatch.setattr(module, "MAX_LISTED", 7)
    with pytest.raises(TooLarge, match="selection has 8 elements"):
        ordered(blocks(((0, 0), (1, 1)), ((1, 2), (2, 3))), (5, 5))
    with pytest.raises(TooLarge, match="has 8 blocks"):
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
    with pytest.raises(Corrupt, match="has 1 dimensions; its dataset has 2"):
        bounds_of(Regular((StridedSpan(0, 1, 1, 1),)), 2)
    with pytest.raises(Corrupt, match="a dataset ends at"):
        end_of_slices(StridedSpan(0, 2**62, UNLIMITED, 1), 2**40)
    assert bounds_of(PointList(np.array([[3, 1], [0, 7]], np.uint64)), 2) == (4, 8)
    assert bounds_of(blocks(((0, 0), (1, 1)), ((1, 2), (2, 3))), 2) == (3, 4)
