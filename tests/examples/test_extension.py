"""The example of an extension: its route, its policy and its command are there once its package is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
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


@pytest.fixture(autouse=True)
def point(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An entry point, as that of an installed package: by default the example's."""
    one = EntryPoint("greeting", getattr(request, "param", "greeting:EXTENSION"), extension.GROUP)
    monkeypatch.syspath_prepend(EXAMPLES)
    found = lambda group: (one,) if group == extension.GROUP else ()  # noqa: E731
    monkeypatch.setattr(extension.METADATA.load(), "entry_points", found)
    extension.extensions.cache_clear()
    yield
    extension.extensions.cache_clear()


def test_an_extension_adds_a_route_a_policy_and_a_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        embedded_server(load_settings(root=tmp_path, port=0)) as url,
        Connection(url, "/a.h5") as connection,
    ):
        assert connection.json("GET", "/greeting") == {"hello": "admin"}
        connection.json("PUT", "/", {})
        with urlopen(Request(f"{url}/?domain=/a.h5", method="DELETE")) as answer:
            assert answer.headers["X-Thanks"] == "admin"
        assert not main(["greet", "--endpoint", url])
    assert capsys.readouterr().out == "hello admin\n"
    assert sum(len(path.read_text().splitlines()) for path in EXAMPLES.glob("greeting/*.py")) <= 65


def test_its_setting_has_a_variable(tmp_path: Path) -> None:
    (tmp_path / "greeting-1.dist-info").mkdir()
    points = f"[{extension.GROUP}]\ngreeting = greeting:EXTENSION\n"
    (tmp_path / "greeting-1.dist-info" / "entry_points.txt").write_text(points)
    code = (
        "from urllib.request import urlopen\n"
        "from hsparse.cli.embedded_server import embedded_server\n"
        "from hsparse.config import load_settings\n"
        f"with embedded_server(load_settings(root={str(tmp_path / 'store')!r}, port=0)) as url:\n"
        "    print(urlopen(f'{url}/greeting').read().decode())\n"
    )
    variables = {"PYTHONPATH": f"{EXAMPLES}:{tmp_path}", "HSPARSE_GREETING_WORD": "salut"}
    run = [sys.executable, "-c", code]
    assert subprocess.check_output(run, env=os.environ | variables, text=True) == '{"salut":"admin"}\n'


def test_it_is_there_without_the_server_being_imported() -> None:
    code = "import sys, greeting; print(sorted({'aiohttp', 'hsparse.cli', 'hsparse.sn'} & set(sys.modules)))"
    run = [sys.executable, "-c", code]
    assert subprocess.check_output(run, cwd=EXAMPLES, text=True) == "[]\n"


@pytest.mark.parametrize("point", ["greeting:MISSING", "missing_package:EXTENSION"], indirect=True)
def test_one_that_cannot_be_imported_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["greet"]) == 2
    assert "MISSING" in (error := capsys.readouterr().err).upper()
    assert "Update or uninstall its package." in error


def test_one_for_another_version_of_the_api_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(extension, "API_VERSION", extension.API_VERSION + 1)
    assert main(["greet"]) == 2
    assert "needs version 1 of hsparse.api, but this hsparse has version 2" in capsys.readouterr().err
