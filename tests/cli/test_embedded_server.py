from __future__ import annotations

from pathlib import Path

import pytest

from hsparse.cli.embedded_server import embedded_server
from hsparse.client.connection import Connection
from hsparse.client.errors import Unreachable
from hsparse.config import load_settings
from hsparse.errors import Misconfigured


def test_it_serves_while_the_context_lasts(tmp_path: Path) -> None:
    with embedded_server(load_settings(root=tmp_path, port=0)) as url, Connection(url) as connection:
        assert connection.json("GET", "/about")["state"] == "READY"
    with Connection(url) as connection, pytest.raises(Unreachable):
        connection.json("GET", "/about")


def test_what_it_stored_is_there_for_the_next(tmp_path: Path) -> None:
    settings = load_settings(root=tmp_path, port=0, fsync=False)
    with embedded_server(settings) as url, Connection(url, "/a.h5") as connection:
        root = connection.json("PUT", "/", {})["root"]
    with embedded_server(settings) as url, Connection(url, "/a.h5") as connection:
        assert connection.json("GET", "/")["root"] == root


def test_it_stops_when_the_body_fails(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), embedded_server(load_settings(root=tmp_path, port=0)) as url:
        raise ZeroDivisionError
    with Connection(url) as connection, pytest.raises(Unreachable):
        connection.json("GET", "/about")


def test_what_it_cannot_start_for_is_raised(tmp_path: Path) -> None:
    with (
        embedded_server(load_settings(root=tmp_path / "a", port=0)) as url,
        pytest.raises(Misconfigured, match="Cannot listen"),
        embedded_server(load_settings(root=tmp_path / "b", port=int(url.rpartition(":")[2]))),
    ):
        pytest.fail("two servers listen on one port")


def test_a_directory_has_one_server(tmp_path: Path) -> None:
    settings = load_settings(root=tmp_path, port=0)
    with (
        embedded_server(settings),
        pytest.raises(Misconfigured, match="is served already"),
        embedded_server(settings),
    ):
        pytest.fail("two servers serve one directory")
