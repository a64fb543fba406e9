"""Imports into one server, all at once, with flags, and stopped on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import hsparse
from hsparse.cli.main import main
from hsparse.client.connection import Connection
from hsparse.client.http.retrying_client import RetryingClient

Import = Callable[..., Connection]
Refused = Callable[..., str]


class Stopped(Exception):
    """The import ends here, as if its process did."""


def stop_after(count: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let `count` requests through, then none; return the list that they are noted in."""
    sent: list[str] = []
    json: Callable[..., Any] = RetryingClient.json

    def limited(self: RetryingClient, method: str, path: str, body: Any = None, **params: Any) -> Any:
        if len(sent) >= count:
            raise Stopped
        sent.append(f"{method} {path}")
        return json(self, method, path, body, **params)

    monkeypatch.setattr(RetryingClient, "json", limited)
    return sent


def is_there(connection: Connection) -> bool:
    domains = connection.json("GET", "/domains", domain="/home/admin/")["domains"]
    return connection.domain in [one["name"] for one in domains]


def opened(connection: Connection) -> hsparse.File:
    return hsparse.open(f"{connection.url}{connection.domain}")


def exported(connection: Connection, path: Path, *flags: str) -> Path:
    assert main(["export", str(connection.domain), str(path), "--endpoint", connection.url, *flags]) == 0
    return path


def value_bytes(connection: Connection, path: str) -> bytes:
    id = connection.json("GET", "/datasets/", h5path=path)["id"]
    return connection.binary("GET", f"/datasets/{id}/value")


@pytest.fixture(scope="session")
def url(embedded_url: str) -> str:
    return embedded_url


@pytest.fixture
def connect(url: str, request: pytest.FixtureRequest) -> Iterator[Callable[[], Connection]]:
    """Return a connection to a domain that is not there yet, each time to another one."""
    made: list[Connection] = []

    def run() -> Connection:
        name = f"{request.node.originalname}-{abs(hash(request.node.nodeid))}-{len(made)}.h5"
        made.append(Connection(url, f"/home/admin/{name}"))
        return made[-1]

    yield run
    for connection in made:
        connection.close()


@pytest.fixture
def imported(connect: Callable[[], Connection]) -> Import:
    """Import a file, with flags, and return a connection to the domain that it has become."""

    def run(path: Path | str, *flags: str, status: int = 0) -> Connection:
        connection = connect()
        assert (
            main(["import", str(path), str(connection.domain), "--endpoint", connection.url, *flags])
            == status
        )
        return connection

    return run


@pytest.fixture
def refused(imported: Import, capsys: pytest.CaptureFixture[str]) -> Refused:
    """Import a file that is refused, so that no domain is left, and return what is said of it."""

    def run(path: Path | str, *flags: str) -> str:
        assert not is_there(imported(path, *flags, status=2))
        return capsys.readouterr().err

    return run


@pytest.fixture
def resumed(connect: Callable[[], Connection]) -> Import:
    """Stop the import of a file after some requests, go on with it, and return a connection to its domain."""

    def run(path: Path | str, count: int, *flags: str) -> Connection:
        connection = connect()
        command = ["import", str(path), str(connection.domain), "--endpoint", connection.url, *flags]
        with pytest.MonkeyPatch.context() as patch:
            stop_after(count, patch)
            with pytest.raises(Stopped):
                main([*command, "--keep"])
        assert main([*command, "--resume"]) == 0
        return connection

    return run
