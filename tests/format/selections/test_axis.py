"""One axis against the list of its indices."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import BadRequest
from hsparse.format.selections import orthogonal as ax
from hsparse.format.selections.orthogonal import EMPTY_SPAN, Axis, Span
from tests.format.selection_strategies import axes, list_axis, spans

LENGTH = 24
SPANS = spans(LENGTH)
AXES = axes(LENGTH)
UNIQUE = axes(LENGTH, unique=True)


@given(SPANS)
def test_span_matches_its_indices(span: Span) -> None:
    listed = list_axis(span)
    assert span.size == len(listed)
    assert ax.bounds(span) == ((min(listed), max(listed) + 1) if listed else None)
    cut = span.as_slice()
    if cut is None:
        assert span.block > 1
    else:
        assert list(range(100))[cut] == listed


@given(SPANS, st.lists(st.integers(0, LENGTH + 2), max_size=5))
def test_below_counts(span: Span, limits: list[int]) -> None:
    expected = [sum(index < limit for index in list_axis(span)) for limit in limits]
    assert span.below(np.array(limits, np.int64)).tolist() == expected


@given(AXES)
def test_indices(axis: Axis) -> None:
    assert ax.indices(axis).tolist() == list_axis(axis)
    assert ax.indices(axis).dtype == np.uint64


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


@given(AXES, AXES)
def test_same(one: Axis, other: Axis) -> None:
    assert ax.same(one, other) == (list_axis(one) == list_axis(other))
    assert ax.same(one, np.array(list_axis(one), np.uint64))


@given(AXES, st.integers(0, LENGTH))
def test_is_whole(axis: Axis, length: int) -> None:
    assert ax.is_whole(axis, length) == (list_axis(axis) == list(range(length)))


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
        (Span(0, 1, 1, 11), "ends at 11"),
        (Span(8, 2, 3), "ends at 13"),
        (Span(0, 2, 2, 3), "overlap"),
        (Span(-1), "negative"),
        (Span(0, 0), "stride"),
        (np.array([1, 10]), "Index 10"),
        (np.array([1, -1]), "negative"),
        (np.array([0.5]), "integers"),
        (np.array([[1]]), "flat"),
    ],
)
def test_refused(axis: Axis, words: str) -> None:
    with pytest.raises(BadRequest, match=words) as caught:
        ax.check_axis(axis, 3, 10)
    assert "imension 3" in caught.value.message


def test_nothing_fits_an_empty_dimension() -> None:
    assert ax.check_axis(EMPTY_SPAN, 0, 0) == EMPTY_SPAN
    assert Span.range(3, 3) == EMPTY_SPAN
