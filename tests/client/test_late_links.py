"""What writes a whole dataset: it is seen once it is whole, and what it replaces until then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask.array
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import hsparse
from hsparse.client.connection import Connection
from hsparse.client.errors import AlreadyExists
from hsparse.client.opening import open_connection
from hsparse.errors import BadRequest, StoreFailed
from hsparse.model.ids import COLLECTIONS

MATRIX = sp.random_array((40, 30), density=0.2, rng=np.random.default_rng(1)).tocsr()
ROWS = dask.array.from_array(MATRIX.toarray(), chunks=(10, -1))
WRITERS: dict[str, Callable[..., Any]] = {
    "scipy": lambda file, path, **options: hsparse.from_scipy(file, path, MATRIX, **options),
    "dask, dense": lambda file, path, **options: hsparse.from_dask(file, path, ROWS, **options),
    "dask, sparse": lambda file, path, **options: hsparse.from_dask(
        file, path, ROWS.map_blocks(sp.csr_array, meta=sp.csr_array((0, 0))), **options
    ),
}

VALUES = np.arange(60_000.0)
ASSIGNED: dict[str, Callable[..., Any]] = WRITERS | {
    "a matrix": lambda file, path: file.__setitem__(path, MATRIX),
    "an array": lambda file, path: file.__setitem__(path, VALUES),
    "a frame": lambda file, path: file.__setitem__(path, pd.DataFrame({"n": VALUES})),
    "create_dataset": lambda file, path: file.create_dataset(path, data=VALUES),
    "create_sparse": lambda file, path: file.create_sparse(path, data=MATRIX),
}


@pytest.fixture(params=WRITERS)
def write(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return WRITERS[request.param]


@pytest.fixture
def file(connection: Connection) -> hsparse.File:
    found = open_connection(connection)
    assert isinstance(found, hsparse.File)
    return found


class Sent:
    """The requests to the server: values fail if `fails`, and `seen` is what the file had when they came."""

    def __init__(self, file: hsparse.File, patch: pytest.MonkeyPatch) -> None:
        self.fails, self.ids, self.changes = False, [], 0
        self.seen: list[list[str]] = []
        send = Connection.json

        def json(connection: Connection, method: str, path: str, *args: Any, **params: Any) -> Any:
            if method == "PUT" and path.endswith("/value"):
                self.seen.append(sorted(file.records()))
                if self.fails:
                    raise StoreFailed("The disk is full.")
            self.changes += method != "GET"
            answer = send(connection, method, path, *args, **params)
            if (method, path) == ("POST", "/datasets"):
                self.ids += [made["id"] for made in answer.get("objects", [answer])]
            return answer

        patch.setattr(Connection, "json", json)


def is_stored(file: hsparse.File, id: str) -> bool:
    try:
        file.connection.json("GET", f"/{COLLECTIONS[id[0]]}/{id}")
    except KeyError:
        return False
    return True


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("path", ["x", "a/b/x"])
def test_nothing_is_left_of_a_write_that_fails(
    file: hsparse.File, write: Callable[..., Any], path: str, overwrite: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if overwrite:
        file.create_dataset(path, data=[1, 2])
    before, sent = file.records(), Sent(file, monkeypatch)
    sent.fails = True
    with pytest.raises(StoreFailed):
        write(file, path, overwrite=overwrite)
    assert file.records().keys() == before.keys()
    assert sent.ids
    assert not any(is_stored(file, id) for id in sent.ids)
    if overwrite:
        assert file[path][:].tolist() == [1, 2]


def test_it_is_seen_once_it_is_whole(
    file: hsparse.File, write: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = Sent(file, monkeypatch)
    made = write(file, "a/x")
    assert sent.seen
    assert not any(sent.seen)
    assert made.name == "/a/x"
    assert np.array_equal(file["a/x"].to_numpy(), MATRIX.toarray())
    assert np.array_equal(made.to_numpy(), MATRIX.toarray())


@pytest.mark.parametrize("old", ["a dataset", "a group", "one with two names"])
def test_what_is_replaced_is_there_until_then(
    file: hsparse.File, write: Callable[..., Any], old: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = "a/x/y" if old == "a group" else "a/x"
    replaced = file.create_dataset(path, data=[1, 2])
    if old == "one with two names":
        file["other"] = replaced
    sent = Sent(file, monkeypatch)
    with pytest.raises(AlreadyExists, match="overwrite=True"):
        write(file, "a/x")
    assert sent.changes == 0
    write(file, "a/x", overwrite=True)
    assert all(path in seen for seen in sent.seen)
    assert np.array_equal(file["a/x"].to_numpy(), MATRIX.toarray())
    assert is_stored(file, replaced.id) == (old == "one with two names")


@pytest.fixture(params=ASSIGNED)
def assign(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return ASSIGNED[request.param]


@pytest.mark.parametrize("path", ["x", "/a/x", "a/b/x"])
def test_mode_w_replaces_a_file_once_all_is_stored(
    file: hsparse.File, assign: Callable[..., Any], path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file["a/x"], file["other"], file.attrs["note"] = [1, 2], [3], "old"
    before, sent = file.records(), Sent(file, monkeypatch)
    address = f"{file.connection.url}{file.filename}"
    sent.fails = True
    with pytest.raises(StoreFailed), hsparse.open(address, "w") as new:
        assign(new, path)
    assert file.records() == before
    assert not any(is_stored(file, id) for id in sent.ids)
    sent.fails = False
    with hsparse.open(address, "w") as new:
        assert isinstance(new, hsparse.File)
        assign(new, path)
        new["more"] = [4]
        assert set(new) == {path.strip("/").partition("/")[0], "more"}
        assert new[path].name == f"/{path.strip('/')}"
        assert not new.attrs
    assert all(seen == sorted(before) for seen in sent.seen)
    assert not any(is_stored(file, record["id"]) for record in before.values())


@pytest.mark.parametrize("create", ["create_dataset", "create_sparse"])
def test_mode_w_leaves_a_file_as_it_was_if_its_first_dataset_is_refused(
    file: hsparse.File, create: str
) -> None:
    file["a/x"] = [1, 2]
    before = file.records()
    address = f"{file.connection.url}{file.filename}"
    data = {"data": [1, 2]} if create == "create_dataset" else {"shape": (5,), "dtype": "i4"}
    with pytest.raises(BadRequest), hsparse.open(address, "w") as new:
        getattr(new, create)("x", chunks=(0,), **data)
    assert file.records() == before
    with hsparse.open(address, "w") as new:
        assert getattr(new, create)("b/x", **data).name == "/b/x"
        assert list(new) == ["b"]
