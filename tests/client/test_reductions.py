"""Reductions by the client: of dense and sparse datasets, of selections, by groups, and with asyncio."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hsparse
from hsparse.client.connection import Connection
from hsparse.client.dense_dataset import DenseDataset
from hsparse.client.errors import MissingKey, NotImplementedHere, ResultTooLarge
from hsparse.client.file import File
from hsparse.client.reductions import ReducedDataset
from hsparse.client.sparse_dataset import SparseDataset
from hsparse.errors import BadRequest
from tests.client.dataset_access import DatasetAccess
from tests.client.scripted_server import answer, scripted_server


@pytest.fixture
def file(connection: Connection) -> File:
    found = hsparse.open(f"{connection.url}{connection.domain}")
    assert isinstance(found, File)
    return found


@pytest.mark.parametrize("dtype", ["i1", ">u2", "f4", "?"])
def test_a_dense_dataset(file: File, dtype: str) -> None:
    data = np.random.default_rng(1).integers(0, 2, (4, 5, 3)).astype(dtype)
    x = file.create_dataset("x", data=data, chunks=(2, 2, 2))
    native = data.astype(np.dtype(dtype).newbyteorder("="))
    for axis in (None, 1, (-1, 0)):
        for name in ("sum", "mean", "var", "min", "max"):
            found, wanted = getattr(x, name)(axis), getattr(native, name)(axis)
            np.testing.assert_allclose(found, wanted, rtol=1e-6)
            assert found.dtype == wanted.dtype
    found = x.reduce("nnz", "count", axis=0, select="[1:4,:,1]")
    assert found["nnz"].tolist() == np.count_nonzero(native[1:4, :, 1:2], axis=0).tolist()
    assert found["count"].tolist() == [[3]] * 5
    with pytest.raises(BadRequest):
        x.reduce("sum", axis=0, select=([0, 1], [0, 1], 0))
    with pytest.raises(ValueError, match="name an axis"):
        x.reduce("sum", axis=())


def test_one_element(file: File) -> None:
    x = file.create_dataset("x", data=np.float32(2.5))
    assert (x.sum(), x.max()) == (2.5, 2.5)
    pairs = np.array([(1, 2.0), (3, 4.0)], [("n", "i4"), ("x", "f8")])
    y = file.create_dataset("y", data=pairs)
    assert y.reduce("mean", field="x")["mean"] == 3.0


def test_groups(file: File) -> None:
    x = file.create_sparse("x", (4, 3), "i4", (2, 2))
    x.write([[0, 0], [1, 0], [3, 2]], [1, 2, 3])
    labels = ["b", "a", None, "a"]
    found = x.reduce("sum", "max", "count", axis=0, by=labels, undefined="skip")
    assert found["group"].tolist() == ["a", "b"]
    assert found["sum"].tolist() == [[2, 0, 3], [1, 0, 0]]
    assert found["count"].tolist() == [[1, 0, 1], [1, 0, 0]]
    assert found["max"].dtype == np.dtype("i4")
    file.create_dataset("obs/kind", data=np.array([5, 7, 7, 5]))
    assert x.reduce("sum", axis=(0, 1), by="/obs/kind")["sum"].tolist() == [4, 2]


# --- when the server does not ------------------------------------------------------------------------


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is asked of a server, by its path."""
    found: list[str] = []
    request = Connection._request

    def note(self: Any, method: str, path: str, *rest: Any) -> Any:
        found.append(f"{method} {path.split('/')[-1] if path.count('/') > 2 else '/datasets'}")
        return request(self, method, path, *rest)

    monkeypatch.setattr(Connection, "_request", note)
    return found


def without_reductions(dataset: ReducedDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the server have no such route, as one before it had reductions."""
    path = dataset._path
    monkeypatch.setattr(
        dataset, "_path", lambda what: path("reductions-of-old" if what == "reduce" else what)
    )


def test_an_older_server_is_asked_once(
    http_access: DatasetAccess, monkeypatch: pytest.MonkeyPatch, requests: list[str]
) -> None:
    x = http_access.create((4, 3), "f4", (2, 2))
    x.write([[0, 0], [3, 2]], [1, 2])
    without_reductions(x, monkeypatch)
    requests.clear()
    assert x.sum() == 3
    assert requests[:2] == ["POST reductions-of-old", "GET /datasets"]
    requests.clear()
    assert x.sum(axis=0).tolist() == [1, 0, 2]
    assert x.mean() == 0.25
    assert not {"POST reductions-of-old", "GET /datasets"} & {*requests}


def test_labels_that_are_missing_are_no_older_server(file: File, requests: list[str]) -> None:
    x: SparseDataset = file.create_sparse("unlabelled", (4, 3), "f4", (2, 2))
    with pytest.raises(MissingKey):
        x.reduce("sum", axis=0, by="/no/labels")
    requests.clear()
    x.sum()
    assert requests == ["POST reduce"]


def test_a_missing_dataset_is_no_older_server(http_access: DatasetAccess) -> None:
    x = http_access.create((4, 3), "f4", (2, 2))
    x.connection.json("DELETE", f"/datasets/{x.id}")
    with pytest.raises(KeyError):
        x.sum()
    assert not x._reduces_here


def test_what_is_too_large_for_the_server_is_computed_here(
    file: File, monkeypatch: pytest.MonkeyPatch, requests: list[str]
) -> None:
    x = file.create_dataset("many places", data=np.arange(60).reshape(5, 12), chunks=(2, 5))
    for error in (ResultTooLarge("The result has 12 places"), NotImplementedHere("It has another layout.")):

        def refuse(*args: Any, error: Exception = error, **options: Any) -> Any:
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(x.connection, "binary", refuse)
            assert x.sum(axis=0).tolist() == np.arange(60).reshape(5, 12).sum(axis=0).tolist()
        requests.clear()
        x.sum()
        assert requests == ["POST reduce"]
    x.max_bytes = 12 * 40
    monkeypatch.setattr(x.connection, "binary", refuse)
    with pytest.raises(ResultTooLarge, match="max_bytes"):
        x.sum(axis=0)


@pytest.mark.parametrize("status", ["405 Method Not Allowed", "501 Not Implemented"])
def test_a_server_of_another_make(status: str) -> None:
    record = {
        "id": "d-1",
        "type": {"class": "H5T_INTEGER", "base": "H5T_STD_I32LE"},
        "shape": {"class": "H5S_SIMPLE", "dims": [3]},
    }
    values = np.array([1, 2, 3], "<i4").tobytes()
    connections = [[answer(b"no", status), answer(values, media="application/octet-stream")]]
    with scripted_server(*connections) as script, Connection(script.url, "/x.h5") as connection:
        assert DenseDataset(connection, record).sum() == 6
    assert [line.split("?")[0] for line in script.requests] == [
        "POST /datasets/d-1/reduce",
        "GET /datasets/d-1/value",
    ]
