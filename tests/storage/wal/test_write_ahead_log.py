"""The write-ahead log: the packets of puts, its worker, and recoveries among live processes."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hsparse.errors import Conflict, HsparseError, PreconditionFailed
from hsparse.storage.filesystem.object_file import Condition
from hsparse.storage.filesystem.rename_put import put_by_rename
from hsparse.storage.filesystem.root_directory import RootDirectory
from hsparse.storage.wal import recovery
from hsparse.storage.wal.file_deletion import delete_file
from hsparse.storage.wal.recovery import recover, repair
from hsparse.storage.wal.wal_client import decode_replies, encode_put
from hsparse.storage.wal.wal_process import MAX_REPLIES_SIZE, decode_put, encode_replies, send_replies
from hsparse.storage.wal.wal_writer import WalWriter
from hsparse.storage.wal.write_ahead_log import (
    CAPACITY,
    CHECKSUM,
    HEADER,
    HEADER_SIZE,
    PREALLOCATED_BYTES,
    LogRecord,
    WriteAheadLog,
    _encode,
    is_damaged,
    log_paths,
    read_log,
    started_durably,
)
from tests.storage.wal.test_wal_writer import die, put, put_and_be_killed
from tests.support.characters import CHARACTERS

keys = st.text(CHARACTERS, max_size=30)
records = st.builds(LogRecord, keys, st.integers(0, 2**64 - 1), st.binary(max_size=3000))


@contextmanager
def new_root() -> Iterator[RootDirectory]:
    with tempfile.TemporaryDirectory() as path:
        root = RootDirectory(path)
        root.make()
        yield root


def content(path: str) -> list[LogRecord]:
    with open(path, "rb") as file:  # noqa: PTH123
        return [LogRecord(key, date, bytes(data)) for key, date, data in read_log(file.fileno())]


def damaged(path: str) -> bool:
    with open(path, "rb") as file:  # noqa: PTH123
        return is_damaged(file.fileno())


def change_byte(path: str, at: int, mask: int) -> None:
    data = bytearray(Path(path).read_bytes())
    data[at] ^= mask
    Path(path).write_bytes(data)


@given(st.lists(st.lists(records, max_size=5), max_size=5))
@settings(deadline=None)
def test_what_is_appended_is_read(batches: list[list[LogRecord]]) -> None:
    with new_root() as root:
        log = WriteAheadLog(root)
        for batch in batches:
            log.append(batch)
        assert content(log.path) == [record for batch in batches for record in batch]
        log.reset()
        assert content(log.path) == []
        log.append([LogRecord("a", 1, b"after")])
        assert content(log.path) == [LogRecord("a", 1, b"after")]
        log.remove()
        assert log_paths(root) == []


@given(st.lists(records, min_size=1, max_size=6), st.data())
@settings(deadline=None)
def test_what_a_crash_cuts_or_spoils_is_passed_over(batch: list[LogRecord], data: st.DataObject) -> None:
    with new_root() as root:
        log = WriteAheadLog(root)
        ends = []
        for record in batch:
            log.append([record])
            ends.append(HEADER_SIZE + log.used)
        at = data.draw(st.integers(HEADER_SIZE, ends[-1] - 1))
        whole = sum(end <= at for end in ends)
        if data.draw(st.booleans()):
            os.truncate(log.path, at)
            assert content(log.path)[:whole] == batch[:whole]
            assert damaged(log.path) == (at > HEADER_SIZE)  # a log of a header alone may be new
            return
        change_byte(log.path, at, data.draw(st.integers(1, 255)))
        left = content(log.path)
        padding = left == batch  # a byte between records says nothing
        assert padding or left == batch[:whole] + batch[whole + 1 :]
        assert damaged(log.path) == (not padding and whole + 1 < len(batch))


@given(st.lists(records, max_size=3), st.integers(0, HEADER_SIZE - 1), st.integers(1, 255))
@settings(deadline=None)
def test_a_byte_of_a_header_hides_no_record(batch: list[LogRecord], at: int, change: int) -> None:
    with new_root() as root:
        log = WriteAheadLog(root)
        log.append([LogRecord("of an earlier generation", 1, b"x")] * 5)
        log.reset()
        log.append(batch)
        change_byte(log.path, at, change)
        assert (content(log.path), damaged(log.path)) == (batch, at < HEADER.size + CHECKSUM.size)


def test_a_log_without_a_whole_header_is_empty() -> None:
    with new_root() as root:
        log = WriteAheadLog(root)
        log.append([LogRecord("a", 1, b"x")])
        assert started_durably(log.path) == log.started
        for size in (0, 5, 20):
            os.truncate(log.path, size)
            assert content(log.path) == []
            assert started_durably(log.path) is None
        os.truncate(log.path, HEADER_SIZE)
        assert started_durably(log.path) == 0


def test_records_are_written_into_blocks_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with new_root() as root:
        log = WriteAheadLog(root)
        log.append([LogRecord("a", 1, b"x")])
        size = os.stat(log.path).st_size  # noqa: PTH116
        assert size == HEADER_SIZE + PREALLOCATED_BYTES
        log.append([LogRecord("a", 2, bytes(PREALLOCATED_BYTES // 2))])
        assert os.stat(log.path).st_size == size  # noqa: PTH116
        log.append([LogRecord("a", 3, bytes(PREALLOCATED_BYTES))])
        assert os.stat(log.path).st_size == size + PREALLOCATED_BYTES  # noqa: PTH116


def test_each_append_is_one_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    with new_root() as root:
        log = WriteAheadLog(root)
        synced: list[int] = []
        monkeypatch.setattr(os, "fdatasync", synced.append)
        log.append([LogRecord(f"k{i}", 1, b"x") for i in range(50)])
        assert len(synced) == 1
        log.append([LogRecord("a", 1, bytes(CAPACITY))])
        assert log.full


def test_a_failed_append_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Any) -> None:
        raise OSError(5, "no")

    with new_root() as root:
        log = WriteAheadLog(root)
        log.append([LogRecord("a", 1, b"x")])
        used = log.used
        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", fail)
            with pytest.raises(OSError, match="no"):
                log.append([LogRecord("b", 1, b"y")])
        assert log.used == used


def test_a_file_removed_before_it_was_locked_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    flock = fcntl.flock
    removed: list[str] = []

    def remove_first(file: int, operation: int) -> None:
        if not removed:
            removed.append(str(Path(f"/proc/self/fd/{file}").readlink()))
            Path(removed[0]).unlink()
        flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", remove_first)
    with new_root() as root:
        log = WriteAheadLog(root)
        assert log.path not in removed
        assert log_paths(root) == [log.path]


def test_an_object_that_looks_like_records_is_none() -> None:
    """What an emptied log still has behind its end may be a client's bytes."""
    with new_root() as root:
        log = WriteAheadLog(root)
        forged = b"".join(_encode(generation, LogRecord("evil", 2**60, b"x")) for generation in range(10))
        at = len(_encode(0, LogRecord("a", 1, b"x")))
        for start in range(10):
            log.append([LogRecord("a", 1, bytes(at - 27) + forged[start * 32 :])])
            log.reset()
            log.append([LogRecord("a", 2, b"x")])
            assert content(log.path) == [LogRecord("a", 2, b"x")]
            log.reset()


def test_the_name_of_a_first_log_is_durable_from_the_root_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with new_root() as root:
        synced: list[str] = []
        monkeypatch.setattr(
            os, "fsync", lambda file: synced.append(str(Path(f"/proc/self/fd/{file}").readlink()))
        )
        WriteAheadLog(root)
        assert {root.path, root.internal, f"{root.internal}/puts"} <= set(synced)


names = st.text(CHARACTERS)
numbers = st.integers(0, 2**64 - 1)
replies = st.lists(
    st.tuples(numbers, st.one_of(names, st.builds(PreconditionFailed, names), st.builds(Conflict, names)))
)


def plain(result: str | HsparseError) -> object:
    return result if isinstance(result, str) else (type(result), result.message)


@given(numbers, st.sampled_from(Condition), names, names, st.binary())
def test_a_put_comes_back(number: int, condition: Condition, key: str, etag: str, data: bytes) -> None:
    got, put = decode_put(encode_put(number, condition, key, etag, data))
    assert (got, put.condition, put.key, put.etag, bytes(put.data)) == (number, condition, key, etag, data)


@given(replies)
def test_replies_come_back(given: list[tuple[int, str | HsparseError]]) -> None:
    packets = list(encode_replies(given))
    got = [reply for packet in packets for reply in decode_replies(packet)]
    assert [(number, plain(result)) for number, result in got] == [(n, plain(r)) for n, r in given]


def test_many_replies_are_several_packets() -> None:
    given = [(i, "x" * 1000) for i in range(1000)]
    packets = list(encode_replies(given))
    assert all(len(packet) <= MAX_REPLIES_SIZE for packet in packets)
    assert len(packets) == -(-1000 * 1013 // (MAX_REPLIES_SIZE // 1013 * 1013))
    assert [reply for packet in packets for reply in decode_replies(packet)] == given


@pytest.mark.parametrize("unread", [True, False])
def test_a_reply_to_one_that_was_killed(unread: bool) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        if unread:
            ours.send(b"a reply that was never read")
        theirs.close()
        assert not send_replies(ours, iter([b"another"]))


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


def put_and_die(root: RootDirectory, **objects: bytes) -> None:
    """Put objects by a process that is killed then."""
    puts = WalWriter(root, "store")
    for key, data in objects.items():
        put(puts, key, data)
    die(puts)


def lose(path: Path) -> None:
    """As a power loss does with what was never synced."""
    path.unlink()


def mark(path: Path) -> None:
    """As a process leaves a file that is killed while it writes it."""
    path.chmod(stat.S_IMODE(path.stat().st_mode) | stat.S_ISVTX)


def test_a_store_is_not_opened_while_another_recovers(
    root: RootDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_and_die(root, a=b"x")
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
    assert (recover(root), waits) == (1, [True])


@pytest.mark.parametrize("half_written", [True, False])
def test_of_many_logs_only_the_latest_record_is_seen(
    root: RootDirectory, tmp_path: Path, put_back: list[bytes], half_written: bool
) -> None:
    for number in range(6):
        put_and_die(root, a=b"%d" % number)
    (mark if half_written else lose)(tmp_path / "a")
    assert (recover(root), put_back, log_paths(root)) == (1, [b"5"], [])


def test_the_dead_overwrite_nothing_that_the_living_wrote(root: RootDirectory, tmp_path: Path) -> None:
    put_and_die(root, a=b"old")
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
def test_a_delete_after_a_put_without_an_answer(root: RootDirectory, tmp_path: Path, there: bool) -> None:
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
    put_and_die(root, **{"d/a": b"data"})
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
    for part in ("st_ino", "st_mtime_ns", "st_mode"):
        assert getattr(after, part) == getattr(before, part)


def test_a_record_of_no_key_is_left_out(root: RootDirectory, tmp_path: Path) -> None:
    log = WriteAheadLog(root)
    log.append([LogRecord(key, 2**60, b"x") for key in ("../out", ".hsparse/locks/00", "a")])
    log.release()
    assert recover(root) == 1
    assert not (tmp_path.parent / "out").exists()
    assert (tmp_path / "a").read_bytes() == b"x"


def spoil(path: str, of: bytes) -> None:
    """Flip a bit of these bytes in a file."""
    change_byte(path, Path(path).read_bytes().index(of), 1)


def test_a_bad_record_hides_no_other(
    root: RootDirectory, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put_and_die(root, a=b"of a", b=b"of b", c=b"of c")
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
    assert (log_paths(root), recover(root)) == ([], 0)


def test_a_cut_record_is_fine(root: RootDirectory, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    put_and_die(root, a=b"of a", b=b"of b")
    lose(tmp_path / "a")
    lose(tmp_path / "b")
    (log,) = log_paths(root)
    spoil(log, b"of b")
    assert (recover(root), log_paths(root), caplog.text) == (1, [], "")
    assert not (tmp_path / ".hsparse" / "damaged").exists()


def test_a_damaged_header_loses_nothing(root: RootDirectory, tmp_path: Path) -> None:
    put_and_die(root, a=b"of a")
    lose(tmp_path / "a")
    (log,) = log_paths(root)
    spoil(log, b"hsputlog")
    assert (recover(root), (tmp_path / "a").read_bytes()) == (1, b"of a")
    assert len(list((tmp_path / ".hsparse" / "damaged").iterdir())) == 1
