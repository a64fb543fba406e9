"""Recoveries among live processes: what was acknowledged stays, what was not is put once or never."""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from hsparse.storage.filesystem.rename_put import put_by_rename
from hsparse.storage.filesystem.root_directory import RootDirectory
from hsparse.storage.wal import recovery
from hsparse.storage.wal.file_deletion import delete_file
from hsparse.storage.wal.recovery import recover, repair
from hsparse.storage.wal.wal_writer import WalWriter
from hsparse.storage.wal.write_ahead_log import LogRecord, WriteAheadLog, log_paths
from tests.storage.wal.test_wal_writer import die, put, put_and_be_killed


class Clock:
    def __init__(self) -> None:
        self.ns = 10**18

    def __call__(self) -> int:
        self.ns += 1000
        return self.ns


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def root(tmp_path: Path, clock: Clock) -> RootDirectory:
    made = RootDirectory(str(tmp_path), now_ns=clock)
    made.make()
    return made


@pytest.fixture
def put_back(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What recoveries write, in order."""
    seen: list[bytes] = []
    write = recovery._write

    def note(root: RootDirectory, path: str, record: LogRecord) -> None:
        seen.append(bytes(record.data))
        write(root, path, record)

    monkeypatch.setattr(recovery, "_write", note)
    return seen


def lose(path: Path) -> None:
    """As a power loss does with what was never synced."""
    path.unlink()


def mark(path: Path) -> None:
    """As a process leaves a file that is killed while it writes it."""
    path.chmod(stat.S_IMODE(path.stat().st_mode) | stat.S_ISVTX)


def test_a_store_is_not_opened_while_another_recovers(
    root: RootDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    puts = WalWriter(root, "store")
    put(puts, "a", b"x")
    die(puts)
    lose(tmp_path / "a")
    write = recovery._write
    waits: list[bool] = []

    def note(*arguments: Any) -> None:
        other = os.open(tmp_path / ".hsparse" / "recovery", os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            waits.append(False)
        except BlockingIOError:
            waits.append(True)
        finally:
            os.close(other)
        write(*arguments)

    monkeypatch.setattr(recovery, "_write", note)
    assert recover(root) == 1
    assert waits == [True]


@pytest.mark.parametrize("half_written", [True, False])
def test_of_many_logs_only_the_latest_record_is_seen(
    root: RootDirectory, tmp_path: Path, put_back: list[bytes], half_written: bool
) -> None:
    for number in range(6):
        puts = WalWriter(root, "store")
        put(puts, "a", b"%d" % number)
        die(puts)
    if half_written:
        mark(tmp_path / "a")
    else:
        lose(tmp_path / "a")
    assert recover(root) == 1
    assert put_back == [b"5"]
    assert log_paths(root) == []


def test_a_dead_process_does_not_overwrite_what_a_live_one_wrote_after_it(
    root: RootDirectory, tmp_path: Path
) -> None:
    dead = WalWriter(root, "store")
    put(dead, "a", b"old")
    die(dead)
    live = WalWriter(root, "store")
    put(live, "a", b"new")
    mark(tmp_path / "a")
    recover(root)
    assert (tmp_path / "a").read_bytes() == b"new"
    mark(tmp_path / "a")
    repair(root, "a")
    assert (tmp_path / "a").read_bytes() == b"new"
    live.close()


@pytest.mark.parametrize("there", [True, False])
def test_what_was_deleted_after_a_put_that_was_not_answered(
    root: RootDirectory, tmp_path: Path, there: bool
) -> None:
    if there:
        put_by_rename(root, "a", b"old")
    put_and_be_killed(WalWriter(root, "store"), "a", b"new")
    delete_file(root, "a")
    recover(root)
    assert not (tmp_path / "a").exists()


def test_what_was_deleted_after_a_put_whose_directory_has_gone(root: RootDirectory, tmp_path: Path) -> None:
    put_and_be_killed(WalWriter(root, "store"), "d/a", b"x")
    for path in (tmp_path / "d").iterdir():
        path.unlink()
    (tmp_path / "d").rmdir()
    delete_file(root, "d/a")
    recover(root)
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("logged", [True, False])
@pytest.mark.parametrize("there", [True, False])
def test_a_clock_that_went_back_after_a_put_that_was_not_answered(
    root: RootDirectory, tmp_path: Path, clock: Clock, logged: bool, there: bool
) -> None:
    puts = WalWriter(root, "store")
    if there:
        put(puts, "a", b"oldest")
    clock.ns += 10**12
    put_and_be_killed(puts, "a", b"not answered")
    clock.ns -= 10**12
    if logged:
        other = WalWriter(root, "store")
        put(other, "a", b"answered")
        other.close()
    else:
        put_by_rename(root, "a", b"answered")
    recover(root)
    assert (tmp_path / "a").read_bytes() == b"answered"


def test_what_is_there_is_written_again_and_keeps_its_etag(
    root: RootDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sync that failed has left bytes that can be read and are on no disk."""
    puts = WalWriter(root, "store")
    put(puts, "d/a", b"data")
    die(puts)
    before = (tmp_path / "d" / "a").stat()
    calls: list[tuple[str, str]] = []

    def note(name: str) -> None:
        call = getattr(os, name)

        def noted(file: int, *rest: Any) -> Any:
            calls.append((name, str(Path(f"/proc/self/fd/{file}").readlink())))
            return call(file, *rest)

        monkeypatch.setattr(os, name, noted)

    note("write")
    note("fsync")
    assert recover(root) == 0
    path = f"{tmp_path}/d/a"
    assert [name for name, of in calls if of == path] == ["write", "fsync"]
    assert {("fsync", str(tmp_path)), ("fsync", f"{tmp_path}/d")} <= set(calls)
    after = (tmp_path / "d" / "a").stat()
    assert (after.st_ino, after.st_mtime_ns, after.st_mode) == (
        before.st_ino,
        before.st_mtime_ns,
        before.st_mode,
    )


def test_a_record_of_no_key_is_left_out(root: RootDirectory, tmp_path: Path) -> None:
    log = WriteAheadLog(root)
    log.append(
        [
            LogRecord("../out", 2**60, b"x"),
            LogRecord(".hsparse/locks/00", 2**60, b"x"),
            LogRecord("a", 2**60, b"x"),
        ]
    )
    log.release()
    assert recover(root) == 1
    assert not (tmp_path.parent / "out").exists()
    assert (tmp_path / "a").read_bytes() == b"x"


def spoil(path: str, of: bytes) -> None:
    """Flip a bit of these bytes in a file."""
    content = Path(path).read_bytes()
    at = content.index(of)
    changed = bytes([content[at] ^ 1])
    Path(path).write_bytes(content[:at] + changed + content[at + 1 :])


def test_a_damaged_record_hides_no_later_one(
    root: RootDirectory, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    puts = WalWriter(root, "store")
    for key in "abc":
        put(puts, key, b"of " + key.encode())
    die(puts)
    for key in "abc":
        lose(tmp_path / key)
    (log,) = log_paths(root)
    spoil(log, b"of b")
    assert recover(root) == 2
    assert [path.read_bytes() for path in (tmp_path / "a", tmp_path / "c")] == [b"of a", b"of c"]
    assert not (tmp_path / "b").exists()
    (kept,) = (tmp_path / ".hsparse" / "damaged").iterdir()
    assert str(kept) in caplog.text
    assert b"of c" in kept.read_bytes()
    assert log_paths(root) == []
    assert recover(root) == 0


def test_a_cut_last_record_is_no_damage(
    root: RootDirectory, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    puts = WalWriter(root, "store")
    put(puts, "a", b"of a")
    put(puts, "b", b"of b")
    die(puts)
    lose(tmp_path / "a")
    lose(tmp_path / "b")
    (log,) = log_paths(root)
    spoil(log, b"of b")
    assert recover(root) == 1
    assert log_paths(root) == []
    assert caplog.text == ""
    assert not (tmp_path / ".hsparse" / "damaged").exists()


def test_a_damaged_header_loses_nothing(root: RootDirectory, tmp_path: Path) -> None:
    puts = WalWriter(root, "store")
    put(puts, "a", b"of a")
    die(puts)
    lose(tmp_path / "a")
    (log,) = log_paths(root)
    spoil(log, b"hsputlog")
    assert recover(root) == 1
    assert (tmp_path / "a").read_bytes() == b"of a"
    assert len(list((tmp_path / ".hsparse" / "damaged").iterdir())) == 1
