"""Results that are too large: refused before they are fetched, by every read that grows with what is asked for."""

from __future__ import annotations

import http.client
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import anndata
import numpy as np
import pytest
import scipy.sparse as sp

import hsparse
from hsparse.client import memory_limit
from hsparse.client.connection import Connection
from hsparse.client.errors import ResultTooLarge
from hsparse.client.file import File
from hsparse.client.sparse import sparse_reads

ROWS, COLUMNS = 1000, 100
SPARSE: dict[str, Callable[[Any], Any]] = {
    "a key": lambda x: x[...],
    "a list": lambda x: x[np.arange(ROWS)],
    "a key with repeats": lambda x: x[[0, 1] * 2000],
    "an orthogonal key": lambda x: x.oindex[np.arange(ROWS), np.arange(0, COLUMNS)],
    "paired lists": lambda x: x[[0] * 9000, [0] * 9000],
    "read": lambda x: x.read(),
    "read_dense": lambda x: x.read_dense(),
    "read_points": lambda x: x.read_points([[0, 0]] * 9000),
    "defined": lambda x: x.defined(),
    "to_scipy": lambda x: x.to_scipy("csc"),
    "to_coo": lambda x: x.to_coo(),
    "to_numpy": lambda x: x.to_numpy(),
    "to_arrow": lambda x: x.to_arrow(),
    "np.asarray": lambda x: np.asarray(x),
    "iter_rows": lambda x: list(x.iter_rows(999)),
    "sum": lambda x: x.sum(axis=1),
    "reduce": lambda x: x.reduce("mean", axis=1),
}
DENSE: dict[str, Callable[[Any], Any]] = {
    "a key": lambda x: x[...],
    "a list": lambda x: x[[0] * 500],
    "to_numpy": lambda x: x.to_numpy(slice(0, 900)),
    "np.asarray": lambda x: np.asarray(x),
    "iter_rows": lambda x: list(x.iter_rows(999)),
    "sum": lambda x: x.sum(axis=1),
}


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The requests for values."""
    found: list[str] = []
    request = http.client.HTTPConnection.request

    def note(self: Any, method: str, target: str, *rest: Any, **options: Any) -> None:
        # a question for a number of elements is none
        is_count = "count_only" in target or (method == "POST" and "/defined" in target)
        if not is_count and ("/value" in target or "/defined" in target or "/reduce" in target):
            found.append(f"{method} {target}")
        request(self, method, target, *rest, **options)

    monkeypatch.setattr(http.client.HTTPConnection, "request", note)
    return found


def open_file(connection: Connection, max_bytes: int | None = None, direct: Any = None) -> File:
    found = hsparse.open(f"{connection.url}{connection.domain}", max_bytes=max_bytes, direct=direct)
    assert isinstance(found, File)
    return found


def test_of_datasets(connection: Connection, fetched: list[str]) -> None:
    with open_file(connection) as file:
        x = file.create_sparse("x", (ROWS, COLUMNS), "i4", (100, 50))
        x.write(np.stack([np.arange(ROWS), np.arange(ROWS) % COLUMNS], 1), np.ones(ROWS, np.int32))
        file.create_dataset("y", data=np.ones((ROWS, COLUMNS), np.float32))
        file["texts"] = np.array(["a"] * ROWS, object)
    with open_file(connection, max_bytes=7_000) as file:
        for name, calls in (("x", SPARSE), ("y", DENSE)):
            dataset = file[name]
            fetched.clear()
            for call in calls.values():
                with pytest.raises(MemoryError, match=r"0\.\d\d MB.*iter_rows.*to_dask.*max_bytes") as caught:
                    call(dataset)
                assert isinstance(caught.value, ResultTooLarge)
                assert fetched == []
        with pytest.raises(MemoryError):
            file["texts"][...]
        found = np.concatenate([block.toarray() for block in file["x"].iter_rows(100)])
        assert np.array_equal(found, np.eye(COLUMNS)[np.arange(ROWS) % COLUMNS])
        assert sum(block.sum() for block in file["y"].iter_rows(7)) == ROWS * COLUMNS
        assert file["y"][:7].shape == (7, COLUMNS)


@pytest.mark.parametrize("direct", [False, "server"])
def test_with_a_high_limit_the_number_of_elements_is_asked_for_when_many_come(
    connection: Connection, fetched: list[str], monkeypatch: pytest.MonkeyPatch, direct: Any
) -> None:
    monkeypatch.setattr(sparse_reads, "HIGH_LIMIT", 0)
    asked: list[Any] = []
    count_defined = sparse_reads.count_defined
    monkeypatch.setattr(
        sparse_reads, "count_defined", lambda *args: (asked.append(args), count_defined(*args))[1]
    )
    with open_file(connection) as file:
        x = file.create_sparse("x", (ROWS, COLUMNS), "i4", (100, 50))
        x.write(np.stack([np.arange(ROWS), np.arange(ROWS) % COLUMNS], 1), np.ones(ROWS, np.int32))
    for most, is_asked in ((7_000, True), (90_000, direct is False), (399_999, False)):
        with open_file(connection, max_bytes=most, direct=direct) as file:
            for name in ("a key", "read", "to_scipy", "to_coo", "to_arrow"):
                asked.clear()
                with pytest.raises(ResultTooLarge) if most == 7_000 else nullcontext():
                    SPARSE[name](file["x"])
                assert bool(asked) == is_asked, (name, most)


def test_of_an_anndata(connection: Connection, fetched: list[str]) -> None:
    data = anndata.AnnData(sp.random_array((500, 40), density=0.5, dtype=np.float32, format="csr", rng=1))
    with open_file(connection) as file:
        file.write_anndata(data)
    with open_file(connection, max_bytes=60_000) as file:
        fetched.clear()
        for call in (file.to_anndata, file.query().to_anndata, file.query().to_scipy):
            with pytest.raises(ResultTooLarge, match=r"MB.*query.*iter.*lazy=True.*max_bytes"):
                call()
        assert fetched == []
        parts = [part.X for part in file.query().iter(100)]
        assert (sp.vstack(parts) != data.X).nnz == 0
        assert file.to_anndata(lazy=True).shape == (500, 40)
        assert file.query(obs=slice(0, 5)).to_anndata().shape == (5, 40)


def test_the_limit_is_a_third_of_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_limit, "machine_memory", lambda: 3_000_000)
    assert memory_limit.default_limit() == 1_000_000
