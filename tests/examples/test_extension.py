"""The example of an extension: its route, its policy and its command are there once its package is installed."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from hsparse import extension
from hsparse.cli.embedded_server import embedded_server
from hsparse.cli.main import main
from hsparse.client.connection import Connection
from hsparse.config import load_settings

EXAMPLES = Path(__file__).parents[2] / "examples"
POINT = EntryPoint("greeting", "extension:EXTENSION", extension.GROUP)


def test_an_extension_adds_a_route_a_policy_and_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    metadata = extension.METADATA.load()
    monkeypatch.setattr(metadata, "entry_points", lambda group: (POINT,) if group == extension.GROUP else ())
    extension.extensions.cache_clear()
    try:
        with (
            embedded_server(load_settings(root=tmp_path, port=0)) as url,
            Connection(url, "/a.h5") as connection,
        ):
            assert connection.json("GET", "/greeting") == {"hello": "admin"}
            connection.json("PUT", "/", {})
            request = Request(f"{url}/?domain=/a.h5", method="DELETE")
            with urlopen(request) as answer:
                assert answer.headers["X-Thanks"] == "admin"
        assert not main(["greet"])
        assert capsys.readouterr().out == "hello\n"
    finally:
        extension.extensions.cache_clear()
    assert len((EXAMPLES / "extension.py").read_text().splitlines()) <= 40
