"""Unions of boxes against sets of coordinates."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import BadRequest
from hsparse.format.selections.boxes import Boxes
from tests.format.selection_strategies import boxes, extents, iterate, offset_sets

ANY = extents(1, 4).flatmap(boxes)


@given(ANY)
def test_iteration_is_row_major_over_the_union(selection: Boxes) -> None:
    places = iterate(selection)
    assert selection.size == len(places)
    assert selection.shape == (len(places),)
    assert [tuple(row) for row in selection.coords().tolist()] == places
    if places:
        assert selection.bounds() == (tuple(np.min(places, axis=0)), tuple(np.max(places, axis=0) + 1))
    else:
        assert selection.bounds() is None
    assert selection.is_all == (len(selection.extent) == 1 and len(places) == selection.extent[0])


@given(st.data())
def test_contains_and_order(data: st.DataObject) -> None:
    extent = data.draw(extents())
    selection = data.draw(boxes(extent))
    offsets = data.draw(offset_sets(extent))
    mask = selection.contains(offsets)
    assert mask.tolist() == np.isin(offsets, selection.offsets()).tolist()
    if mask.any():
        assert selection.offsets()[selection.order_of(offsets[mask])].tolist() == offsets[mask].tolist()


@given(st.data())
def test_clip_and_translate(data: st.DataObject) -> None:
    extent = data.draw(extents())
    selection = data.draw(boxes(extent))
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


def test_size_beyond_64_bits() -> None:
    selection = Boxes((2**40, 2**40), [[0, 0], [2**39, 0]], [[2**39, 2**40], [2**40, 2**40]])
    assert selection.size == 2**80


@pytest.mark.parametrize(
    ("starts", "stops", "words"),
    [
        ([[0, 0], [1, 1]], [[2, 2], [3, 3]], "overlap"),
        ([[0, 0]], [[2, 7]], "dimension 1, beyond the extent 6"),
        ([[0, 3]], [[2, 3]], "empty in dimension 1"),
        ([[0]], [[2]], "corners"),
        ([[0, -1]], [[2, 3]], "negative"),
    ],
)
def test_refused(starts: list[list[int]], stops: list[list[int]], words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        Boxes((4, 6), np.array(starts), np.array(stops))


def test_equality() -> None:
    one = Boxes((4,), [[0], [2]], [[1], [4]])
    assert one == Boxes((4,), [[0], [2]], [[1], [4]])
    assert one != Boxes((4,), [[0], [2]], [[1], [3]])
    assert one != 3
