from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from hsparse.storage.filesystem.root_directory import RootDirectory
from hsparse.storage.wal.recovery import (
    read_deletion_marker,
    remove_old_deletion_markers,
    write_deletion_marker,
)
from hsparse.storage.wal.write_ahead_log import WriteAheadLog


@pytest.fixture
def root(tmp_path: Path) -> RootDirectory:
    times = iter(range(1000, 10**6, 1000))
    made = RootDirectory(str(tmp_path), now_ns=lambda: next(times))
    made.make()
    return made


def test_no_log_needs_no_marker(root: RootDirectory) -> None:
    write_deletion_marker(root, "a", 10**9)
    assert read_deletion_marker(root, "a") == 0


def test_what_is_older_than_every_log_needs_no_marker(root: RootDirectory) -> None:
    log = WriteAheadLog(root)
    write_deletion_marker(root, "a", log.started - 1)
    assert read_deletion_marker(root, "a") == 0
    write_deletion_marker(root, "b", log.started)
    assert read_deletion_marker(root, "b") == log.started
    write_deletion_marker(root, "b", log.started + 7)
    assert read_deletion_marker(root, "b") == log.started + 7


def test_markers_go_when_no_log_can_hold_the_put(root: RootDirectory) -> None:
    first, second = WriteAheadLog(root), WriteAheadLog(root)
    write_deletion_marker(root, "a", second.started)
    first.reset()
    remove_old_deletion_markers(root)
    assert read_deletion_marker(root, "a") == second.started
    second.reset()
    remove_old_deletion_markers(root)
    assert read_deletion_marker(root, "a") == 0
    write_deletion_marker(root, "a", 10**9)
    first.remove()
    second.remove()
    remove_old_deletion_markers(root)
    assert read_deletion_marker(root, "a") == 0


def test_no_marker_goes_while_one_is_being_written(root: RootDirectory) -> None:
    """The one that is made may take the place of an old one that could go."""
    log = WriteAheadLog(root)
    began = log.started
    write_deletion_marker(root, "a", began)
    log.remove()
    folder = os.open(Path(root.internal, "deletions"), os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_SH)
    remove_old_deletion_markers(root)
    assert read_deletion_marker(root, "a") == began
    os.close(folder)
    remove_old_deletion_markers(root)
    assert read_deletion_marker(root, "a") == 0


def test_an_old_marker_counts_until_the_new_one_is_written(
    root: RootDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = WriteAheadLog(root)
    write_deletion_marker(root, "a", log.started + 7)

    def fail(*_: Any) -> int:
        raise OSError(5, "Input/output error")

    for call in ("pwrite", "write"):
        monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError, match="Input"):
        write_deletion_marker(root, "a", log.started + 8)
    assert read_deletion_marker(root, "a") == log.started + 7


def test_a_log_whose_header_is_being_written_may_hold_anything(root: RootDirectory) -> None:
    log = WriteAheadLog(root)
    with Path(log.path).open("r+b") as file:
        file.seek(10)
        file.write(b"torn")
    write_deletion_marker(root, "a", 5)
    assert read_deletion_marker(root, "a") == 5
