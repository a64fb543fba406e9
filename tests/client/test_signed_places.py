"""Datasets with a lower bound in the client, against a dict of signed places: no index counts from the end.

Every request about values says from where it counts, so that what others prepend meanwhile shifts nothing.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import hsparse
from hsparse.client.connection import Connection
from hsparse.client.dense_dataset import DenseDataset
from hsparse.client.errors import InvalidValue, OutOfRange
from hsparse.client.sources import http_elements
from hsparse.client.sources.elements import Elements
from hsparse.client.sources.value_batch import DatasetRead, read_datasets
from hsparse.client.sparse_dataset import SparseDataset
from hsparse.errors import Conflict
from hsparse.format.selections.points import Orthogonal
from tests.support.endurance import repeats

CHUNK = (4, 3)
LOWER, UPPER = (-5, -1), (6, 4)
ABOUT_VALUES = ("/value", "/defined", "/erase", "/reduce")
Place = tuple[int, ...]
Dataset = SparseDataset | DenseDataset


class Watched(Connection):
    """A connection whose requests about values must say from where they count, unless they are about all there is."""

    def _target(self, path: str, params: dict[str, Any]) -> str:
        if path.startswith("/datasets/d-") and path.endswith(ABOUT_VALUES) and "append" not in params:
            named = params.get("select") is not None or params.get("places") is not None
            assert named or params.get("count_only"), (path, params)
            assert params.get("places") is not None or params.get("count_only"), (path, params)
        return super()._target(path, params)


@pytest.fixture
def file(url: str, connection: Connection) -> Iterator[hsparse.File]:
    with hsparse.open(f"{url}{connection.domain}", "a") as opened:
        watched = object.__new__(Watched)
        watched.__dict__.update(opened.connection.__dict__)
        opened.connection = watched
        yield opened


def create(
    file: hsparse.File, kind: str, lower: Place = LOWER, upper: Place = UPPER, **options: Any
) -> Dataset:
    shape = tuple(high - low for low, high in zip(lower, upper, strict=True))
    unlimited = (None,) * len(shape)
    make: Callable[..., Dataset] = file.create_sparse if kind == "sparse" else file.create_dataset
    return make(
        "X",
        shape,
        "i4",
        chunks=CHUNK[: len(shape)],
        maxshape=unlimited,
        lower=lower,
        minlower=unlimited,
        **options,
    )


class Model:
    """What a dataset should have: a value at each place, 0 where none is written."""

    def __init__(self, dataset: Dataset, lower: Place = LOWER, upper: Place = UPPER) -> None:
        self.dataset, self.lower, self.upper = dataset, list(lower), list(upper)
        self.values: dict[Place, int] = {}

    def array(self, start: Place | None = None, stop: Place | None = None) -> np.ndarray:
        start, stop = start or tuple(self.lower), stop or tuple(self.upper)
        found = np.zeros([high - low for low, high in zip(start, stop, strict=True)], "i4")
        for place, value in self.values.items():
            at = tuple(one - low for one, low in zip(place, start, strict=True))
            if all(0 <= one < length for one, length in zip(at, found.shape, strict=True)):
                found[at] = value
        return found

    def check(self) -> None:
        dataset = self.dataset
        dataset.refresh()
        assert dataset.lower == tuple(self.lower)
        assert dataset.shape == tuple(np.subtract(self.upper, self.lower))
        np.testing.assert_array_equal(np.asarray(dataset), self.array())
        if isinstance(dataset, SparseDataset):
            places, values = dataset.read()
            found = dict(zip(map(tuple, places.tolist()), values.tolist(), strict=True))
            assert found == self.values
            assert set(map(tuple, dataset.defined().tolist())) == set(self.values)


def plain(found: Any) -> np.ndarray:
    return found.toarray() if sp.issparse(found) else np.asarray(found)


def fill(model: Model, rng: np.random.Generator, part: float = 0.6) -> None:
    """Write some elements of the dataset and the model."""
    array = rng.integers(1, 100, np.subtract(model.upper, model.lower)) * (
        rng.random(np.subtract(model.upper, model.lower)) < part
    )
    if isinstance(model.dataset, SparseDataset):
        model.dataset.write_region(None, array, drop_fill=True)
    else:
        model.dataset[...] = array
    for at in np.argwhere(array).tolist():
        model.values[tuple(np.add(at, model.lower).tolist())] = int(array[tuple(at)])


@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_keys_are_places(file: hsparse.File, kind: str) -> None:
    dataset = create(file, kind)
    assert "places [-5:6, -1:4] (none counts from the end)" in repr(dataset)
    assert (dataset.lower, dataset.minlower, dataset.shape) == (LOWER, (None, None), (11, 5))
    model = Model(dataset)
    fill(model, np.random.default_rng(1))
    whole = model.array()

    def read(key: Any) -> np.ndarray:
        return plain(dataset[key])

    assert read((-5, -1)) == whole[0, 0]
    np.testing.assert_array_equal(read(-5), whole[0])
    np.testing.assert_array_equal(read(np.s_[-5:3]), whole[0:8])
    np.testing.assert_array_equal(read(np.s_[:, -1]), whole[:, 0])
    np.testing.assert_array_equal(read(np.s_[3:, 0:2]), whole[8:, 1:3])
    np.testing.assert_array_equal(read(np.s_[4:-3:-2]), whole[9:2:-2])
    np.testing.assert_array_equal(read(np.s_[::-1]), whole[::-1])
    np.testing.assert_array_equal(read(np.s_[2:100]), whole[7:])
    np.testing.assert_array_equal(read([-4, 5, -4]), whole[[1, 10, 1]])
    np.testing.assert_array_equal(read(([-4, 5], [3, -1])), whole[[1, 10], [4, 0]])
    np.testing.assert_array_equal(read((whole[:, 0] > 20, slice(None))), whole[whole[:, 0] > 20])
    np.testing.assert_array_equal(dataset.to_numpy(np.s_[-5:-3]), whole[:2])
    np.testing.assert_array_equal(plain(dataset.take("[-5:6:3,[-1,3]]")), whole[::3, [0, 4]])
    np.testing.assert_array_equal([plain(row) for row in dataset], whole)
    np.testing.assert_array_equal(plain(next(reversed(dataset))), whole[-1])
    blocks = [plain(block) for block in dataset.iter_rows(4, -3, 5)]
    np.testing.assert_array_equal(np.concatenate(blocks), whole[2:10])
    assert len(dataset) == 11
    model.check()


@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_what_is_outside_is_named_with_both_bounds(file: hsparse.File, kind: str) -> None:
    dataset = create(file, kind)
    bounds = r"lower bound is -5, its upper bound is 6 \(exclusive\), and no coordinate counts from the end"
    for key in (-6, 6, [0, 6], slice(-6, 0), slice(0, -7)):
        with pytest.raises(IndexError, match=bounds):
            dataset[key]
        with pytest.raises(OutOfRange, match=bounds):
            dataset[key] = 1
    with pytest.raises(OutOfRange, match=r"lower bound is -1, the \(exclusive\) upper bound is 4"):
        dataset.take("[:,-2]")
    with pytest.raises(OutOfRange, match="a dataset with lower bounds"):
        dataset.take(Orthogonal.all((11, 5)))
    with pytest.raises(InvalidValue, match="needs lower bounds"):
        file.create_dataset("ordinary", (3,), "i4", maxshape=(None,)).extend(1, side="lower")
    with pytest.raises(InvalidValue, match="'upper' or 'lower', not 'left'"):
        dataset.extend(1, side="left")  # type: ignore[arg-type]
    with pytest.raises(Conflict, match="lower bound of dimension 0 of /bounded is at least 1"):
        file.create_dataset("bounded", (3,), "i4", maxshape=(None,), lower=2, minlower=1).extend(
            2, side="lower"
        )


def test_elements_are_written_erased_and_read_at_places(file: hsparse.File) -> None:
    dataset: Any = create(file, "sparse")
    model = Model(dataset)
    fill(model, np.random.default_rng(2))
    places = [[-5, -1], [5, 3], [-1, 0]]
    dataset.write(places, [7, 8, 9])
    model.values |= dict(zip(map(tuple, places), (7, 8, 9), strict=True))
    np.testing.assert_array_equal(dataset.read_points(places), [7, 8, 9])
    dataset.erase_points([[5, 3]])
    del model.values[5, 3]
    model.check()
    dataset.erase(np.s_[-2:0, :1])
    model.values = {at: one for at, one in model.values.items() if not (-2 <= at[0] < 0 and at[1] < 1)}
    dataset[-4] = sp.csr_array(([3], ([0], [2])), shape=(1, 5))
    model.values = {at: one for at, one in model.values.items() if at[0] != -4} | {(-4, 1): 3}
    dataset.oindex[[-5, 5], [-1, 2]] = [[1, 2], [3, 4]]
    model.values |= {(-5, -1): 1, (-5, 2): 2, (5, -1): 3, (5, 2): 4}
    model.check()
    found, values = dataset.read(np.s_[-5, 1:])
    assert found.dtype == np.int64
    assert {tuple(at): one for at, one in zip(found.tolist(), values.tolist(), strict=True)} == {
        at: one for at, one in model.values.items() if at[0] == -5 and at[1] >= 1
    }
    assert dataset.count(np.s_[-5]) == sum(at[0] == -5 for at in model.values)
    dataset.erase()
    assert dataset.nnz == 0
    with pytest.raises(OutOfRange, match="lower bound is -5"):
        dataset.write([[-6, 0]], [1])


@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_both_ends_grow_and_the_oldest_rows_go(file: hsparse.File, kind: str) -> None:
    dataset = create(file, kind)
    model = Model(dataset)
    fill(model, np.random.default_rng(3))
    assert dataset.prepend([[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]]) == slice(-7, -5)
    assert dataset.append(np.full((1, 5), 11)) == slice(6, 7)
    assert dataset.extend(2, side="lower") == slice(-9, -7)
    for row, first in ((-7, 1), (-6, 6)):
        model.values |= {(row, column): first + column + 1 for column in range(-1, 4)}
    model.values |= {(6, column): 11 for column in range(-1, 4)}
    model.lower[0], model.upper[0] = -9, 7
    model.check()
    if isinstance(dataset, SparseDataset):
        assert dataset.prepend([[0, -1], [1, 3]], [21, 22], count=3) == slice(-12, -9)
        assert dataset.append(sp.csr_array([[0, 0, 31, 0, 0]])) == slice(7, 8)
        assert dataset.prepend(sp.csr_array([[0], [41]] + [[0]] * 18), axis=1) == slice(-2, -1)
        model.values |= {(-12, -1): 21, (-11, 3): 22, (7, 1): 31, (-11, -2): 41}
        model.lower, model.upper[0] = [-12, -2], 8
        model.check()
    dataset.drop_before(-2)
    dataset.drop_before(-30)
    model.values = {at: one for at, one in model.values.items() if at[0] >= -2}
    model.lower[0] = -2
    model.check()
    with pytest.raises(OutOfRange, match=r"Coordinate 99 .* lower bound is -2"):
        dataset.drop_before(99)
    with pytest.raises(OutOfRange, match="lower bound is -2"):
        dataset[-3]
    dataset.resize((4, dataset.shape[1]), erase=True)
    model.values = {at: one for at, one in model.values.items() if at[0] < 2}
    model.upper[0] = 2
    model.check()


@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_what_others_prepend_and_drop_shifts_nothing(
    file: hsparse.File, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stale = create(file, kind)
    model = Model(stale)
    fill(model, np.random.default_rng(4))
    other = file["X"]
    other.prepend(np.full((3, 5), 50))
    model.values |= {(row, column): 50 for row in range(-8, -5) for column in range(-1, 4)}
    model.lower[0] = -8
    monkeypatch.setattr(http_elements, "MAX_CHUNK_ELEMENTS", 4)  # by Arrow, too
    for key, start, stop in (
        (np.s_[...], (-5, -1), (6, 4)),
        (np.s_[-5:-3], (-5, -1), (-3, 4)),
        (np.s_[0:1, 0:2], (0, 0), (1, 2)),
    ):
        np.testing.assert_array_equal(plain(stale[key]), model.array(start, stop))
    assert (stale.lower, stale.sum()) == ((-5, -1), model.array((-5, -1), (6, 4)).sum())
    stale[-4:-2] = 60
    stale[[-1, 4], [0, 2]] = 70
    if isinstance(stale, SparseDataset):
        stale.write([[-5, -1], [5, 3]], [81, 82])
        stale[3] = sp.csr_array([[0, 0, 0, 0, 9]])
        np.testing.assert_array_equal(stale.read_points([[-5, -1], [5, 3]]), [81, 82])
        assert (-5, -1) in set(map(tuple, stale.defined().tolist()))
        model.values = {at: one for at, one in model.values.items() if at[0] != 3}
        model.values |= {(-5, -1): 81, (5, 3): 82, (3, 3): 9}
    model.values |= {(row, column): 60 for row in (-4, -3) for column in range(-1, 4)}
    model.values |= {(-1, 0): 70, (4, 2): 70}
    other.refresh()
    assert stale.append(np.full((1, 5), 5)) == slice(6, 7)
    model.values |= {(6, column): 5 for column in range(-1, 4)}
    model.upper[0] = 7
    model.dataset = other
    model.check()
    other.drop_before(-2)
    np.testing.assert_array_equal(plain(stale[-1:3]), model.array((-1, -1), (3, 4)))
    with pytest.raises(OutOfRange, match="lower bound is -2"):
        stale[-5]
    assert stale.lower == (-2, -1)
    np.testing.assert_array_equal(plain(stale[:]), model.array((-2, -1)))


def test_an_append_to_a_side_is_next_to_what_others_made_of_it(file: hsparse.File) -> None:
    """The other dimension has grown below meanwhile: the elements are at their places, not shifted."""
    stale: Any = create(file, "sparse")
    file["X"].extend(2, axis=1, side="lower")
    assert stale.append([[0, -1]], [7], count=1) == slice(6, 7)
    assert stale.prepend([[0, 3]], [8], count=1) == slice(-6, -5)
    assert sorted(map(tuple, file["X"].defined().tolist())) == [(-6, 3), (6, -1)]


def test_an_appender_writes_at_the_lower_end(file: hsparse.File) -> None:
    for number, kind in enumerate(("sparse", "dense")):
        dataset = create(file, kind, (number,), (number + 2,))
        model = Model(dataset, (number,), (number + 2,))
        with dataset.appender(side="lower", max_delay=60) as appender:
            places = [appender.append([100 + count, 200 + count][: 1 + count % 2]) for count in range(5)]
        below = number
        for count, place in enumerate(places):
            length = 1 + count % 2
            assert place.result() == slice(below - length, below)
            model.values |= {(below - length + at,): 100 * (at + 1) + count for at in range(length)}
            below -= length
        model.lower[0] = below
        model.check()
        del file["X"]


def test_reductions_density_and_follow_count_in_places(file: hsparse.File) -> None:
    dataset: Any = create(file, "sparse")
    model = Model(dataset)
    fill(model, np.random.default_rng(5))
    whole = model.array()
    for _ in range(2):
        np.testing.assert_array_equal(dataset.sum(axis=0), whole.sum(axis=0))
        np.testing.assert_array_equal(dataset.count(axis=1), (whole > 0).sum(axis=1))
        found = dataset.reduce("sum", axis=0, select=np.s_[-2:3, -1:2])
        np.testing.assert_array_equal(found["sum"].reshape(-1), whole[3:8, 0:3].sum(axis=0))
        by = dataset.reduce("sum", axis=0, by=["a", "b"] * 5 + ["a"])
        np.testing.assert_array_equal(by["sum"], [whole[::2].sum(axis=0), whole[1::2].sum(axis=0)])
        dataset._reduces_here = True  # as with an older server
    assert dataset.density == len(model.values) / 55
    rows = dataset.follow(-6, count=8, timeout=0)
    np.testing.assert_array_equal(np.concatenate([plain(some) for some in rows]), whole)


def test_a_window_that_moves_at_one_length_is_followed(
    file: hsparse.File, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, other, json = create(file, "dense").follow(), file["X"], file.connection.json

    def ask(method: str, path: str, *args: Any, **query: Any) -> Any:
        if "wait" in query:
            assert query["expect_lower"] == "[-5,-1]"
            other.drop_before(LOWER[0] + 2)
            other.extend(2)
        return json(method, path, *args, **query)

    monkeypatch.setattr(file.connection, "json", ask)
    assert next(rows).shape == (2, 5)


def test_lazy_arrays_count_from_0_at_the_place_where_they_began(file: hsparse.File) -> None:
    dask = pytest.importorskip("dask", reason="dask is not installed")
    xarray = pytest.importorskip("xarray", reason="xarray is not installed")
    for kind in ("sparse", "dense"):
        dataset = create(file, kind)
        model = Model(dataset)
        fill(model, np.random.default_rng(6))
        whole = model.array()
        with dask.config.set(scheduler="synchronous"):
            array = dataset.to_dask(chunks=(3, 5))
            data = xarray.open_dataset(file, engine="hsparse")["X"]
            file["X"].prepend(np.full((2, 5), 50))
            for key in (np.s_[...], np.s_[2:7, 1], np.s_[::-2], np.s_[[8, 1]]):
                found = array[key].compute()
                np.testing.assert_array_equal(found if kind == "dense" else found.todense(), whole[key])
                lazy = data[key].data
                np.testing.assert_array_equal(lazy if kind == "dense" else lazy.todense(), whole[key])
            file["X"].drop_before(-4)
            with pytest.raises((OutOfRange, Conflict)):
                array.compute()
        del file["X"]


def test_what_counts_rows_from_0_refuses_it(file: hsparse.File) -> None:
    dataset = create(file, "sparse")
    with pytest.raises(InvalidValue, match=r"Batches does not support lower bounds, as /X has"):
        hsparse.Batches(dataset)


def test_the_limits_of_lower_bounds_are_set_later(file: hsparse.File) -> None:
    dataset, same = create(file, "sparse"), file["X"]
    with pytest.raises(Conflict, match="minlower is -4"):
        dataset.resize(minlower=(-4, -1))
    dataset.resize((12, 5), minlower=(-5, None))
    assert (dataset.minlower, dataset.shape) == ((-5, None), (12, 5))
    with pytest.raises(Conflict, match="at least -5, not -6"):
        same.extend(1, side="lower")
    same.resize(minlower=(-6, -1))
    assert (same.extend(1, side="lower"), same.shape, same.minlower) == (slice(-6, -5), (13, 5), (-6, -1))
    dataset.refresh()
    assert dataset.minlower == (-6, -1)
    with pytest.raises(InvalidValue, match="needs a new shape, or"):
        dataset.resize()
    with pytest.raises(InvalidValue, match="minlower needs lower bounds"):
        file.create_sparse("Y", (3,), "i4", maxshape=(None,)).resize(minlower=-5)


def test_a_pickle_and_a_batch_keep_the_bounds(file: hsparse.File) -> None:
    dataset = create(file, "sparse", data=np.eye(11, 5, dtype="i4"))
    copied = pickle.loads(pickle.dumps(dataset))
    assert (copied.lower, copied[-5, -1], copied[-4, 0]) == (LOWER, 1, 1)


def test_a_dataset_of_a_batch_knows_its_places(url: str, connection: Connection) -> None:
    with hsparse.open(f"{url}{connection.domain}", "a") as file, file.batch():
        made = file.create_dataset("t", (4,), "i4", lower=-2)
        assert (made.lower, made.shape) == ((-2,), (4,))
        made[-2] = 5
        assert made[-2] == 5


def test_copies_and_reads_of_many_keep_the_places(file: hsparse.File) -> None:
    for kind in ("sparse", "dense"):
        model = Model(create(file, kind))
        fill(model, np.random.default_rng(7))
        file.copy("X", "copy")
        record = file["X"].record
        file["X"].prepend(np.full((1, 5), 50))  # after the record was read
        axes = (np.array([0, 4, 10]), None)
        (found,) = read_datasets(file.connection, [DatasetRead(record, axes, sparse=kind == "sparse")])
        if isinstance(found, Elements):
            found = sp.coo_array((found.values, found.columns), shape=(3, 5)).toarray()
        np.testing.assert_array_equal(found, model.array()[[0, 4, 10]])
        model.dataset = file["copy"]
        assert model.dataset.minlower == (None, None)
        model.check()
        del file["X"], file["copy"]


@pytest.mark.endurance
@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_random_programs_are_those_of_a_dict(file: hsparse.File, kind: str) -> None:
    for seed in range(repeats(40, short=2)):
        rng = np.random.default_rng(seed)
        model = Model(create(file, kind))
        for _ in range(12):
            step(model, rng, file)
            model.check()
        del file["X"]


def step(model: Model, rng: np.random.Generator, file: hsparse.File) -> None:
    """Change the dataset and the model, by the dataset that knows its extent or by one that does not."""
    dataset = model.dataset
    if rng.random() < 0.3:
        dataset.shape = file["X"].shape
    dim = int(rng.integers(2))
    low, high = model.lower[dim], model.upper[dim]
    kind = rng.choice(["write", "grow", "grow", "drop", "shrink"])
    if kind == "write" and all(np.subtract(model.upper, model.lower) > 0):
        starts = [int(rng.integers(*ends)) for ends in zip(model.lower, model.upper, strict=True)]
        stops = [int(rng.integers(start, end)) + 1 for start, end in zip(starts, model.upper, strict=True)]
        values = rng.integers(1, 100, np.subtract(stops, starts))
        dataset[tuple(map(slice, starts, stops))] = values
        for at in np.ndindex(*values.shape):
            model.values[tuple(int(one) for one in np.add(starts, at))] = int(values[at])
    elif kind == "grow":
        count, side = int(rng.integers(4)), str(rng.choice(["lower", "upper"]))
        shape = list(np.subtract(model.upper, model.lower))
        shape[dim] = count
        values = rng.integers(1, 100, shape)
        start = low - count if side == "lower" else high
        assert dataset.append(values, axis=dim, side=side) == slice(start, start + count)  # type: ignore[arg-type]
        first = list(model.lower)
        first[dim] = start
        for at in np.ndindex(*values.shape):
            model.values[tuple(int(one) for one in np.add(first, at))] = int(values[at])
        (model.lower if side == "lower" else model.upper)[dim] += -count if side == "lower" else count
    elif kind == "drop":
        place = int(rng.integers(low - 1, min(high, low + 3) + 1))
        dataset.drop_before(place, dim)
        model.lower[dim] = max(low, place)
    elif kind == "shrink":
        dataset.refresh()
        wanted = list(dataset.shape)
        wanted[dim] = max(0, wanted[dim] - int(rng.integers(3)))
        dataset.resize(wanted, erase=True)
        model.upper[dim] = low + wanted[dim]
    model.values = {
        at: one
        for at, one in model.values.items()
        if all(a <= b < c for a, b, c in zip(model.lower, at, model.upper, strict=True))
    }
