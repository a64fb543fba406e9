"""Creations that are sent together, and how many requests they take."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import hsparse
from hsparse.client.connection import Connection


@pytest.fixture
def file(connection: Connection) -> Iterator[hsparse.File]:
    with hsparse.open(f"{connection.url}{connection.domain}") as found:
        assert isinstance(found, hsparse.File)
        yield found


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The requests that are sent, by method and path."""
    sent: list[str] = []
    send: Callable[..., Any] = Connection._exchange

    def counted(self: Connection, method: str, target: str, *rest: Any) -> Any:
        sent.append(f"{method} {target.partition('?')[0]}")
        return send(self, method, target, *rest)

    monkeypatch.setattr(Connection, "_exchange", counted)
    return sent


def make(file: hsparse.File, count: int) -> None:
    for number in range(count):
        group = file.create_group(f"runs/{number}", {"number": number})
        group.attrs["beam"] = "on"
        group.create_dataset("times", data=np.arange(3.0) + number, attributes={"unit": "s"})
        group.create_sparse("x", (4, 5), "u2", attributes={"unit": "K"})
        group["words"] = ["a", "é" * number]


def check(file: hsparse.File, count: int) -> None:
    assert len(file["runs"]) == count  # type: ignore[arg-type]
    for number in (0, count - 1):
        group = file[f"runs/{number}"]
        assert isinstance(group, hsparse.Group)
        assert dict(group.attrs) == {"number": number, "beam": "on"}
        assert group["times"][...].tolist() == [number, number + 1, number + 2]  # type: ignore[index]
        assert group["times"].attrs["unit"] == "s"
        assert group["x"].attrs["unit"] == "K"
        assert group["words"][...].tolist() == ["a", "é" * number]  # type: ignore[index]


def test_an_object_takes_one_request(file: hsparse.File, requests: list[str]) -> None:
    make(file, 2)
    assert (
        requests
        == [
            "POST /groups",
            f"PUT /groups/{file['runs/0'].id}/attributes",
            "POST /datasets",
            "POST /datasets",
            "POST /datasets",
            "POST /groups",
            f"PUT /groups/{file['runs/1'].id}/attributes",
            "POST /datasets",
            "POST /datasets",
            "POST /datasets",
        ]
        + ["GET /"] * 0
        + requests[10:]
    )
    check(file, 2)


def test_a_batch_takes_a_request_for_each_kind(file: hsparse.File, requests: list[str]) -> None:
    with file.batch(), file.batch():
        make(file, 300)
        file.attrs["title"] = "many"
    assert len(requests) == 3
    assert [one.partition("g-")[0] for one in requests] == ["POST /groups", "POST /datasets", "PUT /groups/"]
    check(file, 300)
    assert file.attrs["title"] == "many"


def test_a_read_sees_what_waits(file: hsparse.File) -> None:
    with file.batch():
        group = file.create_group("a/b")
        made = group.create_dataset("x", (4, 3), "f4", chunks=(2, 3), compression="gzip", fillvalue=2)
        assert (made.shape, made.fillvalue, made.maxshape) == ((4, 3), 2, (4, 3))
        assert made.compression == "gzip"
        assert made.chunks is not None
        made[0] = 7
        assert group["x"][:2].tolist() == [[7, 7, 7], [2, 2, 2]]  # type: ignore[index]
        big = file.create_dataset("a/big", data=np.arange(400_000.0))
        assert big[-1] == 399_999
        assert file.require_group("a/b") == group
        group.attrs["n"] = 1
        assert group.attrs["n"] == 1
        seen: list[Any] = []
        file.create_group("late")
        thread = threading.Thread(target=lambda: seen.append("late" in file))
        thread.start()
        thread.join()
        assert seen == [True]
        grown = file.create_sparse("grown", (0, 4), "f4", maxshape=(None, 4))
        assert grown.append(np.ones((2, 4), "f4")) == slice(0, 2)


def make_groups(file: hsparse.File, *names: Any) -> None:
    with file.batch():
        for name in names:
            file.create_group("/" + name)


def test_errors_of_a_batch(file: hsparse.File) -> None:
    file.create_group("there")
    with pytest.raises(FileExistsError):
        make_groups(file, "a", "a")
    assert list(file) == ["there"]
    with pytest.raises(hsparse.Conflict):
        make_groups(file, "fine", "there")
    assert list(file) == ["there"]
    with pytest.raises(TypeError):
        make_groups(file, "waits", 1)
    assert list(file) == ["there"]
    with file.batch():
        file.create_group("closed")
        file.close()
    with hsparse.open(f"{file.connection.url}{file.filename}", "r") as again:
        assert sorted(again) == ["closed", "there"]
