"""Places, whole axes and boxes as selections of an extent."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hsparse.errors import BadRequest, TooLarge
from hsparse.format.selections import orthogonal as ax
from hsparse.format.selections.boxes import Boxes, overlapping
from hsparse.format.selections.extent import as_indices, check_extent, widen
from hsparse.format.selections.orthogonal import Axis, Orthogonal, StridedSpan
from hsparse.format.selections.points import Points, Selection, ascending, gather, scatter
from hsparse.format.selections.selection_encoding import find_regular, merge, row_runs
from tests.format.selection_strategies import (
    any_selections,
    axes,
    boxes,
    extents,
    iterate,
    list_axis,
    offset_sets,
    orthogonals,
    points,
    spans,
)

LENGTH = 24
AXES = axes(LENGTH)
UNIQUE = axes(LENGTH, unique=True)


@given(AXES, st.integers(0, LENGTH), st.integers(0, LENGTH))
def test_take_and_clip(axis: Axis, a: int, b: int) -> None:
    listed = list_axis(axis)
    first, last = min(a, len(listed)), min(b, len(listed))
    assert list_axis(ax.take(axis, first, last)) == listed[first:last]
    assert list_axis(ax.clip(axis, a, b)) == [index for index in listed if a <= index < b]


@given(AXES, st.integers(-3, 3))
def test_translate(axis: Axis, step: int) -> None:
    listed = list_axis(axis)
    if not listed or min(listed) + step >= 0:
        assert list_axis(ax.translate(axis, step)) == [index + step for index in listed]


@given(AXES, st.sampled_from([np.uint32, np.uint64]))
def test_contains(axis: Axis, kind: type[np.unsignedinteger]) -> None:
    values = np.arange(LENGTH, dtype=kind)
    assert np.flatnonzero(ax.contains(axis, values)).tolist() == sorted(set(list_axis(axis)))


@given(UNIQUE)
def test_positions(axis: Axis) -> None:
    listed = list_axis(axis)
    assert ax.positions(axis, np.array(sorted(listed), np.uint32)).tolist() == [
        listed.index(index) for index in sorted(listed)
    ]


def test_lists_too_far_apart_for_a_table() -> None:
    far = np.array([5 << 40, 3, 1 << 39], np.uint64)
    values = np.array([0, 3, 1 << 39, 5 << 40], np.uint64)
    assert ax.contains(far, values).tolist() == [False, True, True, True]
    assert ax.positions(far, values[1:]).tolist() == [1, 2, 0]


@given(AXES, st.integers(0, LENGTH), st.integers(0, LENGTH))
def test_covers(axis: Axis, start: int, stop: int) -> None:
    assert ax.covers(axis, start, stop) == (set(list_axis(axis)) == set(range(start, stop)))


@given(AXES)
def test_as_span_keeps_the_indices(axis: Axis) -> None:
    span = ax.as_span(axis)
    if span is not None:
        assert list_axis(span) == list_axis(axis)
    else:
        listed = list_axis(axis)
        steps = {b - a for a, b in itertools.pairwise(listed)}
        assert len(steps) > 1 or max(steps) <= 0


@pytest.mark.parametrize(
    ("axis", "words"),
    [
        (StridedSpan(0, 1, 1, 11), "ends at 11"),
        (StridedSpan(8, 2, 3), "ends at 13"),
        (StridedSpan(0, 2, 2, 3), "overlap"),
        (StridedSpan(-1), "negative"),
        (StridedSpan(0, 0), "stride"),
        (np.array([1, 10]), "Index 10"),
        (np.array([1, -1]), "negative"),
        (np.array([0.5]), "integers"),
        (np.array([[1]]), "flat"),
    ],
)
def test_axes_that_are_refused(axis: Axis, words: str) -> None:
    with pytest.raises(BadRequest, match=words) as caught:
        ax.check_axis(axis, 3, 10)
    assert "imension 3" in caught.value.message


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
def test_boxes_that_are_refused(starts: list[list[int]], stops: list[list[int]], words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        Boxes((4, 6), np.array(starts), np.array(stops))


def test_equality_of_boxes() -> None:
    one = Boxes((4,), [[0], [2]], [[1], [4]])
    assert one == Boxes((4,), [[0], [2]], [[1], [4]])
    assert one != Boxes((4,), [[0], [2]], [[1], [3]])
    assert one != 3


@given(st.data())
def test_regular_hyperslabs_are_found(data: st.DataObject) -> None:
    extent = data.draw(extents(1, 4))
    slab = Orthogonal(extent, tuple(data.draw(spans(length)) for length in extent))
    if slab.size:
        found = find_regular(row_runs(slab.offsets().astype(np.uint32), extent[-1]), extent)
        assert found is not None
        assert Orthogonal(extent, found) == slab
        starts, _ = merge(row_runs(slab.offsets().astype(np.uint32), extent[-1]), extent)
        assert len(starts) == math.prod(1 if span.contiguous else span.count for span in found)


def test_widen() -> None:
    offsets = np.array([1], np.uint32)
    assert widen(offsets, (2**16, 2**16 - 1)) is offsets
    assert widen(offsets, (2**16, 2**16)).dtype == np.uint64
    with pytest.raises(TooLarge, match="2\\^64"):
        widen(offsets, (2**40, 2**40))


def test_check_extent() -> None:
    assert check_extent([np.uint64(3), 0]) == (3, 0)
    with pytest.raises(BadRequest, match="Dimension 1"):
        check_extent([3, -1])
    with pytest.raises(BadRequest, match="33 dimensions"):
        check_extent([1] * 33)


def test_as_indices() -> None:
    given = np.array([1], np.uint64)
    assert as_indices(given, "indices") is given
    assert as_indices([], "indices").dtype == np.uint64
    with pytest.raises(BadRequest, match="corners must not be negative, but one is -4"):
        as_indices([1, -4], "corners")
    with pytest.raises(BadRequest, match="corners must be non-negative integers"):
        as_indices(["a"], "corners")


ORTHOGONAL_ANY = extents(0, 3, least=0).flatmap(orthogonals)


@given(ORTHOGONAL_ANY)
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


@pytest.mark.parametrize("selections", [boxes, orthogonals, points])
@given(data=st.data())
def test_clip_and_translate(selections: Any, data: st.DataObject) -> None:
    extent = data.draw(extents())
    selection = data.draw(selections(extent))
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


def test_orthogonal_selections_that_are_refused() -> None:
    with pytest.raises(BadRequest, match="Dimension 1: the selection ends at 5"):
        Orthogonal.box((4, 4), (0, 0), (4, 5))
    with pytest.raises(BadRequest, match="must have 2 dimensions, not 1"):
        Orthogonal((4, 4), (StridedSpan(0),))
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
    assert listed == Orthogonal((4,), (StridedSpan(0, 2, 2),))
    assert listed != Orthogonal((4,), (np.array([2, 0], np.uint64),))
    assert listed != Orthogonal((5,), (StridedSpan(0, 2, 2),))
    assert listed != 3


POINTS_ANY = extents().flatmap(points)


@given(POINTS_ANY)
def test_iteration_over_points(selection: Points) -> None:
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


def test_points_that_are_refused() -> None:
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


def test_equality_is_of_points_in_order() -> None:
    assert Points((2,), [[0], [1]]) == Points((2,), [0, 1])
    assert Points((2,), [0, 1]) != Points((2,), [1, 0])
    assert Points((2,), [0, 1]) != Points((2,), [0, 1], (2, 1))
    assert Points((2,), [0, 1]) != 3


def test_scalars() -> None:
    array = np.array(5)
    for selection in (Orthogonal.all(()), Points((), np.zeros((1, 0), np.uint64), ())):
        assert gather(array, selection).shape == ()
        scatter(array, selection, np.array(6))
        assert array == 6
        assert gather(array, selection) == 6


@given(any_selections())
def test_ascending_has_the_same_elements_in_order(selection: Selection) -> None:
    expected = np.unique(selection.coords(), axis=0)
    np.testing.assert_array_equal(ascending(selection).coords(), expected.reshape(-1, len(selection.extent)))


@st.composite
def some_boxes(draw: st.DrawFn) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    rank = draw(st.integers(1, 3))
    corner = st.lists(st.integers(0, 12), min_size=rank, max_size=rank)
    lengths = st.lists(st.integers(1, 4), min_size=rank, max_size=rank)
    found = draw(st.lists(st.tuples(corner, lengths), max_size=10))
    starts = np.array([low for low, _ in found], np.uint64).reshape(len(found), rank)
    return starts, starts + np.array([size for _, size in found], np.uint64).reshape(len(found), rank)


# small extents are searched by runs, those with more elements than 64 bits count by a sweep
SMALL, HUGE = 20, 2**40


@given(some_boxes(), st.sampled_from([SMALL, HUGE]))
def test_finds_a_pair_exactly_when_there_is_one(
    corners: tuple[NDArray[np.uint64], NDArray[np.uint64]], length: int
) -> None:
    starts, stops = corners
    expected = {
        (a, b)
        for a, b in itertools.combinations(range(len(starts)), 2)
        if ((starts[a] < stops[b]) & (starts[b] < stops[a])).all()
    }
    pair = overlapping(starts, stops, (length,) * starts.shape[1])
    if pair is None:
        assert not expected
    else:
        assert tuple(sorted(pair)) in expected


def test_many_boxes_in_blocks_of_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hsparse.format.selections.boxes.PAIRS_AT_ONCE", 16)
    # a staircase that no gap splits: every box shares rows with the next and columns with the one before
    steps = np.arange(200, dtype=np.uint64)
    starts = np.stack((steps * np.uint64(2), steps % np.uint64(2) * np.uint64(3)), axis=1)
    stops = starts + np.uint64(3)
    assert overlapping(starts, stops, (HUGE, HUGE)) is None
    starts[150, 1], stops[151, 1] = 2, 4
    assert overlapping(starts, stops, (HUGE, HUGE)) is None
    stops[150, 1] = 4
    pair = overlapping(starts, stops, (HUGE, HUGE))
    assert pair is not None
    assert 150 in pair


def test_refuses_what_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hsparse.format.selections.boxes.MAX_PAIRS", 3)
    steps = np.arange(50, dtype=np.uint64)
    starts = np.stack((steps, steps % np.uint64(2) * np.uint64(20)), axis=1)
    with pytest.raises(TooLarge, match="50 boxes"):
        overlapping(starts, starts + np.uint64(15), (HUGE, HUGE))
