"""Flags by which commands sign in."""

from __future__ import annotations

import argparse
import io
from pathlib import Path

import pytest

from hsparse.cli.server_flags import ENDPOINT, add_server_flags, connecting
from hsparse.errors import BadRequest


def parsed(*flags: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_server_flags(parser)
    return parser.parse_args(flags)


def test_a_server_without_users() -> None:
    with connecting(parsed(), "/home/a.h5")() as connection:
        assert (connection.url, connection.domain) == (ENDPOINT, "/home/a.h5")


def test_a_password_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("secret\nmore\n"))
    opening = connecting(parsed("--user", "ada"))
    with opening(), opening():
        pass
    assert input() == "more"


def test_a_token_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="cannot be read"):
        connecting(parsed("--token-file", str(tmp_path / "none")))
