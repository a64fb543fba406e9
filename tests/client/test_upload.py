"""Uploads of more than a request has room for: cut between chunks, and halved until the server takes them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from numpy.typing import NDArray

import hsparse
from hsparse.cli.embedded_server import embedded_server
from hsparse.client.connection import Connection
from hsparse.client.sources.upload import upload
from hsparse.config import load_settings
from hsparse.errors import Conflict, TooLarge
from hsparse.format.selections.points import Orthogonal, Points, Selection, gather
from tests.client.access_ways import DatasetAccess, open_file

MIB = 1 << 20
NAMES = itertools.count()


@pytest.fixture(scope="module")
def small_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server that takes requests of 1 MiB, the least that can be set."""
    root = tmp_path_factory.mktemp("small")
    with embedded_server(load_settings(root=root, port=0, fsync=False, max_request_size=MIB)) as address:
        yield address


@pytest.fixture
def small_file(small_url: str) -> Iterator[hsparse.File]:
    found = open_file(f"{small_url}/home/admin/{next(NAMES)}.h5", "w")
    with found:
        yield found


NUMBERS = np.arange(600_000, dtype=np.float64)
TEXTS = np.array([f"{number:040}" for number in range(40_000)], object)


@pytest.mark.parametrize(
    "data",
    [NUMBERS, NUMBERS.reshape(4, -1), TEXTS.reshape(1, -1), NUMBERS.view([("a", "f4"), ("b", "i4")])],
    ids=["row", "few wide rows", "text", "compound"],
)
def test_dense_arrays_of_any_size_are_written(small_file: hsparse.File, data: NDArray[Any]) -> None:
    small_file["x"] = data
    assert np.array_equal(small_file["x"][...], data)


def test_dense_points_are_written_in_parts(small_file: hsparse.File) -> None:
    dataset = small_file.create_dataset("x", (1000, 1000), "f8")
    rows, columns = np.divmod(np.random.default_rng(1).permutation(1_000_000)[:100_000], 1000)
    dataset[rows, columns] = NUMBERS[:100_000]
    expected = np.zeros((1000, 1000))
    expected[rows, columns] = NUMBERS[:100_000]
    assert np.array_equal(dataset[...], expected)


def test_one_value_for_all_is_one_value_in_the_request(small_file: hsparse.File) -> None:
    dataset = small_file.create_dataset("x", (2000, 1000), "f8")
    dataset[1:, ::2] = 7
    expected = np.zeros((2000, 1000))
    expected[1:, ::2] = 7
    assert np.array_equal(dataset[...], expected)


def dense(dataset: hsparse.SparseDataset, values: NDArray[Any]) -> None:
    dataset[...] = values


def from_csr(dataset: hsparse.SparseDataset, values: NDArray[Any]) -> None:
    dataset[...] = scipy.sparse.csr_array(values)


def points(dataset: hsparse.SparseDataset, values: NDArray[Any]) -> None:
    dataset.write(np.argwhere(values), values[values != 0])


def listed(dataset: hsparse.SparseDataset, values: NDArray[Any]) -> None:
    rows, columns = np.nonzero(values)
    dataset[rows, columns] = values[rows, columns]


@pytest.mark.parametrize("write", [dense, from_csr, points, listed])
def test_sparse_datasets_take_values_of_any_size(small_file: hsparse.File, write: Any) -> None:
    values = NUMBERS[:300_000].reshape(500, 600)
    dataset = small_file.create_sparse("x", (500, 600), "f8", (100, 100))
    write(dataset, values)
    assert np.array_equal(dataset.to_numpy(), values)
    dataset.erase_points(np.argwhere(values))
    assert dataset.nnz <= 1  # the place of the zero


@pytest.mark.parametrize("form", ["dense", "csr", "points"])
@pytest.mark.parametrize("axis", [0, 1])
def test_appends_of_any_size_are_stored(small_file: hsparse.File, form: str, axis: int) -> None:
    values = NUMBERS[:300_000].reshape(500, 600)
    shape = (3, 600) if axis == 0 else (500, 3)
    dataset = small_file.create_sparse("x", shape, "f8", (100, 100), maxshape=(None, None))
    if form == "points":
        added = dataset.append(np.argwhere(values), values[values != 0], count=values.shape[axis], axis=axis)
    else:
        added = dataset.append(values if form == "dense" else scipy.sparse.csr_array(values), axis=axis)
    assert added == slice(3, 3 + values.shape[axis])
    assert np.array_equal(dataset.to_numpy(np.s_[3:] if axis == 0 else np.s_[:, 3:]), values)


@pytest.mark.parametrize("others", [False, True])
def test_an_append_that_fails_takes_its_rows_back(
    small_file: hsparse.File, monkeypatch: pytest.MonkeyPatch, others: bool
) -> None:
    dataset = small_file.create_sparse("x", (3, 600), "f8", (100, 100), maxshape=(None, 600))

    def write_region(*args: object, **kwargs: object) -> None:
        dataset.write([[4, 4]], [1])
        if others:
            small_file["x"].append([[0, 0]], [9], count=1)  # type: ignore[union-attr]
        raise Conflict("in between")

    monkeypatch.setattr(dataset, "write_region", write_region)
    with pytest.raises(Conflict, match="in between"):
        dataset.append(NUMBERS.reshape(1000, 600))
    assert (dataset.refresh(), dataset.nnz) == ((1004, 600) if others else (3, 600), int(others))


CASES: list[tuple[Selection, tuple[int, ...] | None]] = [
    (Orthogonal.all((7, 9)), (2, 4)),
    (Orthogonal.all((1, 50)), (1, 50)),
    (Orthogonal.all(()), None),
    (Points((7, 9), np.argwhere(np.ones((7, 9), bool))[::2]), (2, 4)),
]


@pytest.mark.parametrize(("selection", "chunks"), CASES)
@pytest.mark.parametrize("most", [1, 5, 20, 1000])
def test_parts_are_all_of_it(selection: Selection, chunks: tuple[int, ...] | None, most: int) -> None:
    values = gather(np.arange(int(np.prod(selection.extent))).reshape(selection.extent), selection)
    found = np.full(selection.extent, -1)
    counts = []

    def send(part: Selection, some: NDArray[Any]) -> None:
        if part.size > most:
            raise TooLarge("too many")
        counts.append(part.size)
        found.reshape(-1)[part.offsets().astype(int)] = some.reshape(-1)

    upload(selection, values, chunks, 1, send)
    assert sum(counts) == selection.size
    assert np.array_equal(gather(found, selection), values)


def test_parts_end_where_chunks_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hsparse.client.sources.upload.REQUEST_BYTES", 40)
    found = []

    def send(part: Selection, some: NDArray[Any]) -> None:
        assert isinstance(part, Orthogonal)
        found.append(part.bounds())

    upload(Orthogonal.all((4, 40)), np.zeros((4, 40)), (4, 10), 1, send)
    assert found == [((0, start), (4, start + 10)) for start in (0, 10, 20, 30)]


def test_112_megabytes_by_the_defaults(connection: Connection) -> None:
    small_file = open_file(f"{connection.url}{connection.domain}")
    data = np.zeros((14_000, 1000))
    data[::100, ::100] = 1
    small_file["x"] = data
    assert small_file["x"].sum() == data.sum()  # type: ignore[union-attr]
    sparse = DatasetAccess("http", connection).create(data.shape, "f8", (1000, 1000))
    sparse[...] = data
    assert sparse.nnz == data.size
