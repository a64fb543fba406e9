"""Partial results: merged in any parts they are those of all elements, as numpy and exact fractions have them."""

from __future__ import annotations

import math
import tracemalloc
from fractions import Fraction
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hsparse.errors import Unsupported
from hsparse.format.reductions import partials
from hsparse.format.reductions.partials import (
    LIMB,
    Partials,
    count_positions,
    reduce_array,
    reduce_positions,
    reduction_bytes,
)
from hsparse.format.reductions.reduction import Reduction

COLUMNS = ("nonzero", "total", "squares", "least", "greatest")
TYPES = ["?", "i1", ">i2", "u4", "i8", "u8", "f2", ">f4", "f8"]


def numbers(kind: str, count: int, rng: np.random.Generator) -> NDArray[Any]:
    dtype = np.dtype(kind)
    if dtype.kind == "f":
        return (rng.standard_normal(count) * 10.0 ** rng.integers(-3, 4, count)).astype(dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, count).astype(dtype)
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, count, dtype.newbyteorder("="), endpoint=True).astype(dtype)


def exact_sums(found: Partials) -> list[int]:
    return [(high << LIMB) + low for high, low in zip(*found.total.tolist(), strict=True)]


def check(found: Partials, places: NDArray[Any], values: NDArray[Any], size: int) -> None:
    """Compare with sums of exact fractions, place by place."""
    assert found.places is None
    for place in range(size):
        some = values[places == place]
        exact = [Fraction(value) for value in some.tolist()]
        assert found.count[place] == len(some)
        assert found.nonzero[place] == np.count_nonzero(some)
        if values.dtype.kind == "f":
            bound = len(some) * 2.0**-53 * float(sum(map(abs, exact)))
            assert abs(Fraction(found.sums()[place]) - sum(exact)) <= bound
        else:
            assert exact_sums(found)[place] == sum(some.tolist())
        if not len(some):
            assert found.squares[place] == 0
            continue
        mean = sum(exact) / len(exact)
        squares = float(sum((value - mean) ** 2 for value in exact))
        assert math.isclose(
            found.squares[place], squares, rel_tol=1e-9, abs_tol=1e-18 * float(mean) ** 2 + 1e-30
        )
        assert (found.least[place], found.greatest[place]) == (some.min(), some.max())


@pytest.mark.parametrize("kind", TYPES)
@given(data=st.data())
def test_parts_in_any_order_merge_into_the_whole(kind: str, data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    size, count = data.draw(st.integers(1, 40)), data.draw(st.integers(0, 200))
    places, values = rng.integers(0, size, count), numbers(kind, count, rng)
    whole = Partials.empty(size, values.dtype, COLUMNS)
    for some in np.array_split(rng.permutation(count), data.draw(st.integers(1, 20))):
        part = Partials.of(places[some], values[some], size, COLUMNS)
        whole.merge(part.compact() if data.draw(st.booleans()) else part)
    check(whole, places, values, size)


@pytest.mark.parametrize("kind", TYPES)
def test_rows_of_a_table(kind: str) -> None:
    rng = np.random.default_rng(1)
    values = numbers(kind, 300, rng).reshape(20, 15)
    found = Partials.of_rows(values, COLUMNS)
    check(found, np.repeat(np.arange(20), 15), values.reshape(-1), 20)


def test_places_without_a_group_are_left_out() -> None:
    found = Partials.of(np.array([-1, 1, -1, 0]), np.array([100, 2, 100, 3]), 2, ("total",))
    assert exact_sums(found) == [3, 2]


def test_sums_are_compensated_between_parts() -> None:
    whole = Partials.empty(1, np.dtype(float), ("total",))
    for value in [1e16, 1.0, 1.0, -1e16]:
        whole.merge(Partials.of(np.zeros(1, np.int64), np.array([value]), 1, ("total",)))
    assert whole.sums().tolist() == [2.0]


@given(data=st.data())
def test_boxes_reduce_as_numpy_does(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    shape = tuple(data.draw(st.lists(st.integers(1, 5), max_size=4)))
    axes = tuple(dim for dim in range(len(shape)) if data.draw(st.booleans()))
    values = rng.integers(-9, 9, shape)
    reduction = Reduction(shape, axes, ("total",))
    expected = values.sum(axis=axes)
    dense = reduce_array(values, reduction, None)
    assert exact_sums(dense) == expected.reshape(-1).tolist()
    there = np.flatnonzero(rng.integers(0, 2, values.size))
    some = reduce_positions(there.astype(np.uint32), values.reshape(-1)[there], shape, reduction, None)
    whole = Partials.empty(reduction.places, values.dtype, ("total",))
    whole.merge(some)
    kept = np.zeros(values.size, values.dtype)
    kept[there] = values.reshape(-1)[there]
    assert exact_sums(whole) == kept.reshape(shape).sum(axis=axes).reshape(-1).tolist()


@given(data=st.data())
def test_large_boxes_reduce_in_parts(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    axes = tuple(dim for dim in range(len(shape)) if data.draw(st.booleans()))
    grouped = data.draw(st.sampled_from([-1, *axes]))
    reduction = Reduction(shape, axes, COLUMNS, grouped=grouped, groups=3)
    codes = None if grouped < 0 else rng.integers(-1, 3, shape[grouped])
    values = rng.integers(-9, 9, shape)
    there = np.flatnonzero(rng.integers(0, 2, values.size)).astype(np.uint32)

    def reduced() -> list[Partials]:
        found = reduce_positions(there, values.reshape(-1)[there], shape, reduction, codes)
        whole = Partials.empty(reduction.places, values.dtype, COLUMNS)
        whole.merge(found)
        return [reduce_array(values, reduction, codes), whole]

    at_once = data.draw(st.integers(1, 8))
    with patch.object(partials, "REDUCED_AT_ONCE", at_once):
        parts = reduced()
    for part, whole in zip(parts, reduced(), strict=True):
        for column in ("count", "nonzero", "total", "least", "greatest"):
            assert getattr(part, column).tolist() == getattr(whole, column).tolist()
        assert np.allclose(part.squares, whole.squares)


def test_the_memory_of_a_reduction_does_not_grow_with_the_chunk() -> None:
    values = np.zeros((64, 2**20), np.uint8)
    reduction = Reduction(values.shape, (0, 1), COLUMNS)
    tracemalloc.start()
    try:
        reduce_array(values, reduction, None)
        assert tracemalloc.get_traced_memory()[1] <= reduction_bytes(values.size)
    finally:
        tracemalloc.stop()


def test_variable_length_elements_are_counted_alone() -> None:
    positions = np.array([0, 1, 5], np.uint64)
    assert count_positions(positions, (2, 3), Reduction((2, 3), (1,), ()), None).count.tolist() == [2, 1]
    with pytest.raises(Unsupported):
        count_positions(positions, (2, 3), Reduction((2, 3), (1,), ("total",)), None)
