"""Bad input to datasets: numpy's error, before anything is sent but a question for the extent."""

from __future__ import annotations

import http.client
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from hsparse.client.connection import Connection
from hsparse.client.errors import InvalidValue, NoSuchAxis, OutOfRange, WrongType
from hsparse.client.file import File
from hsparse.errors import HsparseError

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


def test_signed_integers_go_into_unsigned_datasets_if_they_fit(file: File, sent: list[str]) -> None:
    x = file.create_sparse("x", (4, 3), ">u2", (2, 2))
    y = file.create_dataset("y", (4, 3), "u2", chunks=(2, 2))
    sent.clear()
    for values in (np.array([-1, 5]), np.array([5, 65536])):
        for call in (lambda: x.write([[0, 0], [1, 1]], values), lambda: y.__setitem__((0, [0, 1]), values)):  # noqa: B023
            with pytest.raises(InvalidValue, match="do not fit a dataset of"):
                call()
    assert sent == []
    x.write([[0, 0], [1, 1]], np.array([0, 65535]))
    y[0, [0, 1]] = np.array([0, 65535])
    assert x.read_points([[1, 1], [0, 0]]).tolist() == [65535, 0]
    assert y[0].tolist() == [0, 65535, 0]


@pytest.fixture
def file(connection: Connection) -> File:
    return File(connection, connection.json("GET", "/"))


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The requests that are sent, but questions for the extent."""
    found: list[str] = []
    request = http.client.HTTPConnection.request

    def note(self: Any, method: str, target: str, *rest: Any, **options: Any) -> None:
        if method != "GET" or "/shape" not in target:
            found.append(f"{method} {target}")
        request(self, method, target, *rest, **options)

    monkeypatch.setattr(http.client.HTTPConnection, "request", note)
    return found


def test_of_sparse_datasets(file: File, sent: list[str]) -> None:
    x = file.create_sparse("x", (4, 3), "i4", (2, 2), maxshape=(None, 3))
    sent.clear()
    for own, builtin, calls in KINDS:
        assert issubclass(own, builtin)
        for name, call in calls.items():
            with pytest.raises(own) as caught:
                call(x)
            assert isinstance(caught.value, builtin), name
            assert sent == [], name
    assert x.refresh() == (4, 3)
    assert x.nnz == 0


def test_of_dense_datasets(file: File, sent: list[str]) -> None:
    x = file.create_dataset("x", (4, 3), "i4", chunks=(2, 2))
    sent.clear()
    for name, (own, call) in DENSE.items():
        with pytest.raises(own):
            call(x)
        assert sent == [], name
    assert not x[...].any()


def test_what_others_have_appended_is_no_error(file: File) -> None:
    x = file.create_sparse("x", (4, 3), "i4", (2, 2), maxshape=(None, 3))
    other = file["x"]
    other.extend(2)
    x.write([[5, 0]], [7])
    assert other.read_points([[5, 0]]).tolist() == [7]
