from __future__ import annotations

import fcntl
import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from hsparse.storage.filesystem.root_directory import RootDirectory
from hsparse.storage.wal.deletion_markers import (
    DeletionMarkers,
    remove_old_deletion_markers,
    write_deletion_marker,
    write_deletion_markers,
)
from hsparse.storage.wal.write_ahead_log import WriteAheadLog


@pytest.fixture
def root(tmp_path: Path) -> RootDirectory:
    times = iter(range(1000, 10**6, 1000))
    made = RootDirectory(str(tmp_path), now_ns=lambda: next(times))
    made.make()
    return made


def deleted_until(root: RootDirectory, key: str, date: int) -> bool:
    """Say whether records up to this date must not be restored, and later ones must."""
    markers = DeletionMarkers(root)
    return markers.cover(key, date) and not markers.cover(key, date + 1)


def test_no_log_needs_no_marker(root: RootDirectory) -> None:
    write_deletion_marker(root, "a", 10**9)
    assert not DeletionMarkers(root).cover("a", 0)


def test_what_is_older_than_every_log_needs_no_marker(root: RootDirectory) -> None:
    log = WriteAheadLog(root)
    write_deletion_marker(root, "a", log.started - 1)
    assert not DeletionMarkers(root).cover("a", 0)
    write_deletion_marker(root, "b", log.started)
    assert deleted_until(root, "b", log.started)
    write_deletion_marker(root, "b", log.started + 7)
    assert deleted_until(root, "b", log.started + 7)


def test_markers_go_when_no_log_can_hold_the_put(root: RootDirectory) -> None:
    first, second = WriteAheadLog(root), WriteAheadLog(root)
    write_deletion_marker(root, "a", second.started)
    first.reset()
    remove_old_deletion_markers(root)
    assert deleted_until(root, "a", second.started)
    second.reset()
    remove_old_deletion_markers(root)
    assert not DeletionMarkers(root).cover("a", 0)
    write_deletion_marker(root, "a", 10**9)
    first.remove()
    second.remove()
    remove_old_deletion_markers(root)
    assert not DeletionMarkers(root).cover("a", 0)


def test_no_marker_goes_while_one_is_being_written(root: RootDirectory) -> None:
    """The one that is made may take the place of an old one that could go."""
    log = WriteAheadLog(root)
    began = log.started
    write_deletion_marker(root, "a", began)
    log.remove()
    folder = os.open(Path(root.internal, "deletions"), os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_SH)
    remove_old_deletion_markers(root)
    assert deleted_until(root, "a", began)
    os.close(folder)
    remove_old_deletion_markers(root)
    assert not DeletionMarkers(root).cover("a", 0)


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
    assert deleted_until(root, "a", log.started + 7)
    assert len(list(Path(root.internal, "deletions").iterdir())) == 1


def test_markers_of_many_keys_are_one_file(root: RootDirectory) -> None:
    write_deletion_markers(root, {f"d/{number}": 10 + number for number in range(300)})
    write_deletion_markers(root, {"d/7": 12, "d/8": 30})
    files = list(Path(root.internal, "deletions").iterdir())
    assert sorted(path.stat().st_size for path in files) == [80, 40 * 300]
    markers = DeletionMarkers(root)
    for number in range(300):
        latest = 30 if number == 8 else 10 + number
        assert markers.cover(f"d/{number}", latest)
        assert not markers.cover(f"d/{number}", latest + 1)
    assert not markers.cover("d", 0)


def test_markers_that_are_written_meanwhile_count(root: RootDirectory) -> None:
    """So do the later ones of a file whose first ones could be read already."""
    markers = DeletionMarkers(root)
    assert not markers.cover("a", 5)
    write_deletion_markers(root, {"b": 5, "a": 5})
    (path,) = Path(root.internal, "deletions").iterdir()
    content = path.read_bytes()
    path.write_bytes(content[:50])
    assert markers.cover("b", 5)
    assert not markers.cover("a", 5)
    path.write_bytes(content)
    assert markers.cover("a", 5)


def test_a_file_stays_as_long_as_one_of_its_markers_is_needed(root: RootDirectory) -> None:
    log = WriteAheadLog(root)
    write_deletion_markers(root, {"a": log.started - 1, "b": log.started})
    remove_old_deletion_markers(root)
    assert deleted_until(root, "a", log.started - 1)
    log.remove()
    remove_old_deletion_markers(root)
    assert not list(Path(root.internal, "deletions").iterdir())


def test_markers_of_version_0_1_count(root: RootDirectory) -> None:
    """A file each, named by the hash of its key, that holds the time."""
    log = WriteAheadLog(root)
    write_deletion_marker(root, "b", log.started)
    path = Path(root.internal, "deletions", hashlib.sha256(b"a").hexdigest())
    path.write_bytes((log.started + 3).to_bytes(8, "little"))
    assert deleted_until(root, "a", log.started + 3)
    assert deleted_until(root, "b", log.started)
    log.remove()
    remove_old_deletion_markers(root)
    assert not list(Path(root.internal, "deletions").iterdir())


def test_a_log_whose_header_is_being_written_may_hold_anything(root: RootDirectory) -> None:
    log = WriteAheadLog(root)
    with Path(log.path).open("r+b") as file:
        file.seek(10)
        file.write(b"torn")
    write_deletion_marker(root, "a", 5)
    assert deleted_until(root, "a", 5)
