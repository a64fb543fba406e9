"""Assignment and appending of scipy's arrays, sparse.COO, numpy's arrays and numbers, against numpy."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import sparse
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hsparse.client.connection import Connection
from hsparse.client.errors import InvalidValue, OutOfRange, WrongType
from hsparse.client.sparse_dataset import SparseDataset
from hsparse.format.selections.points import Boxes, Orthogonal, Points
from tests.client.access_ways import DatasetAccess, Model
from tests.client.key_strategies import (
    key_forms,
    keys_of,
    numpy_key,
    orthogonal_forms,
    orthogonal_keys_of,
    take_orthogonal,
)

SHAPE = (3, 4)
SHAPES: dict[int, tuple[int, ...]] = {1: (7,), 2: (3, 4), 3: (3, 2, 4), 4: (2, 3, 2, 3)}
CHUNKS: dict[int, tuple[int, ...]] = {1: (4,), 2: (2, 2), 3: (2, 2, 2), 4: (2, 2, 2, 2)}
DTYPES = ("i4", "f4", "?", "i1", ">f8", "u8", "u2", ">i2", "i8", "u1", "f8", "u4", ">u8", "i2", ">f4")
"""A type for each rank and way; scipy has no float16."""
FORMS = ("dense", "csr", "csc", "coo", "COO")
TOGETHER = 3
"""Assignments after which the state is read."""


def check_state(dataset: SparseDataset, values: np.ndarray, is_defined: np.ndarray) -> None:
    coords, found = dataset.read()
    there = np.zeros(values.shape, bool)
    there[tuple(coords.T.astype(int))] = True
    assert np.array_equal(there, is_defined)
    assert np.array_equal(values[tuple(coords.T.astype(int))], found)


@dataclass(frozen=True, slots=True)
class Assignment:
    """`x[key] = values`, or `x.oindex[key] = values`; the values are of a form, drawn by a seed."""

    key: Any
    orthogonal: bool
    form: str
    seed: int = 1

    def places(self, offsets: np.ndarray) -> Any:
        """Return the elements that are selected of an array; IndexError as numpy raises it."""
        return take_orthogonal(offsets, self.key) if self.orthogonal else offsets[numpy_key(self.key)]


def assignments_of(shape: tuple[int, ...]) -> st.SearchStrategy[Assignment]:
    forms, seeds = st.sampled_from(FORMS), st.integers(0, 99)
    return st.one_of(
        st.builds(Assignment, keys_of(shape), st.just(False), forms, seeds),
        st.builds(Assignment, orthogonal_keys_of(shape), st.just(True), forms, seeds),
    )


def each_form(shape: tuple[int, ...]) -> list[list[Assignment]]:
    """Return assignments with every form of key, some at a time, and every form of values."""
    keys = [(key, False) for key in key_forms(shape)] + [(key, True) for key in orthogonal_forms(shape)]
    found = [Assignment(*key, form) for key, form in zip(keys, itertools.cycle(FORMS), strict=False)]
    return [found[first : first + TOGETHER] for first in range(0, len(found), TOGETHER)]


@pytest.mark.endurance
@pytest.mark.parametrize("rank", SHAPES)
def test_assignment_makes_the_region_equal(dataset_access: DatasetAccess, rank: int) -> None:
    shape = SHAPES[rank]
    dtype = dataset_access.some(DTYPES, rank)[0]
    model = Model.random(shape, dtype, 1)
    dataset = dataset_access.filled(model, CHUNKS[rank])
    array, is_defined = model.values.copy(), model.is_defined.copy()
    offsets = np.arange(array.size).reshape(shape)

    def assign(one: Assignment) -> None:
        target = dataset.oindex if one.orthogonal else dataset
        try:
            places = one.places(offsets)
        except IndexError:
            with pytest.raises(OutOfRange):
                target[one.key] = np.zeros((), array.dtype)
            return
        values, stored = values_of(one.form, np.shape(places), one.seed, dtype)
        try:
            target[one.key] = values
        except OutOfRange:
            assert not places.size, (
                "numpy lets an index pass that is beyond the extent, if nothing is selected"
            )
            return
        # A place that is named twice has the last value, or none if that is not stored.
        dense = values if isinstance(values, np.ndarray) else np.asarray(values.todense())
        array.reshape(-1)[places.reshape(-1)] = dense.reshape(-1)
        is_defined.reshape(-1)[places.reshape(-1)] = stored.reshape(-1)
        array[~is_defined] = 0

    @settings(max_examples=dataset_access.examples(30, short=4), deadline=None)
    @given(some=st.lists(assignments_of(shape), min_size=1, max_size=TOGETHER))
    def check(some: list[Assignment]) -> None:
        for one in some:
            assign(one)
        check_state(dataset, array, is_defined)

    for some in dataset_access.some(each_form(shape), rank):
        check = example(some)(check)
    check()
    dataset_access.check_way(dataset)


def values_of(form: str, shape: tuple[int, ...], seed: int, dtype: Any = np.int32) -> tuple[Any, np.ndarray]:
    """Return values of a shape in a form, and which of them are stored; zeros may be."""
    rng = np.random.default_rng(seed)
    stored = rng.random(shape) < 0.5
    dense = np.where(stored, rng.integers(0, 4, shape), 0).astype(np.dtype(dtype).newbyteorder("="))
    if form == "dense" or not shape:
        return dense, np.ones(shape, bool)
    if form == "COO" or len(shape) != 2:
        coords = np.array(np.nonzero(stored))
        return sparse.COO(coords, dense[stored], shape=shape), stored
    whole = sp.coo_array((dense[stored], np.nonzero(stored)), shape=shape)
    return whole.asformat(form), stored


def test_values_are_broadcast(http_access: DatasetAccess) -> None:
    dataset = http_access.create(SHAPE, "f4", (2, 2))
    row = sp.csr_array(np.array([[0, 2, 0, 4]], np.float32))
    dataset[:] = row
    assert dataset[...].toarray().tolist() == [[0, 2, 0, 4]] * 3
    dataset[0:2] = sp.coo_array(np.array([1, 0, 0, 0], np.float32))
    assert dataset[...].toarray().tolist() == [[1, 0, 0, 0]] * 2 + [[0, 2, 0, 4]]
    assert dataset.nnz == 4
    dataset[:, 1:3] = sparse.COO(np.array([[5], [0], [6]], np.float32))
    assert dataset[...].toarray().tolist() == [[1, 5, 5, 0], [0 + 1, 0, 0, 0], [0, 6, 6, 4]]
    dataset[2] = 9
    assert dataset[2].toarray().tolist() == [9] * 4
    dataset[0, 0] = 3
    assert dataset[0, 0] == 3
    for wrong in (
        np.zeros((2, 4)),
        sp.csr_array((2, 4)),
        sparse.COO(np.zeros((1, 1, 3))),
        sp.csr_array((3, 3)),
    ):
        with pytest.raises(
            InvalidValue,
            match=r"(must broadcast to the selected shape|do not fit a selection of shape) \[3, 4\]",
        ) as caught:
            dataset[:] = wrong
        assert isinstance(caught.value, ValueError)


def test_what_is_stored_twice_is_added(http_access: DatasetAccess) -> None:
    dataset = http_access.create(SHAPE, "i4", (2, 2))
    twice = sp.coo_array(([1, 2, 5], ([0, 0, 2], [1, 1, 3])), shape=SHAPE)
    loose = sp.csr_array((np.array([1, 2, 5]), np.array([1, 1, 3]), np.array([0, 2, 2, 3])), shape=SHAPE)
    for values in (twice, loose):
        dataset[...] = values
        assert values.nnz == 3, "what is assigned is unchanged"
        assert dataset[...].toarray().tolist() == twice.toarray().tolist()
    for values in (twice.tolil(), twice.todok(), sp.csr_matrix(loose), sp.dia_array(twice)):
        dataset[...] = 0
        dataset[...] = values
        assert dataset[...].toarray().tolist() == twice.toarray().tolist()


class Counts(sp.csr_array):
    """A class of somebody else."""


def test_sparse_arrays_of_any_class_are_taken(http_access: DatasetAccess) -> None:
    dataset = http_access.create(SHAPE, "i4", (2, 2))
    dense = np.array([[0, 2, 0, 4], [0, 0, 0, 0], [7, 0, 0, 0]], np.int32)
    coo = sparse.COO(dense)
    for values in (Counts(dense), sp.bsr_array(dense), coo.asformat("gcxs"), sparse.DOK(coo), coo):
        dataset[...] = 9
        dataset[...] = values
        assert np.array_equal(dataset.to_numpy(), dense)
        assert dataset.nnz < 12
    for row in (sp.csr_array(dense[0]), sp.dok_array(dense[0]), sp.coo_array(dense[0])):
        dataset[1] = 9
        dataset[1] = row
        assert (dataset[1].toarray().tolist(), dataset[1].nnz) == ([0, 2, 0, 4], 2)


def test_boxes_are_assigned(http_access: DatasetAccess) -> None:
    dataset = http_access.create(SHAPE, "i4", (2, 2))
    boxes = Boxes(SHAPE, np.array([[0, 0], [1, 2]]), np.array([[1, 2], [3, 4]]))
    dataset[...] = 7
    dataset.assign(boxes, sp.coo_array(np.array([0, 1, 2, 0, 0, 3])))
    assert dataset[...].toarray().tolist() == [[0, 1, 7, 7], [7, 7, 2, 0], [7, 7, 0, 3]]
    assert dataset.to_numpy(boxes).tolist() == [0, 1, 2, 0, 0, 3]
    assert (dataset.take(boxes).toarray().tolist(), dataset.nnz) == ([0, 1, 2, 0, 0, 3], 9)


def test_types_are_cast_as_numpy_does_by_the_same_kind(connection: Connection) -> None:
    access = DatasetAccess("http", connection)
    whole, real = access.create(SHAPE, "u1", (2, 2)), access.create(SHAPE, "f4", (2, 2), maxshape=(None, 4))
    whole[0] = [1, 2, 3, 255]
    whole[1] = np.array([1, 2, 3, 4], np.uint64)
    real[0] = np.arange(4)
    real[1] = sp.coo_array(np.arange(4.0))
    real.append(sp.csr_array(np.ones((2, 4), np.int64)))
    assert real.to_numpy()[3:].tolist() == [[1] * 4] * 2
    before = whole.to_numpy()
    for values in (1.5, np.float32(1), [0.5, 1, 2, 3], sp.csr_array(np.ones((1, 4))), "abcd"):
        with pytest.raises(WrongType, match="do not fit a dataset of uint8") as caught:
            whole[0] = values
        assert isinstance(caught.value, TypeError)
    with pytest.raises(InvalidValue, match="256 out of bounds"):
        whole[0] = 256
    assert np.array_equal(whole.to_numpy(), before)
    with pytest.raises(WrongType, match="complex128 do not fit"):
        real.append(np.ones((1, 4), complex))
    assert real.shape == (5, 4)


def test_another_fill_value_is_refused(http_access: DatasetAccess) -> None:
    dataset = http_access.create(SHAPE, "f4", (2, 2), fillvalue=np.nan)
    with pytest.raises(InvalidValue, match=r"the fill value 0\.0, but the dataset has nan"):
        dataset[...] = sp.csr_array(np.eye(3, 4))
    values = sparse.COO(np.array([[0, 2], [1, 3]]), np.array([1.0, 2.0]), shape=SHAPE, fill_value=np.nan)
    dataset[...] = values
    assert dataset.nnz == 2
    assert np.array_equal(dataset[...].todense(), values.todense(), equal_nan=True)


def test_arrays_are_appended(dataset_access: DatasetAccess) -> None:
    cases = [(form, axis) for form in ("csr", "csc", "COO", "dense") for axis in (0, -1)]
    for form, axis in dataset_access.some(cases, 0):
        check_append(dataset_access, form, axis)


def check_append(access: DatasetAccess, form: str, axis: int) -> None:
    model = Model.random((3, 4), np.int32, 2)
    dataset = access.filled(model, (2, 2), maxshape=(None, None))
    values, stored = values_of(form, (2, 4) if axis == 0 else (3, 5), 7)
    added = dataset.append(values, axis=axis)
    assert added == (slice(3, 5) if axis == 0 else slice(4, 9))
    dense = values if isinstance(values, np.ndarray) else np.asarray(values.todense())
    whole = np.concatenate([model.values, dense], axis)
    check_state(dataset, whole, np.concatenate([model.is_defined, stored], axis))
    assert dataset.shape == whole.shape
    rows, columns = whole.shape
    nothing, _ = values_of(form, (0, columns) if axis == 0 else (rows, 0), 0)
    assert dataset.append(nothing, axis=axis) == slice(added.stop, added.stop)
    other, _ = values_of(form, (1, columns - 1) if axis == 0 else (rows - 1, 1), 0)
    for wrong in (other, np.zeros(77, np.int32)):
        with pytest.raises(InvalidValue, match="other dimensions"):
            dataset.append(wrong, axis=axis)
    assert dataset.refresh() == whole.shape
    access.check_way(dataset)


def test_append_says_what_is_missing(http_access: DatasetAccess) -> None:
    dataset = http_access.create(SHAPE, "i4", (2, 2), maxshape=(None, 4))
    with pytest.raises(InvalidValue, match=r"append\(coords, values, count=...\)"):
        dataset.append([[0, 0]], [1])
    with pytest.raises(InvalidValue, match="an array's shape gives it"):
        dataset.append(np.zeros((1, 4), int), count=1)


@pytest.mark.parametrize("rows", [0, 3])
def test_what_others_have_appended_is_left_alone(connection: Connection, rows: int) -> None:
    """A key is of the extent that the caller knows: it does not grow with the dataset."""
    mine = SparseDataset.create(connection, "/grown", (rows, 4), "i4", (2, 4), maxshape=(None, 4))
    others = SparseDataset.open(connection, "/grown")
    added = others.append(np.full((2, 4), 7, np.int32))
    assert added == slice(rows, rows + 2)
    mine[0:rows] = sp.csr_array((rows, 4), dtype=np.int32)
    mine[0:rows] = 5
    mine.write_region(np.s_[0:rows], 6)
    assert (mine.count(np.s_[0:rows]), len(mine.defined(np.s_[0:rows]))) == (4 * rows, 4 * rows)
    mine.erase(np.s_[0:rows])
    assert (mine.shape, others.count()) == ((rows, 4), 8)
    assert (others.to_numpy(np.s_[rows:]) == 7).all()
    mine.erase()
    assert others.count() == 0


def test_a_selection_of_another_extent_is_refused_where_it_does_not_fit(connection: Connection) -> None:
    dataset = SparseDataset.create(connection, "/points", (10, 20), "i4", (5, 5))
    for wrong in (
        Points((100, 100), np.array([[0, 50]])),
        Orthogonal.all((11, 20)),
        Points((10,), np.array([[1]])),
    ):
        with pytest.raises(IndexError):
            dataset.erase(wrong)
        with pytest.raises(IndexError):
            dataset.read_dense(wrong)


def test_results_may_be_changed(connection: Connection) -> None:
    dataset = SparseDataset.create(connection, "/own", (100, 90), "f4", (100, 90))
    dataset[...] = np.arange(9000, dtype=np.float32).reshape(100, 90)
    for key in (np.s_[0:2], ...):
        found = dataset[key]
        found *= 2
        dense = dataset.read_dense(key)
        dense += 1
    points = dataset.read_points([[0, 1]])
    points += 1
    assert points.tolist() == [2]
