from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hsparse.storage.filesystem.root_directory import RootDirectory
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
        with open(log.path, "r+b") as file:  # noqa: PTH123
            file.seek(at)
            (old,) = file.read(1)
            file.seek(at)
            file.write(bytes([old ^ data.draw(st.integers(1, 255))]))
        left = content(log.path)
        padding = left == batch  # a byte between records says nothing
        assert padding or left == batch[:whole] + batch[whole + 1 :]
        assert damaged(log.path) == (not padding and whole + 1 < len(batch))


@given(st.lists(records, max_size=3), st.integers(0, HEADER_SIZE - 1), st.integers(1, 255))
@settings(deadline=None)
def test_a_header_that_is_damaged_in_a_byte_hides_no_record(
    batch: list[LogRecord], at: int, change: int
) -> None:
    with new_root() as root:
        log = WriteAheadLog(root)
        log.append([LogRecord("of an earlier generation", 1, b"x")] * 5)
        log.reset()
        log.append(batch)
        with open(log.path, "r+b") as file:  # noqa: PTH123
            file.seek(at)
            (old,) = file.read(1)
            file.seek(at)
            file.write(bytes([old ^ change]))
        assert content(log.path) == batch
        assert damaged(log.path) == (at < HEADER.size + CHECKSUM.size)


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
    import fcntl

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
