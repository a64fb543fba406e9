"""Columns of variable-length elements against lists of bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import BadRequest, TooLarge
from hsparse.model.vlen_array import VlenArray, ends, join_elements, runs_mask, take_elements, taken_sizes

PIECES = st.lists(st.binary(max_size=5), max_size=8)


@given(st.lists(PIECES, min_size=1, max_size=3), st.data())
def test_taking_from_several(parts: list[list[bytes]], data: st.DataObject) -> None:
    model = [piece for part in parts for piece in part]
    places = st.integers(0, len(model) - 1) if model else st.nothing()
    runs = st.tuples(places, st.integers(0, 4), st.sampled_from([0, 1])) if model else st.nothing()
    drawn = data.draw(st.lists(runs, max_size=6)) if model else []
    index = [min(at + step * i, len(model) - 1) for at, count, step in drawn for i in range(count)]
    arrays = [VlenArray.of(part) for part in parts]
    found = take_elements(arrays, np.array(index, np.intp))
    assert list(found) == [model[at] for at in index]
    sizes = taken_sizes(arrays, np.array(index, np.intp))
    assert sizes.tolist() == [len(model[at]) for at in index] == found.sizes.tolist()
    assert found.nbytes == found.offsets.nbytes + sum(map(len, found))


@given(st.lists(PIECES, min_size=1, max_size=4))
def test_joining(parts: list[list[bytes]]) -> None:
    found = join_elements([VlenArray.of(part) for part in parts])
    assert list(found) == [piece for part in parts for piece in part]
    assert found.shape == (found.size,)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=6), st.integers(0, 4))
def test_which_bytes_are_in_runs(pairs: list[tuple[int, int]], rest: int) -> None:
    """Runs may touch and be empty."""
    model: list[bool] = []
    begins = []
    for gap, size in pairs:
        model += [False] * gap
        begins.append(len(model))
        model += [True] * size
    model += [False] * rest
    sizes = np.array([size for _, size in pairs], np.int64)
    assert runs_mask(np.array(begins, np.int64), sizes, len(model)).tolist() == model


def test_indexing_like_numpy() -> None:
    array = VlenArray.of([bytes([n]) * n for n in range(12)], (3, 4))
    assert array[1:, ::2].shape == (2, 2)
    assert list(array[1:, ::2]) == [bytes([n]) * n for n in (4, 6, 8, 10)]
    assert list(array[2, 3]) == [bytes([11]) * 11]
    assert list(array.reshape((12,))[np.array([3, 1])]) == [b"\3\3\3", b"\1"]


def test_what_does_not_fit_together() -> None:
    with pytest.raises(BadRequest):
        VlenArray((3,), np.zeros(2, np.uint32), np.zeros(0, np.uint8))
    with pytest.raises(BadRequest):
        VlenArray((1,), np.array([0, 2], np.uint32), np.zeros(1, np.uint8))
    with pytest.raises(TooLarge):
        ends(np.array([2**31, 2**31]))
