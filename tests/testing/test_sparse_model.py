"""Tests of `SparseModel`, the reference model with which stateful tests compare a dataset."""

from __future__ import annotations

import numpy as np
import pytest

from tests.testing.sparse_model import SparseModel


@pytest.fixture
def model() -> SparseModel:
    return SparseModel((2, 3), np.dtype(">i2"), b"\x00\x07")


def test_the_last_of_a_repeated_point_wins(model: SparseModel) -> None:
    model.write([(1, 2), (0, 0), (1, 2)], np.array([1, 2, 3], ">i2"))
    assert model.defined() == [(0, 0), (1, 2)]
    assert model.read().tolist() == [2, 7, 7, 7, 7, 3]
    assert model.read([(1, 2), (0, 1)]).tolist() == [3, 7]


def test_fill_values_are_defined_unless_dropped(model: SparseModel) -> None:
    model.write([(0, 0), (0, 1)], np.array([7, 8], ">i2"), drop_fill=True)
    assert model.defined() == [(0, 1)]
    model.write([(0, 1)], np.array([7], ">i2"), drop_fill=True)
    assert model.read([(0, 1)]).tolist() == [8]
    model.write([(0, 0)], np.array([7], ">i2"))
    assert model.defined([(0, 0), (1, 1), (0, 0)]) == [(0, 0)]


def test_what_is_erased_or_shrunk_away_is_undefined(model: SparseModel) -> None:
    model.write([(0, 0), (0, 2), (1, 0)], np.array([5], ">i2"))
    model.erase([(0, 0), (1, 1)])
    assert model.defined() == [(0, 2), (1, 0)]
    model.resize((3, 2))
    model.resize((3, 3))
    assert model.defined() == [(1, 0)]


def test_either_bound_moves() -> None:
    model = SparseModel((3,), np.dtype(">i2"), lower=(-2,))
    model.write(model.coords, np.array([1, 2, 3], ">i2"))
    model.move(((-1, 2),))
    model.move(((-2, 2),))
    assert (model.lower, model.extent, model.defined()) == ((-2,), (4,), [(-1,), (0,)])
    assert model.copy().read().tolist() == [0, 2, 3, 0]


def test_a_copy_is_its_own(model: SparseModel) -> None:
    other = model.copy()
    other.write([(0, 0)], np.array([1], ">i2"))
    assert model.defined() == []


def test_what_lies_outside_is_refused(model: SparseModel) -> None:
    with pytest.raises(AssertionError, match="extent"):
        model.write([(2, 0)], np.array([1], ">i2"))
