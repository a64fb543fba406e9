"""The chunk grid against plain division."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import BadRequest
from hsparse.format.plan.grid import Grid
from tests.format.selection_strategies import extents, grids


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


def test_refused() -> None:
    with pytest.raises(BadRequest, match="chunk has 1 dimensions"):
        Grid((4, 4), (2,))
    with pytest.raises(BadRequest, match="Dimension 1 of the chunk"):
        Grid((4, 4), (2, 0))
    assert not Grid((4, 4), (2, 2)).holds((0,))
    assert not Grid((4, 4), (2, 2)).holds((0, -1))
