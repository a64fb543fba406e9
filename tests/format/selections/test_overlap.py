"""Overlapping boxes against comparing all pairs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hsparse.errors import TooLarge
from hsparse.format.selections import boxes
from hsparse.format.selections.boxes import overlapping


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
    monkeypatch.setattr(boxes, "PAIRS_AT_ONCE", 16)
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
    monkeypatch.setattr(boxes, "MAX_PAIRS", 3)
    steps = np.arange(50, dtype=np.uint64)
    starts = np.stack((steps, steps % np.uint64(2) * np.uint64(20)), axis=1)
    with pytest.raises(TooLarge, match="50 boxes"):
        overlapping(starts, starts + np.uint64(15), (HUGE, HUGE))
