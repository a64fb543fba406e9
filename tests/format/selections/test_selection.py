"""What all selections have in common: reading and writing dense arrays, and looking up sparse offsets."""

from __future__ import annotations

import dataclasses

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hsparse.format.selections.orthogonal import Orthogonal
from hsparse.format.selections.points import Points, Selection, ascending, coords_at, gather, lookup, scatter
from tests.format.selection_strategies import (
    any_selections,
    extents,
    iterate,
    offset_sets,
    selections,
)


@given(any_selections())
def test_gather_and_scatter(selection: Selection) -> None:
    places = iterate(selection)
    array = np.arange(int(np.prod(selection.extent))).reshape(selection.extent)
    found = gather(array, selection)
    assert found.shape == selection.shape
    assert found.ravel().tolist() == [int(array[place]) for place in places]
    values = -1 - np.arange(selection.size).reshape(selection.shape)
    expected = array.copy()
    for place, value in zip(places, values.ravel(), strict=True):
        expected[place] = value
    scatter(array, selection, values)
    assert array.tolist() == expected.tolist()
    scatter(array, selection, np.array(7))
    assert set(gather(array, selection).ravel().tolist()) <= {7}


@given(st.data())
def test_lookup(data: st.DataObject) -> None:
    extent = data.draw(extents())
    selection = data.draw(selections(extent))
    offsets = data.draw(offset_sets(extent))
    found, place = lookup(selection, offsets)
    wanted = selection.offsets()
    assert found.tolist() == np.isin(wanted, offsets).tolist()
    assert offsets[place[found]].tolist() == wanted[found].tolist()
    assert len(place) == selection.size


@given(any_selections())
def test_fields_rebuild_the_selection(selection: Selection) -> None:
    fields = {field.name: getattr(selection, field.name) for field in dataclasses.fields(selection)}
    assert type(selection)(**fields) == selection


def test_scalars() -> None:
    array = np.array(5)
    for selection in (Orthogonal.all(()), Points((), np.zeros((1, 0), np.uint64), ())):
        assert gather(array, selection).shape == ()
        scatter(array, selection, np.array(6))
        assert array == 6
        assert gather(array, selection) == 6


@given(any_selections(), st.data())
def test_coordinates_at_positions_are_those_of_the_iteration(
    selection: Selection, data: st.DataObject
) -> None:
    some = st.lists(st.integers(0, selection.size - 1)) if selection.size else st.just([])
    positions = np.array(data.draw(some), np.uint32)
    np.testing.assert_array_equal(coords_at(selection, positions), selection.coords()[positions])


@given(any_selections())
def test_ascending_has_the_same_elements_in_order(selection: Selection) -> None:
    expected = np.unique(selection.coords(), axis=0)
    np.testing.assert_array_equal(ascending(selection).coords(), expected.reshape(-1, len(selection.extent)))
