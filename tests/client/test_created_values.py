"""Datasets that are created with their values: seen when these are written, and not at all if that fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import hsparse
from hsparse.client.connection import Connection
from hsparse.client.errors import AlreadyExists, Unreachable, WrongType
from hsparse.errors import Gone, NotFound, OverQuota

BIG = np.arange(1_000_000.0)


@pytest.fixture
def file(connection: Connection) -> hsparse.File:
    found = hsparse.open(f"{connection.url}{connection.domain}")
    assert isinstance(found, hsparse.File)
    return found


def assign(file: hsparse.File) -> None:
    file["a/b/x"] = BIG


def create(file: hsparse.File) -> None:
    file.create_dataset("a/b/x", data=BIG.reshape(1000, -1), chunks=(100, 100), attributes={"unit": "s"})


def texts(file: hsparse.File) -> None:
    file.require_group("a").create_dataset("b/x", data=np.array(["long" * 1000] * 1000, object))


def matrix(file: hsparse.File) -> None:
    hsparse.from_scipy(file, "a/b/x", scipy.sparse.csr_array(BIG.reshape(1000, -1)), progress=False)


def sparse(file: hsparse.File) -> None:
    file.create_sparse("a/b/x", data=BIG.reshape(1000, -1))


WAYS = [assign, create, texts, matrix, sparse]


class Failing:
    """A connection's `json` that raises at the `number`th request of a method and an end of a path."""

    def __init__(self, connection: Connection, method: str, end: str, error: BaseException) -> None:
        self.whole, self.method, self.end, self.error = connection.json, method, end, error
        self.made: list[str] = []

    def __call__(self, method: str, path: str, body: Any = None, **params: Any) -> Any:
        if method == self.method and path.endswith(self.end):
            raise self.error
        found = self.whole(method, path, body, **params)
        if method == "POST" and path == "/datasets":
            self.made.append(found["id"])
        return found


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("end", ["/value", "/links"])
@pytest.mark.parametrize("error", [OverQuota("full"), KeyboardInterrupt()], ids=["over quota", "Ctrl-C"])
def test_nothing_is_left_of_one_that_is_not_filled(
    file: hsparse.File,
    monkeypatch: pytest.MonkeyPatch,
    way: Callable[[hsparse.File], None],
    end: str,
    error: BaseException,
) -> None:
    failing = Failing(file.connection, "PUT", end, error)
    monkeypatch.setattr(file.connection, "json", failing)
    with pytest.raises(type(error)):
        way(file)
    monkeypatch.undo()
    assert "a/b/x" not in file
    assert len(failing.made) == 1
    if end == "/links" and isinstance(error, KeyboardInterrupt):
        return  # the link may be there by then
    with pytest.raises((Gone, NotFound)):
        file.connection.json("GET", f"/datasets/{failing.made[0]}")
    way(file)
    assert file["a/b/x"].size >= 1000  # type: ignore[union-attr]


def test_paths_from_the_root(file: hsparse.File) -> None:
    group = file.create_group("a/b")
    group["/c/x"] = BIG
    group["c/x"] = BIG
    assert sorted(file.records()) == ["a", "a/b", "a/b/c", "a/b/c/x", "c", "c/x"]


@pytest.mark.parametrize("way", WAYS)
def test_a_path_that_is_taken_is_found_before_values_are_sent(
    file: hsparse.File, monkeypatch: pytest.MonkeyPatch, way: Callable[[hsparse.File], None]
) -> None:
    file["a/b/x"] = 7
    monkeypatch.setattr(file.connection, "json", Failing(file.connection, "PUT", "/value", AssertionError()))
    with pytest.raises(AlreadyExists):
        way(file)
    assert file["a/b/x"][()] == 7  # type: ignore[index, call-overload]


def test_what_others_linked_meanwhile_stays(file: hsparse.File, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = file.connection.json

    def json(method: str, path: str, body: Any = None, **params: Any) -> Any:
        found = whole(method, path, body, **params)
        if path.endswith("/value") and "x" not in list(file):
            whole("POST", "/datasets", {"type": "H5T_STD_I8LE", "h5path": "/x"})
        return found

    monkeypatch.setattr(file.connection, "json", json)
    with pytest.raises(AlreadyExists, match="exists"):
        file["x"] = BIG
    assert file["x"].shape == ()  # type: ignore[union-attr]


def test_it_stays_if_it_may_be_linked(file: hsparse.File, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = Failing(file.connection, "PUT", "/links", Unreachable("no answer"))
    monkeypatch.setattr(file.connection, "json", failing)
    with pytest.raises(Unreachable):
        file["x"] = BIG
    monkeypatch.undo()
    assert file.connection.json("GET", f"/datasets/{failing.made[0]}")["shape"]["dims"] == [1_000_000]


def test_small_values_are_sent_with_the_creation(file: hsparse.File, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file.connection, "json", Failing(file.connection, "PUT", "", AssertionError()))
    for number, data in enumerate([7, [0.5, 1.5], ["a", ""], "text", [True], np.zeros(3, "S4")]):
        file.create_dataset(f"{number}/x", data=data, attributes={"unit": "s"})
        found = file[f"{number}/x"]
        assert np.array_equal(found[()], np.asarray(data))  # type: ignore[index, call-overload]
        assert found.attrs["unit"] == "s"


def test_nothing_is_created_for_what_has_no_type(file: hsparse.File) -> None:
    with pytest.raises(WrongType):
        file["x"] = [object()]
    with pytest.raises(WrongType):
        file.create_dataset("x", data=[1], attributes={"a": object()})
    assert list(file) == []
