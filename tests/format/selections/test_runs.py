"""Runs of boxes against the offsets of their elements."""

from __future__ import annotations

import numpy as np
from hypothesis import given

from hsparse.format.selections.boxes import Boxes
from hsparse.format.selections.extent import count_runs, expand, runs_of
from tests.format.selection_strategies import boxes, extents, iterate


@given(extents(1, 4).flatmap(boxes))
def test_runs_are_the_union(selection: Boxes) -> None:
    begins, ends = runs_of(selection.starts, selection.stops, selection.extent)
    array = np.arange(int(np.prod(selection.extent))).reshape(selection.extent)
    assert expand(begins, ends).tolist() == [int(array[place]) for place in iterate(selection)]
    assert (begins[1:] >= ends[:-1]).all()
    assert len(begins) == count_runs(selection.starts, selection.stops, selection.extent)


def test_whole_rows_are_one_run() -> None:
    begins, ends = runs_of(np.array([[1, 0, 0]], np.uint64), np.array([[3, 4, 5]], np.uint64), (9, 4, 5))
    assert (begins.tolist(), ends.tolist()) == ([20], [60])


def test_overlapping_boxes_give_overlapping_runs() -> None:
    starts, stops = np.array([[0, 0], [0, 1]], np.uint64), np.array([[1, 3], [1, 4]], np.uint64)
    begins, ends = runs_of(starts, stops, (2, 4))
    assert (begins.tolist(), ends.tolist()) == ([0, 1], [3, 4])
