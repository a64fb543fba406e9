"""Plans against numpy: shares must carry every element to its place, chunk by chunk."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import BadRequest, TooLarge
from hsparse.format.plan.chunk_plan import PlannedChunk, count_chunks, plan, selection_intersects
from hsparse.format.plan.grid import Grid
from hsparse.format.selections.boxes import Boxes
from hsparse.format.selections.orthogonal import Orthogonal
from hsparse.format.selections.points import Points, gather
from tests.format.selection_strategies import any_selections, extents, grids, orthogonals


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


def test_refused() -> None:
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
