"""Pages must follow each other in the selection's own order and stay within their size."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import BadRequest
from hsparse.format.plan.grid import Grid, pages
from hsparse.format.selections.orthogonal import Orthogonal, Span
from tests.format.selection_strategies import any_selections, boxes, extents, grids, iterate


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
    pieces = pages(Orthogonal(extent, (Span(0, 2, 2**39), Span.range(0, 2**30))), Grid(extent, (4, 4)), 2**20)
    first, second = next(pieces), next(pieces)
    assert first.bounds() == ((0, 0), (1, 2**20))
    assert second.bounds() == ((0, 2**20), (1, 2**21))


def test_scalar_and_refused() -> None:
    scalar = Orthogonal.all(())
    assert list(pages(scalar, Grid((), ()), 1)) == [scalar]
    with pytest.raises(BadRequest, match="at least one"):
        list(pages(scalar, Grid((), ()), 0))
