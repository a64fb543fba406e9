"""Bad input, and results that are too large: refused before anything is sent but a question for the extent."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import anndata
import numpy as np
import pytest
import scipy.sparse as sp

from hsparse.client import memory_limit
from hsparse.client.connection import Connection
from hsparse.client.errors import InvalidValue, NoSuchAxis, OutOfRange, ResultTooLarge, WrongType
from hsparse.client.file import File
from hsparse.client.sparse import sparse_reads
from hsparse.errors import HsparseError
from tests.client.access_ways import open_file

Call = Callable[[Any], Any]
BEYOND: dict[str, Call] = {
    "write": lambda x: x.write([[0, 0], [4, 0]], [1, 2]),
    "write, below 0": lambda x: x.write([[-1, 0]], [1]),
    "write, another rank": lambda x: x.write([[0, 0, 0]], [1]),
    "write, no integers": lambda x: x.write([[0.5, 0]], [1]),
    "write, ragged": lambda x: x.write([[0, 1], [1]], [1, 2]),
    "read_points": lambda x: x.read_points([[0, 3]]),
    "read_points, below 0": lambda x: x.read_points([[0, -1]]),
    "erase_points": lambda x: x.erase_points([[4, 0]]),
    "append": lambda x: x.append([[2, 0]], [1], count=2),
    "append, another rank": lambda x: x.append([[0]], [1], count=2),
    "read, a string": lambda x: x.read("[0:5,:]"),
    "read, no selection": lambda x: x.read("0:5"),
    "read_dense": lambda x: x.read_dense((4, 0)),
    "defined": lambda x: x.defined("[:,3]"),
    "count": lambda x: x.count((slice(None), 3)),
    "erase": lambda x: x.erase((slice(None), 3)),
    "write_region": lambda x: x.write_region((4, 0), 1),
    "to_scipy": lambda x: x.to_scipy("csr", ([0, 4],)),
    "to_coo": lambda x: x.to_coo((0, 3)),
    "to_numpy": lambda x: x.to_numpy((0, 3)),
    "to_arrow": lambda x: x.to_arrow((0, 3)),
    "a mask of another length": lambda x: x[np.ones(3, bool)],
    "a mask of another length, to write": lambda x: x.__setitem__(np.ones(5, bool), 1),
    "a mask of another shape": lambda x: x[np.ones((4, 2), bool)],
    "an orthogonal mask": lambda x: x.oindex[:, np.ones(4, bool)],
    "assignment": lambda x: x.__setitem__((0, 3), 1),
    "reduce": lambda x: x.reduce("sum", select="[0:5,:]", undefined="skip"),
}
NOT_FITTING: dict[str, Call] = {
    "write": lambda x: x.write([[0, 0]], [1, 2]),
    "write_region": lambda x: x.write_region((slice(0, 2), 0), [1, 2, 3]),
    "assignment": lambda x: x.__setitem__(slice(0, 2), np.zeros((2, 4), np.int32)),
    "assignment of a csr": lambda x: x.__setitem__(slice(0, 2), sp.csr_array((3, 3), dtype=np.int32)),
    "append": lambda x: x.append(sp.csr_array((2, 4), dtype=np.int32)),
    "append_region": lambda x: x.append_region(np.zeros((2, 4), np.int32)),
    "append, a value too much": lambda x: x.append([[0, 0]], [1, 2], count=2),
    "an integer too large": lambda x: x.write([[0, 0]], [2**40]),
    "ragged values": lambda x: x.write_region(..., [[1, 2], [3]]),
}
WRONG_TYPE: dict[str, Call] = {
    "write": lambda x: x.write([[0, 0]], [1.5]),
    "write_region": lambda x: x.write_region((0, 0), 1.5),
    "assignment": lambda x: x.__setitem__((0, 0), 1.5),
    "assignment of a csr": lambda x: x.__setitem__(slice(0, 1), sp.csr_array(np.ones((1, 3), np.float32))),
    "append": lambda x: x.append(sp.csr_array(np.ones((1, 3), np.float32))),
    "append, places": lambda x: x.append([[0, 0]], [1.5], count=1),
    "append_region": lambda x: x.append_region(np.zeros((1, 3))),
    "text": lambda x: x.write([[0, 0]], ["a"]),
}
NO_AXIS: dict[str, Call] = {
    "extend": lambda x: x.extend(1, axis=2),
    "append": lambda x: x.append_region(np.zeros((1, 3), np.int32), axis=-3),
    "sum": lambda x: x.sum(axis=2),
}
KINDS: list[tuple[type[HsparseError], type[Exception], dict[str, Call]]] = [
    (OutOfRange, IndexError, BEYOND),
    (InvalidValue, ValueError, NOT_FITTING),
    (WrongType, TypeError, WRONG_TYPE),
    (NoSuchAxis, IndexError, NO_AXIS),
]
DENSE: dict[str, tuple[type[HsparseError], Call]] = {
    "an index": (OutOfRange, lambda x: x[4]),
    "an index, to write": (OutOfRange, lambda x: x.__setitem__((0, 3), 1)),
    "a mask": (OutOfRange, lambda x: x[np.ones(3, bool)]),
    "a shape": (InvalidValue, lambda x: x.__setitem__(..., np.zeros((3, 3), np.int32))),
    "a type": (WrongType, lambda x: x.__setitem__(..., 1.5)),
    "an axis": (NoSuchAxis, lambda x: x.mean(axis=2)),
}


def test_signed_integers_go_into_unsigned_datasets_if_they_fit(file: File, targets: list[str]) -> None:
    x = file.create_sparse("x", (4, 3), ">u2", (2, 2))
    y = file.create_dataset("y", (4, 3), "u2", chunks=(2, 2))
    targets.clear()
    for values in (np.array([-1, 5]), np.array([5, 65536])):
        for call in (lambda: x.write([[0, 0], [1, 1]], values), lambda: y.__setitem__((0, [0, 1]), values)):  # noqa: B023
            with pytest.raises(InvalidValue, match="do not fit a dataset of"):
                call()
    assert changes(targets) == []
    x.write([[0, 0], [1, 1]], np.array([0, 65535]))
    y[0, [0, 1]] = np.array([0, 65535])
    assert (x.read_points([[1, 1], [0, 0]]).tolist(), y[0].tolist()) == ([65535, 0], [0, 65535, 0])


def changes(targets: list[str]) -> list[str]:
    """Return the requests that were sent, but questions for the extent."""
    return [one for one in targets if not (one.startswith("GET") and "/shape" in one)]


def test_of_sparse_datasets(file: File, targets: list[str]) -> None:
    x = file.create_sparse("x", (4, 3), "i4", (2, 2), maxshape=(None, 3))
    targets.clear()
    for own, builtin, calls in KINDS:
        assert issubclass(own, builtin)
        for name, call in calls.items():
            with pytest.raises(own) as caught:
                call(x)
            assert isinstance(caught.value, builtin), name
            assert changes(targets) == [], name
    assert (x.refresh(), x.nnz) == ((4, 3), 0)


def test_of_dense_datasets(file: File, targets: list[str]) -> None:
    x = file.create_dataset("x", (4, 3), "i4", chunks=(2, 2))
    targets.clear()
    for name, (own, call) in DENSE.items():
        with pytest.raises(own):
            call(x)
        assert changes(targets) == [], name
    assert not x[...].any()


ROWS, COLUMNS = 1000, 100
SPARSE_READS: dict[str, Callable[[Any], Any]] = {
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
DENSE_READS: dict[str, Callable[[Any], Any]] = {
    "a key": lambda x: x[...],
    "a list": lambda x: x[[0] * 500],
    "to_numpy": lambda x: x.to_numpy(slice(0, 900)),
    "np.asarray": lambda x: np.asarray(x),
    "iter_rows": lambda x: list(x.iter_rows(999)),
    "sum": lambda x: x.sum(axis=1),
}


def fetched(targets: list[str]) -> list[str]:
    """Return the requests for values; a question for a number of elements is none."""
    counts = re.compile(r"count_only|^POST .*/defined")
    return [one for one in targets if re.search("/(value|defined|reduce)", one) and not counts.search(one)]


def open_limited(connection: Connection, max_bytes: int | None = None, direct: Any = None) -> File:
    return open_file(f"{connection.url}{connection.domain}", max_bytes=max_bytes, direct=direct)


def test_reads_of_datasets(connection: Connection, targets: list[str]) -> None:
    with open_limited(connection) as file:
        x = file.create_sparse("x", (ROWS, COLUMNS), "i4", (100, 50))
        x.write(np.stack([np.arange(ROWS), np.arange(ROWS) % COLUMNS], 1), np.ones(ROWS, np.int32))
        file.create_dataset("y", data=np.ones((ROWS, COLUMNS), np.float32))
        file["texts"] = np.array(["a"] * ROWS, object)
    with open_limited(connection, max_bytes=7_000) as file:
        for name, calls in (("x", SPARSE_READS), ("y", DENSE_READS)):
            dataset = file[name]
            targets.clear()
            for call in calls.values():
                with pytest.raises(MemoryError, match=r"0\.\d\d MB.*iter_rows.*to_dask.*max_bytes") as caught:
                    call(dataset)
                assert isinstance(caught.value, ResultTooLarge)
                assert fetched(targets) == []
        with pytest.raises(MemoryError):
            file["texts"][...]
        found = np.concatenate([block.toarray() for block in file["x"].iter_rows(100)])
        assert np.array_equal(found, np.eye(COLUMNS)[np.arange(ROWS) % COLUMNS])
        assert sum(block.sum() for block in file["y"].iter_rows(7)) == ROWS * COLUMNS
        assert file["y"][:7].shape == (7, COLUMNS)


@pytest.mark.parametrize("direct", [False, "server"])
def test_with_a_high_limit_the_number_of_elements_is_asked_for_when_many_come(
    connection: Connection, targets: list[str], monkeypatch: pytest.MonkeyPatch, direct: Any
) -> None:
    monkeypatch.setattr(sparse_reads, "HIGH_LIMIT", 0)
    asked: list[Any] = []
    count_defined = sparse_reads.count_defined
    monkeypatch.setattr(
        sparse_reads, "count_defined", lambda *args: (asked.append(args), count_defined(*args))[1]
    )
    with open_limited(connection) as file:
        x = file.create_sparse("x", (ROWS, COLUMNS), "i4", (100, 50))
        x.write(np.stack([np.arange(ROWS), np.arange(ROWS) % COLUMNS], 1), np.ones(ROWS, np.int32))
    for most, is_asked in ((7_000, True), (90_000, direct is False), (399_999, False)):
        with open_limited(connection, max_bytes=most, direct=direct) as file:
            for name in ("a key", "read", "to_scipy", "to_coo", "to_arrow"):
                asked.clear()
                with pytest.raises(ResultTooLarge) if most == 7_000 else nullcontext():
                    SPARSE_READS[name](file["x"])
                assert bool(asked) == is_asked, (name, most)


def test_of_an_anndata(connection: Connection, targets: list[str]) -> None:
    data = anndata.AnnData(sp.random_array((500, 40), density=0.5, dtype=np.float32, format="csr", rng=1))
    with open_limited(connection) as file:
        file.write_anndata(data)
    with open_limited(connection, max_bytes=60_000) as file:
        targets.clear()
        for call in (file.to_anndata, file.query().to_anndata, file.query().to_scipy):
            with pytest.raises(ResultTooLarge, match=r"MB.*query.*iter.*lazy=True.*max_bytes"):
                call()
        assert fetched(targets) == []
        parts = [part.X for part in file.query().iter(100)]
        assert (sp.vstack(parts) != data.X).nnz == 0
        assert file.to_anndata(lazy=True).shape == (500, 40)
        assert file.query(obs=slice(0, 5)).to_anndata().shape == (5, 40)


def test_the_limit_is_a_third_of_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_limit, "machine_memory", lambda: 3_000_000)
    assert memory_limit.default_limit() == 1_000_000
