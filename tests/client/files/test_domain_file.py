"""Fetching a domain's file: continued, and given up. Whole exports are in `tests/cli/exporter/test_command.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hsparse.client.errors import Unreachable
from hsparse.errors import BadRequest, HsparseError, NotFound
from hsparse.hdf5.domain_file import MAX_BROKEN_CONNECTIONS, DomainFile
from hsparse.hdf5.format.plan.file_form import STOCK

DATA = bytes(range(256)) * 10
STATE, OTHER = "2-stock-" + "01" * 16, "2-stock-" + "02" * 16


class FakeConnection:
    """Answers as a server of one file does, `most` bytes at a time before the connection ends."""

    url = "http://server"

    def __init__(self, most: int, etag: str | None = f'"{STATE}"', domain: str | None = None) -> None:
        self.most = most
        self.etag = etag
        self.domain = domain
        self.asked: list[tuple[str, str, Any, Any]] = []

    def repeated(self, read: Callable[[], Any]) -> Any:
        return read()

    @contextmanager
    def response(
        self, method: str, path: str, headers: Any = None, **params: object
    ) -> Iterator[SimpleNamespace]:
        self.asked.append((method, path, headers, params))
        if method == "HEAD":
            told = {"Content-Length": str(len(DATA))} | ({"ETag": self.etag} if self.etag else {})
            told |= {"X-Hdf-Domain": self.domain} if self.domain else {}
            yield SimpleNamespace(status=200, headers=told)
            return
        assert headers["If-Match"] == self.etag
        start = int(headers["Range"].removeprefix("bytes=").removesuffix("-"))
        left = [DATA[start : start + self.most]]
        yield SimpleNamespace(status=206, read=lambda size: left.pop() if left else b"")


def fetch(connection: Any, target: Path, domain: str = "/home/f.h5") -> list[tuple[int, int]]:
    told: list[tuple[int, int]] = []
    DomainFile(connection, domain, STOCK).fetch(target, lambda have, size: told.append((have, size)))
    return told


def test_a_connection_that_ends_early_is_no_end(tmp_path: Path) -> None:
    connection = FakeConnection(1000)
    told = fetch(connection, tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == DATA
    assert told == [(have, len(DATA)) for have in (0, 1000, 2000, 2560)]
    assert [one[0] for one in connection.asked] == ["HEAD", "GET", "GET", "GET"]
    assert {one[1] for one in connection.asked} == {"/files/home/f.h5"}
    assert connection.asked[0][3] == {"layout": "stock"}


def test_a_part_of_the_same_state_is_continued_and_others_go(tmp_path: Path) -> None:
    (tmp_path / f"f[1].{STATE}.part").write_bytes(DATA[:2000])
    kept = [f"f1.{OTHER}.part", f"f[1].{OTHER}.other", "f[1].csv.part", f"f[1].h5.{OTHER}.part"]
    for other in (f"f[1].{OTHER}.part", *kept):
        (tmp_path / other).write_bytes(b"x")
    connection = FakeConnection(10_000)
    fetch(connection, tmp_path / "f[1]")
    assert connection.asked[1][2]["Range"] == "bytes=2000-"
    assert (tmp_path / "f[1]").read_bytes() == DATA
    assert sorted(one.name for one in tmp_path.iterdir()) == sorted(["f[1]", *kept])


def test_a_part_that_is_longer_than_the_file_counts_for_nothing(tmp_path: Path) -> None:
    (tmp_path / f"f.{STATE}.part").write_bytes(DATA + b"x")
    fetch(FakeConnection(10_000), tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == DATA


def test_it_is_given_up_when_nothing_comes(tmp_path: Path) -> None:
    connection = FakeConnection(0)
    with pytest.raises(Unreachable):
        fetch(connection, tmp_path / "f")
    assert len(connection.asked) == 1 + MAX_BROKEN_CONNECTIONS
    assert not (tmp_path / "f").exists()


def test_a_server_that_does_not_say_what_it_has(tmp_path: Path) -> None:
    for etag in (None, 'W/"e"', '"../e"'):
        with pytest.raises(HsparseError, match="without the file's etag or size"):
            fetch(FakeConnection(10, etag), tmp_path / "f")
    assert not list(tmp_path.iterdir())


def test_the_path_of_a_domain(tmp_path: Path) -> None:
    connection = FakeConnection(10_000)
    fetch(connection, tmp_path / "f", "/home/plain")
    assert connection.asked[0][1] == "/files/home/plain"
    with pytest.raises(BadRequest, match="absolute path"):
        fetch(connection, tmp_path / "f", "plain")


def test_the_file_of_another_domain(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is /home/f"):
        fetch(FakeConnection(10_000, domain="/home/f"), tmp_path / "f", "/home/f.h5")
    fetch(FakeConnection(10_000, domain="/home/gr%C3%B6%C3%9Fe"), tmp_path / "f", "/home/größe")
