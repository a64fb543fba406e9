"""Deletions of many files: markers first, durable together, and nothing of them undone by a log."""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hsparse.storage.filesystem.object_file import file_etag
from hsparse.storage.filesystem.rename_put import put_by_rename
from hsparse.storage.filesystem.root_directory import RootDirectory, high_water_mark
from hsparse.storage.object_store import Entry
from hsparse.storage.wal import file_deletion
from hsparse.storage.wal.deletion_markers import (
    DeletionMarkers,
    remove_old_deletion_markers,
    write_deletion_marker,
    write_deletion_markers,
)
from hsparse.storage.wal.file_deletion import delete_file, delete_files
from hsparse.storage.wal.recovery import recover
from hsparse.storage.wal.wal_writer import WalWriter
from hsparse.storage.wal.write_ahead_log import WriteAheadLog
from tests.storage.wal.test_wal_writer import die, fail, leave_half_written, put, put_and_be_killed


@pytest.fixture
def root(tmp_path: Path) -> RootDirectory:
    made = RootDirectory(str(tmp_path / "root"))
    made.make()
    return made


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, root: RootDirectory) -> list[tuple[str, str]]:
    """What is synced and unlinked from now on: the call and the path, relative to the root."""
    seen: list[tuple[str, str]] = []

    def noted(name: str) -> None:
        original = getattr(os, name)

        def note(what: int | str, **named: Any) -> None:
            path = os.readlink(f"/proc/self/fd/{what}") if isinstance(what, int) else str(what)  # noqa: PTH115
            seen.append((name, str(Path(path).relative_to(root.path))))
            original(what, **named)

        monkeypatch.setattr(os, name, note)

    for name in ("fsync", "fdatasync", "unlink"):
        noted(name)
    return seen


def listed(root: RootDirectory) -> list[Entry]:
    paths = sorted(path for path in Path(root.path).rglob("*") if path.is_file())
    names = [(str(path.relative_to(root.path)), path.stat()) for path in paths]
    return [
        Entry(name, status.st_size, file_etag(status), status.st_mtime)
        for name, status in names
        if not name.startswith(".hsparse") and ".tmp-" not in name
    ]


def put_all(root: RootDirectory, keys: list[str]) -> list[Entry]:
    for key in keys:
        put_by_rename(root, key, b"x")
    return listed(root)


def test_a_page_is_one_sync(root: RootDirectory, calls: list[tuple[str, str]]) -> None:
    keys = [f"db/1/g/{number}/.group.json" for number in range(200)]
    entries = put_all(root, [*keys, "db/1/.group.json", "db/2/.group.json"])
    log = WriteAheadLog(root)  # begun after the files: it needs no markers
    calls.clear()
    assert delete_files(root, entries[:-1]) == [True] * 201
    synced = [call for call in calls if call[0] != "unlink"]
    path = os.path.relpath(log.path, root.path)
    assert synced == [("fdatasync", path), ("fsync", "db")]  # the nearest directory that stays
    assert not Path(root.path, "db/1").exists()
    log.remove()


def test_markers_are_durable_before_the_files_go(root: RootDirectory, calls: list[tuple[str, str]]) -> None:
    puts = WalWriter(root, "store")
    for number in range(200):
        put(puts, f"d/{number}", b"x")
    entries = listed(root)
    calls.clear()
    assert all(delete_files(root, entries))
    marker, folder = ".hsparse/deletions/", ".hsparse/deletions"
    order = [
        {"unlink": "unlink", "fdatasync": "log"}.get(name, "marker" if path.startswith(marker) else path)
        for name, path in calls
    ]
    groups = [(key, len(list(group))) for key, group in itertools.groupby(order)]
    assert groups.pop(0) == ("log", 1)
    assert groups.pop() == ("d" if Path(root.path, "d").exists() else ".", 1)
    assert [name for name, _ in groups] == ["marker", folder, ".hsparse", "unlink"] * (len(groups) // 4)
    assert {count for name, count in groups if name == "marker"} == {1}
    assert len(groups) // 4 <= 200 // file_deletion.LOCKED_AT_ONCE + 1
    die(puts)
    recover(root)
    assert listed(root) == []


def test_what_has_changed_stays(root: RootDirectory) -> None:
    entries = put_all(root, ["a", "b/c", "b/d", "e"])
    put_by_rename(root, "b/c", b"changed")
    delete_file(root, "e")
    Path(root.path, "a").unlink()
    Path(root.path, "a").mkdir()
    assert delete_files(root, entries) == [True, False, True, True]
    assert [entry.key for entry in listed(root)] == ["b/c"]
    assert Path(root.path, "a").is_dir()


def test_a_put_that_was_not_answered_stays_deleted(root: RootDirectory) -> None:
    """Its record is later than the file that is deleted, and than no file at all."""
    entries = put_all(root, ["a", "d/b"])
    puts = WalWriter(root, "store")
    put_and_be_killed(puts, "a", b"new")
    put_and_be_killed(WalWriter(root, "store"), "d/c", b"new")
    assert delete_files(root, [*entries, Entry("d/c", 1, "0-0-0", 0.0)]) == [True] * 3
    recover(root)
    assert listed(root) == []


def test_a_log_that_begins_later_is_seen(root: RootDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process is killed between the record and the file, so the file is as it was listed."""
    monkeypatch.setattr(file_deletion, "LOCKED_AT_ONCE", 1)
    entries = put_all(root, ["a", "b", "c"])
    entries.sort(key=lambda entry: root.lock_number(entry.key))
    unlink, late = os.unlink, entries[-1].key
    begun: list[str] = []

    def begin(path: str, **named: Any) -> None:
        if path == f"{root.path}/{entries[0].key}" and not begun:
            begun.append(path)
            put_and_be_killed(WalWriter(root, "store"), late, b"new")
        unlink(path, **named)

    monkeypatch.setattr(os, "unlink", begin)
    assert delete_files(root, entries) == [True] * 3
    assert begun
    assert DeletionMarkers(root).cover(late, 1)
    recover(root)
    assert listed(root) == []


def test_later_states_are_later(root: RootDirectory) -> None:
    entries = put_all(root, ["a", "b"])
    times = {entry.key: Path(root.path, entry.key).stat().st_mtime_ns for entry in entries}
    delete_files(root, entries)
    for key, time in times.items():
        with root.locked(key) as lock:
            assert high_water_mark(lock, root.now_ns()) >= time


def test_what_is_half_written_is_repaired_first(root: RootDirectory) -> None:
    puts = WalWriter(root, "store")
    put(puts, "a", b"whole")
    put(puts, "b", b"x")
    entries = listed(root)
    leave_half_written(Path(root.path, "a"))
    assert (delete_files(root, entries), Path(root.path, "a").read_bytes()) == ([False, True], b"whole")
    assert not Path(root.path, "a").stat().st_mode & stat.S_ISVTX
    assert delete_files(root, listed(root)) == [True]
    die(puts)
    recover(root)
    assert listed(root) == []


def test_a_directory_that_a_put_has_entered_stays(root: RootDirectory) -> None:
    entries = put_all(root, ["a/b/c", "a/d"])
    Path(root.path, "a", "b", ".tmp-1").touch()
    assert delete_files(root, entries) == [True] * 2
    assert Path(root.path, "a", "b").is_dir()


def test_locks_are_taken_in_order(root: RootDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = put_all(root, [str(number) for number in range(100)])
    locked: list[int] = []
    flock = fcntl.flock

    def note(file: int, operation: int) -> None:
        if (name := Path(f"/proc/self/fd/{file}").readlink()).parent.name == "locks":
            locked.append(int(name.name, 16))
        flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", note)
    assert all(delete_files(root, entries))
    assert locked == sorted({root.lock_number(entry.key) for entry in entries})


CALLS = ("open", "stat", "pread", "pwrite", "fsync", "fdatasync", "unlink", "rmdir", "mkdir", "scandir")


def delete_on_a_failing_disk(path: str, first: int) -> bool:
    """Fail system call number `first` of a deletion; tell whether there was such a call."""
    root = RootDirectory(path)
    root.make()
    puts = WalWriter(root, "store")
    put(puts, "d/logged", b"old")
    put(puts, "d/e/logged", b"old")
    put_by_rename(root, "d/f/renamed", b"old")
    entries = listed(root)
    numbers = itertools.count()
    failed: list[int] = []

    def failing(call: Callable[..., Any]) -> Callable[..., Any]:
        def fail_or_call(*arguments: Any, **named: Any) -> Any:
            number = next(numbers)
            if number == first:
                failed.append(number)
                if call is os_close:
                    call(*arguments)
                fail()
            return call(*arguments, **named)

        return fail_or_call

    os_close = os.close
    answered = False
    with pytest.MonkeyPatch.context() as patch:
        for name in (*CALLS, "close"):
            patch.setattr(os, name, failing(getattr(os, name)))
        try:
            assert delete_files(root, entries) == [True] * 3
            answered = True
        except OSError:
            pass
    there = {entry.key for entry in listed(root)}
    assert not (answered and there)
    assert delete_files(root, listed(root)) == [True] * len(there)
    die(puts)
    recover(root)
    assert listed(root) == [], (first, "came back")
    return bool(failed)


def test_a_disk_that_fails_at_any_call() -> None:
    for first in itertools.count():
        with tempfile.TemporaryDirectory() as path:
            if not delete_on_a_failing_disk(path, first):
                break
    assert first > 30


@pytest.fixture
def marker_root(tmp_path: Path) -> RootDirectory:
    times = iter(range(1000, 10**6, 1000))
    made = RootDirectory(str(tmp_path), now_ns=lambda: next(times))
    made.make()
    return made


def deleted_until(marker_root: RootDirectory, key: str, date: int) -> bool:
    """Say whether records up to this date must not be restored, and later ones must."""
    markers = DeletionMarkers(marker_root)
    return markers.cover(key, date) and not markers.cover(key, date + 1)


def test_no_log_needs_no_marker(marker_root: RootDirectory) -> None:
    write_deletion_marker(marker_root, "a", 10**9)
    assert not DeletionMarkers(marker_root).cover("a", 0)


def test_what_is_older_than_every_log_needs_no_marker(marker_root: RootDirectory) -> None:
    log = WriteAheadLog(marker_root)
    write_deletion_marker(marker_root, "a", log.started - 1)
    assert not DeletionMarkers(marker_root).cover("a", 0)
    write_deletion_marker(marker_root, "b", log.started)
    assert deleted_until(marker_root, "b", log.started)
    write_deletion_marker(marker_root, "b", log.started + 7)
    assert deleted_until(marker_root, "b", log.started + 7)


def test_markers_go_when_no_log_can_hold_the_put(marker_root: RootDirectory) -> None:
    first, second = WriteAheadLog(marker_root), WriteAheadLog(marker_root)
    write_deletion_marker(marker_root, "a", second.started)
    first.reset()
    remove_old_deletion_markers(marker_root)
    assert deleted_until(marker_root, "a", second.started)
    second.reset()
    remove_old_deletion_markers(marker_root)
    assert not DeletionMarkers(marker_root).cover("a", 0)
    write_deletion_marker(marker_root, "a", 10**9)
    first.remove()
    second.remove()
    remove_old_deletion_markers(marker_root)
    assert not DeletionMarkers(marker_root).cover("a", 0)


def test_no_marker_goes_while_one_is_being_written(marker_root: RootDirectory) -> None:
    """The one that is made may take the place of an old one that could go."""
    log = WriteAheadLog(marker_root)
    began = log.started
    write_deletion_marker(marker_root, "a", began)
    log.remove()
    folder = os.open(Path(marker_root.internal, "deletions"), os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_SH)
    remove_old_deletion_markers(marker_root)
    assert deleted_until(marker_root, "a", began)
    os.close(folder)
    remove_old_deletion_markers(marker_root)
    assert not DeletionMarkers(marker_root).cover("a", 0)


def test_an_old_marker_counts_until_the_new_one_is_written(
    marker_root: RootDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = WriteAheadLog(marker_root)
    write_deletion_marker(marker_root, "a", log.started + 7)

    for call in ("pwrite", "write"):
        monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError, match="Input"):
        write_deletion_marker(marker_root, "a", log.started + 8)
    assert deleted_until(marker_root, "a", log.started + 7)
    assert len(list(Path(marker_root.internal, "deletions").iterdir())) == 1


def test_markers_of_many_keys_are_one_file(marker_root: RootDirectory) -> None:
    write_deletion_markers(marker_root, {f"d/{number}": 10 + number for number in range(300)})
    write_deletion_markers(marker_root, {"d/7": 12, "d/8": 30})
    files = list(Path(marker_root.internal, "deletions").iterdir())
    assert sorted(path.stat().st_size for path in files) == [80, 40 * 300]
    markers = DeletionMarkers(marker_root)
    for number in range(300):
        latest = 30 if number == 8 else 10 + number
        assert markers.cover(f"d/{number}", latest)
        assert not markers.cover(f"d/{number}", latest + 1)
    assert not markers.cover("d", 0)


def test_markers_that_are_written_meanwhile_count(marker_root: RootDirectory) -> None:
    """So do the later ones of a file whose first ones could be read already."""
    markers = DeletionMarkers(marker_root)
    assert not markers.cover("a", 5)
    write_deletion_markers(marker_root, {"b": 5, "a": 5})
    (path,) = Path(marker_root.internal, "deletions").iterdir()
    content = path.read_bytes()
    path.write_bytes(content[:50])
    assert markers.cover("b", 5)
    assert not markers.cover("a", 5)
    path.write_bytes(content)
    assert markers.cover("a", 5)


def test_a_file_stays_as_long_as_one_of_its_markers_is_needed(marker_root: RootDirectory) -> None:
    log = WriteAheadLog(marker_root)
    write_deletion_markers(marker_root, {"a": log.started - 1, "b": log.started})
    remove_old_deletion_markers(marker_root)
    assert deleted_until(marker_root, "a", log.started - 1)
    log.remove()
    remove_old_deletion_markers(marker_root)
    assert not list(Path(marker_root.internal, "deletions").iterdir())


def test_markers_of_version_0_1_count(marker_root: RootDirectory) -> None:
    """A file each, named by the hash of its key, that holds the time."""
    log = WriteAheadLog(marker_root)
    write_deletion_marker(marker_root, "b", log.started)
    path = Path(marker_root.internal, "deletions", hashlib.sha256(b"a").hexdigest())
    path.write_bytes((log.started + 3).to_bytes(8, "little"))
    assert deleted_until(marker_root, "a", log.started + 3)
    assert deleted_until(marker_root, "b", log.started)
    log.remove()
    remove_old_deletion_markers(marker_root)
    assert not list(Path(marker_root.internal, "deletions").iterdir())


def test_a_log_whose_header_is_being_written_may_hold_anything(marker_root: RootDirectory) -> None:
    log = WriteAheadLog(marker_root)
    with Path(log.path).open("r+b") as file:
        file.seek(10)
        file.write(b"torn")
    write_deletion_marker(marker_root, "a", 5)
    assert deleted_until(marker_root, "a", 5)
