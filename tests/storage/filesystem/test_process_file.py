"""Files of live processes and of dead ones."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from hsparse.storage.filesystem.served_root import create_process_file, open_file_of_dead_process


def test_a_file_is_that_of_a_dead_process_once_it_is_closed(tmp_path: Path) -> None:
    file, path = create_process_file(str(tmp_path))
    assert open_file_of_dead_process(path) is None
    os.close(file)
    dead = open_file_of_dead_process(path)
    assert dead is not None
    assert open_file_of_dead_process(path) is None, "two took it for dead"
    os.close(dead)


def test_a_file_that_is_gone_is_nobodys(tmp_path: Path) -> None:
    assert open_file_of_dead_process(str(tmp_path / "gone")) is None


def test_a_file_that_is_removed_before_it_is_locked_is_created_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock = fcntl.flock
    removed: list[Path] = []

    def remove_first(file: int, operation: int) -> Any:
        if not removed:
            removed.extend(tmp_path.iterdir())
            removed[0].unlink()
        return flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", remove_first)
    file, path = create_process_file(str(tmp_path))
    assert list(tmp_path.iterdir()) == [Path(path)] != removed
    os.close(file)


def test_a_file_system_without_locks_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(file: int, operation: int) -> None:
        raise OSError("No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(OSError, match="No locks"):
        create_process_file(str(tmp_path))
    assert len(list(Path("/proc/self/fd").iterdir())) == before
