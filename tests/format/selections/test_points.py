"""Point selections against plain lists."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import BadRequest
from hsparse.format.selections.points import Points
from tests.format.selection_strategies import extents, iterate, points

ANY = extents().flatmap(points)


@given(ANY)
def test_iteration(selection: Points) -> None:
    places = iterate(selection)
    array = np.arange(math.prod(selection.extent)).reshape(selection.extent)
    assert selection.size == len(places)
    assert selection.shape == (len(places),)
    assert selection.offsets().tolist() == [int(array[place]) for place in places]
    assert array[selection.index()].ravel().tolist() == selection.offsets().tolist()
    if places:
        low, high = map(tuple, (np.min(places, axis=0, initial=9), np.max(places, axis=0, initial=0) + 1))
        assert selection.bounds() == (low, high)
    else:
        assert selection.bounds() is None


@given(st.data())
def test_clip_and_translate(data: st.DataObject) -> None:
    extent = data.draw(extents())
    selection = data.draw(points(extent))
    start = [data.draw(st.integers(0, length)) for length in extent]
    stop = [data.draw(st.integers(0, length)) for length in extent]
    clipped = selection.clip(start, stop)
    inside = [
        p for p in iterate(selection) if all(a <= i < b for a, i, b in zip(start, p, stop, strict=True))
    ]
    assert iterate(clipped) == inside
    wider = tuple(length + 5 for length in extent)
    moved = clipped.translate((5,) * len(extent), wider)
    assert iterate(moved) == [tuple(i + 5 for i in place) for place in inside]
    assert moved.translate((-5,) * len(extent), extent) == clipped


def test_refused() -> None:
    with pytest.raises(BadRequest, match="Coordinate 3 of dimension 1 is not below its extent 3"):
        Points((2, 3), [[0, 3]])
    with pytest.raises(BadRequest, match="2 coordinates each"):
        Points((2, 3), [[0]])
    with pytest.raises(BadRequest, match="negative"):
        Points((2, 3), [[0, -1]])
    with pytest.raises(BadRequest, match="shape"):
        Points((2, 3), [[0, 1]], (2,))
    with pytest.raises(BadRequest, match="not below"):
        Points((4,), [[0]]).translate((-1,), (4,))


def test_equality() -> None:
    assert Points((2,), [[0], [1]]) == Points((2,), [0, 1])
    assert Points((2,), [0, 1]) != Points((2,), [1, 0])
    assert Points((2,), [0, 1]) != Points((2,), [0, 1], (2, 1))
    assert Points((2,), [0, 1]) != 3
