"""Orthogonal selections against numpy and plain lists."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import BadRequest, TooLarge
from hsparse.format.selections.orthogonal import Orthogonal, Span
from tests.format.selection_strategies import extents, iterate, orthogonals

ANY = extents(0, 3, least=0).flatmap(orthogonals)


@given(ANY)
def test_iteration(selection: Orthogonal) -> None:
    expected = iterate(selection)
    array = np.arange(math.prod(selection.extent)).reshape(selection.extent)
    assert selection.size == len(expected) == math.prod(selection.shape)
    assert [tuple(row) for row in selection.coords().tolist()] == expected
    assert selection.offsets().tolist() == [int(array[place]) for place in expected]
    found = array[selection.index()]
    assert found.shape == selection.shape
    assert found.ravel().tolist() == selection.offsets().tolist()


@given(st.data())
def test_order_of(data: st.DataObject) -> None:
    selection = data.draw(orthogonals(data.draw(extents()), unique=True))
    offsets = selection.offsets()
    ascending = np.sort(offsets).astype(np.uint32)
    assert offsets[selection.order_of(ascending)].tolist() == ascending.tolist()


@given(st.data())
def test_clip_and_translate(data: st.DataObject) -> None:
    extent = data.draw(extents())
    selection = data.draw(orthogonals(extent))
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
    with pytest.raises(BadRequest, match="Dimension 1: the selection ends at 5"):
        Orthogonal.box((4, 4), (0, 0), (4, 5))
    with pytest.raises(BadRequest, match="1 dimensions, the extent 2"):
        Orthogonal((4, 4), (Span(0),))
    with pytest.raises(BadRequest, match="at most 32"):
        Orthogonal.all((1,) * 33)
    with pytest.raises(BadRequest, match="Dimension 0"):
        Orthogonal.all((2**63,))
    with pytest.raises(BadRequest, match="scalar"):
        Orthogonal.none(())
    with pytest.raises(BadRequest, match="beyond"):
        Orthogonal.all((4,)).translate((1,), (4,))
    with pytest.raises(BadRequest, match="negative"):
        Orthogonal.all((4,)).translate((-1,), (4,))
    with pytest.raises(TooLarge, match="2\\^64"):
        Orthogonal.all((2**62, 2**62)).offsets()


def test_equality_is_of_elements() -> None:
    listed = Orthogonal((4,), (np.array([0, 2], np.uint64),))
    assert listed == Orthogonal((4,), (Span(0, 2, 2),))
    assert listed != Orthogonal((4,), (np.array([2, 0], np.uint64),))
    assert listed != Orthogonal((5,), (Span(0, 2, 2),))
    assert listed != 3
