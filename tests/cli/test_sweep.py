"""`hsparse sweep` on a directory: what it prints, and what it leaves."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from hsparse.cli.main import main

ROOT = "g-01234567-89abcdef-89ab-cdef01-234567"


@pytest.fixture
def chunk(tmp_path: Path) -> Path:
    """A chunk that no domain has, made in 2001."""
    path = tmp_path / "store/db/01234567-89abcdef/d/0000-000000-000000/0_0"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"chunk")
    os.utime(path, (1e9, 1e9))
    return path


def sweep(chunk: Path, *flags: str) -> int:
    return main(["sweep", "--root", str(chunk.parents[4]), "--no-put-log", *flags])


def test_a_dry_run_says_what_a_sweep_removes(chunk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep(chunk, "--dry-run") == 0
    line = f"store: objects without a root group {ROOT}: 1 objects, 5 bytes\n"
    assert capsys.readouterr().out == line + "1 found; 1 objects, 5 bytes would be removed\n"
    assert chunk.read_bytes() == b"chunk"
    assert sweep(chunk) == 0
    assert capsys.readouterr().out == line + "1 found; 1 objects, 5 bytes removed\n"
    assert not chunk.exists()


def test_progress_for_programs(chunk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep(chunk, "--progress", "json") == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[0]["done"] >= 5
    assert [line["message"] for line in lines if "message" in line][-1].startswith("1 found")


def test_what_is_young_stays(chunk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep(chunk, "--min-age", "1e9") == 0
    assert capsys.readouterr().out == "0 found; 0 objects, 0 bytes removed\n"
    assert chunk.exists()


@pytest.mark.parametrize("hours", ["-1", "nan"])
def test_a_bad_age_is_refused(chunk: Path, capsys: pytest.CaptureFixture[str], hours: str) -> None:
    assert sweep(chunk, f"--min-age={hours}") == 2
    assert "--min-age is a number of hours" in capsys.readouterr().err
    assert chunk.exists()


def test_a_directory_that_is_not_there_is_not_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", "--root", str(tmp_path / "nothing")]) == 2
    assert "name a store by --root or --bucket" in capsys.readouterr().err
    assert not (tmp_path / "nothing").exists()
