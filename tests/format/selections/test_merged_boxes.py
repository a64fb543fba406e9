"""Sets of offsets as hyperslabs: the same set, regular when it is, and as few boxes as merging gives."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.format.selections import selection_encoding
from hsparse.format.selections.boxes import Boxes
from hsparse.format.selections.orthogonal import Orthogonal, Span
from hsparse.format.selections.selection_encoding import count_mergers, find_regular, merge, row_runs
from tests.format.selection_strategies import extents, iterate, offset_sets, spans


@given(st.data())
def test_runs_and_boxes_are_the_set(data: st.DataObject) -> None:
    extent = data.draw(extents(1, 4))
    offsets = data.draw(offset_sets(extent))
    if not len(offsets):
        return
    runs = row_runs(offsets, extent[-1])
    listed = [
        b + i for b, n in zip(runs.begins.tolist(), runs.lengths.tolist(), strict=True) for i in range(n)
    ]
    assert listed == offsets.tolist()
    assert (runs.begins // extent[-1] == (runs.begins + runs.lengths - 1) // extent[-1]).all()
    starts, stops = merge(runs, extent)
    assert Boxes(extent, starts, stops).offsets().tolist() == offsets.tolist()
    mergers = count_mergers(runs, extent, 10**6)
    assert len(runs.begins) - mergers <= len(starts) <= len(runs.begins)
    with pytest.MonkeyPatch.context() as patch:  # looked up and searched for are as many
        for dense in (0, 2**40):
            patch.setattr(selection_encoding, "DENSE", dense)
            assert count_mergers(runs, extent, 10**6) == mergers
    regular = find_regular(runs, extent)
    if regular is not None:
        assert Orthogonal(extent, regular).offsets().tolist() == offsets.tolist()


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


def test_boxes_merge_over_rows_and_planes() -> None:
    cube = np.zeros((4, 6, 8), np.bool_)
    cube[1:3, 2:5, 3:7] = True
    cube[3, 0, 0] = True
    offsets = np.flatnonzero(cube).astype(np.uint32)
    starts, stops = merge(row_runs(offsets, 8), (4, 6, 8))
    assert starts.tolist() == [[1, 2, 3], [3, 0, 0]]
    assert stops.tolist() == [[3, 5, 7], [4, 1, 1]]


def test_rows_of_different_planes_do_not_merge() -> None:
    offsets = np.array([20, 21, 30, 31], np.uint32)  # last row of plane 0, first row of plane 1
    starts, stops = merge(row_runs(offsets, 10), (2, 3, 10))
    assert list(zip(starts.tolist(), stops.tolist(), strict=True)) == [
        ([0, 2, 0], [1, 3, 2]),
        ([1, 0, 0], [2, 1, 2]),
    ]


@pytest.mark.parametrize("dims", [(1024, 1024), (65536, 65535)])
def test_a_tall_column_is_one_box(dims: tuple[int, int]) -> None:
    offsets = (np.arange(dims[0], dtype=np.uint64) * np.uint64(dims[1]) + np.uint64(dims[1] - 1)).astype(
        np.uint32
    )
    runs = row_runs(offsets, dims[1])
    starts, stops = merge(runs, dims)
    assert (starts.tolist(), stops.tolist()) == ([[0, dims[1] - 1]], [list(dims)])
    assert find_regular(runs, dims) == (Span.range(0, dims[0]), Span.range(dims[1] - 1, dims[1]))
    assert iterate(Orthogonal(dims, find_regular(runs, dims) or ()))[-1] == (dims[0] - 1, dims[1] - 1)
