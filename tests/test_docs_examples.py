"""The examples on the pages, run against a server: commands print what the page says, Python runs."""

from __future__ import annotations

import runpy
import shlex
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs_pages import SERVER, blocks, commands
from tests.support.server_process import server_process

MARK = "==== command {} ===="
CONSOLE_PAGES = ("README.md", "docs/rest.md", "docs/errors.md")
HOST = SERVER.removeprefix("http://")
PLACEHOLDERS = ("d-...", "elements.arrow")
"""What stands for something else in an example: such an example is only compiled."""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root = tmp_path_factory.mktemp("root")
    with server_process("--root", str(root), "--no-fsync") as server:
        yield server.url
        assert server.stop() == 0


@pytest.mark.needs("bash", "curl", "jq", "od")
@pytest.mark.parametrize("name", CONSOLE_PAGES)
def test_console_examples_print_what_the_page_says(name: str, url: str, tmp_path: Path) -> None:
    check_console(name, url, tmp_path)


@pytest.mark.needs("bash", "curl", "jq")
def test_the_session_of_the_readme_can_be_repeated(url: str, tmp_path: Path) -> None:
    for _ in range(2):
        check_console("README.md", url, tmp_path)


def check_console(name: str, url: str, tmp_path: Path) -> None:
    """Run the console examples of a page one after the other, and compare what they print."""
    examples = commands(name)
    assert examples
    script = [f"echo; echo '{MARK.format(i)}'\n{one.text}" for i, one in enumerate(examples)]
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "\n".join(script).replace(SERVER, url)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for place, one in enumerate(examples):
        output = done.stdout.partition(MARK.format(place))[2].partition(MARK.format(place + 1))[0]
        assert one.matches(output), f"{name}: {one.text}\nprints {output.strip()}\nnot    {one.output}"


def test_the_files_of_the_readme_go_out_and_in(url: str, tmp_path: Path) -> None:
    """The domain of its Python example: exported, imported again, and downloaded; curl is replaced by urllib."""
    python = [[sys.executable, "-c", blocks("README.md", "python")[0].replace(SERVER, url)]]
    (script,) = [block for block in blocks("README.md", "sh") if "hsparse export" in block]
    lines = [shlex.split(line.replace(SERVER, url)) for line in script.splitlines()]
    assert [line[0] for line in lines] == [".venv/bin/hsparse", ".venv/bin/hsparse", "curl"]
    ours = [[sys.executable, "-m", "hsparse.cli.main", *line[1:], "--endpoint", url] for line in lines[:2]]
    for command in python + ours:
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
    with urllib.request.urlopen(lines[2][-1], timeout=60) as answer:
        assert answer.read() == (tmp_path / "copy.h5").read_bytes()


FROM = ("docs/from-hsds.md", "docs/from-tiledb-soma.md", "docs/from-zarr.md")
PYTHON = [
    pytest.param(code, id=f"{name}-{number}")
    for name in (
        "README.md",
        "docs/clients.md",
        "docs/python.md",
        "docs/rest.md",
        "docs/versions.md",
        "docs/virtual.md",
    )
    for number, code in enumerate(blocks(name, "python"))
]
PYTHON += [
    pytest.param("".join(blocks(name, "python")), id=name)
    for name in ("docs/anndata.md", "docs/detector.md", *FROM)
]
"""On a page for one kind of users each example goes on with what the one before has stored."""


@pytest.mark.parametrize("code", PYTHON)
def test_python_examples_run(
    code: str,
    url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In this process: another one would begin with imports, which take longer."""
    compile(code, "page", "exec")
    if any(one in code for one in PLACEHOLDERS):
        return
    path = tmp_path / "example.py"
    path.write_text(code.replace(HOST, url.removeprefix("http://")))
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(path), run_name="__main__")
    printed = capsys.readouterr().out
    for line in code.splitlines():
        _, marked, shown = line.partition("  # prints ")
        assert not marked or shown in printed.splitlines(), f"{line} prints {printed}"
