"""`hsparse rm` against a server."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import pytest

from hsparse.cli.main import main
from hsparse.cli.tree import rm
from tests.cli.tree.conftest import Run, is_gone


def test_domains_by_a_pattern(run: Run, made: str, folder: str, embedded_url: str) -> None:
    run("cp", made, f"{folder}/tmp1.h5")
    run("cp", made, f"{folder}/tmp2.h5")
    assert run("rm", f"{folder}/tmp*") == [f"removed {folder}/tmp1.h5", f"removed {folder}/tmp2.h5"]
    assert is_gone(embedded_url, f"{folder}/tmp1.h5")
    assert run("ls", folder) == [made]


def test_folders(run: Run, made: str, folder: str) -> None:
    run("mkdir", "-p", f"{folder}/a/b")
    run("cp", made, f"{folder}/a/b")
    (said,) = run("rm", f"{folder}/a", status=2)
    assert said == (
        f"hsparse: The folder {folder}/a is not empty: delete what is in it first, or all of it by hsparse rm -r."
    )
    gone = [json.loads(line)["path"] for line in run("rm", "-r", "--json", f"{folder}/a")]
    assert gone == [f"{folder}/a/b/some.h5", f"{folder}/a/b/", f"{folder}/a/"]
    run("mkdir", f"{folder}/empty")
    assert run("rm", f"{folder}/empty") == [f"removed {folder}/empty/"]


def test_nothing_is_deleted_if_something_is_missing_or_an_object(run: Run, made: str, folder: str) -> None:
    run("rm", made, f"{folder}/none.h5", status=2)
    (said,) = run("rm", made, f"{made}/dense", status=2)
    assert f"{made}/dense is a dataset in the domain {made}; name a folder or a domain." in said
    assert run("ls", folder) == [made]


def test_ctrl_c(
    run: Run,
    made: str,
    embedded_url: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupt(*ignored: object) -> None:
        raise KeyboardInterrupt

    capsys.readouterr()  # of the import
    monkeypatch.setattr(rm, "remove", interrupt)
    assert main(["rm", made, "--endpoint", embedded_url]) == 130
    assert capsys.readouterr().err == "Stopped.\n"


def test_what_was_deleted_is_missing_to_every_command(
    run: Run, made: str, folder: str, tmp_path: Path
) -> None:
    """The server says 410 of it; a command says so, and makes it again."""
    again = f"{folder}/again.h5"
    with h5py.File(tmp_path / "small.h5", "w") as file:
        file["x"] = [1, 2]
    run("cp", made, f"{folder}/moved.h5")
    for remake in (
        ("cp", made, again),
        ("import", str(tmp_path / "small.h5"), again),
        ("mv", f"{folder}/moved.h5", again),
    ):
        run("cp", made, again)
        run("rm", again)
        for command in (("ls",), ("info",), ("rm",), ("export",)):
            words = (str(tmp_path / "out.h5"),) if command == ("export",) else ()
            (said,) = run(*command, again, *words, status=2)
            assert again in said
        run(*remake)
        assert again in run("ls", folder)
        run("rm", again)
