"""`hsparse job` against a server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import h5py
import pytest

from hsparse.cli.main import main, parse_arguments
from hsparse.hdf5.jobs import command as job
from tests.support.server_process import server_process


@pytest.fixture(autouse=True)
def prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "POLL_SECONDS", 0.05)


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "files").mkdir()
    with h5py.File(tmp_path / "files/run.h5", "w") as file:
        file["x"] = [1, 2, 3]
    flags = ("--root", str(tmp_path / "root"), "--no-fsync", "--job-places", f"file://{tmp_path}/files")
    with server_process(*flags) as server:
        yield server.url
        assert server.stop() == 0


def test_there_and_back(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*words: str, status: int = 0) -> str:
        assert main(["job", *words, "--endpoint", url]) == status
        return capsys.readouterr().out

    source, target = f"file://{tmp_path}/files/run.h5", f"file://{tmp_path}/files/out.h5"
    domain = "/home/admin/run.h5"
    first = run("import", source, domain, "--option", "path=2024", "--option", "requests=2", "--wait").strip()
    assert json.loads(run("show", first))["options"] == {"path": "2024", "requests": 2}
    second = run("export", domain, target, "--option", "layout=structured").strip()
    run("wait", second)
    assert (tmp_path / "files/out.h5").exists()
    third = run("export", domain, target, "--wait", status=2).strip()
    assert run("list").splitlines() == [
        f"{first} done      import {domain}",
        f"{second} done      export {domain}",
        f"{third} failed    export {domain}",
    ]
    run("cancel", first)
    run("show", first, status=2)
    run("export", domain, target, "--option", "force", "--wait")
    run("import", source, domain, status=2)


def test_a_copy_is_begun(capsys: pytest.CaptureFixture[str]) -> None:
    sent: list[tuple[object, ...]] = []

    class Server:
        def json(self, *request: object) -> dict[str, str]:
            sent.append(request)
            return {"id": "j-1"}

    args = parse_arguments(["job", "copy", "/home/ada/a.h5", "/home/ada/b.h5"])
    assert job._begin(args, cast(Any, Server()), cast(Any, Server())) == 0
    body = {"kind": "copy", "domain": "/home/ada/b.h5", "source": "/home/ada/a.h5", "options": {}}
    assert sent == [("POST", "/jobs", body)]
    assert capsys.readouterr().out == "j-1\n"


def test_what_a_job_failed_by(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "job",
        "import",
        f"file://{tmp_path}/files/none.h5",
        "/home/admin/none.h5",
        "--wait",
        "--endpoint",
        url,
    ]
    assert main(words) == 2
    assert f"hsparse: There is no file {tmp_path}/files/none.h5." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("found", "kind", "words"),
    [
        ({"status": "cancelled"}, "internal", "The job j-1 was cancelled."),
        ({"status": "failed", "error": {"kind": "conflict", "message": "There."}}, "conflict", "There."),
        ({"status": "failed", "error": {"kind": "new", "message": "There."}}, "internal", "There."),
    ],
)
def test_failures(found: dict[str, object], kind: str, words: str) -> None:
    error = job._failure({"id": "j-1", **found})
    assert (error.kind, error.message) == (kind, words)
