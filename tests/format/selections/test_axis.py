"""One axis against the list of its indices."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import BadRequest
from hsparse.format.selections import orthogonal as ax
from hsparse.format.selections.orthogonal import Axis, Span
from tests.format.selection_strategies import axes, list_axis

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
