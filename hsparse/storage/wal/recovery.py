"""Making good what logs of puts hold of processes that have ended without emptying theirs.

A record is put into its file unless the file shows a later state: files carry the date of their record as
modification time, and every later put of the key has a later one, whoever made it and whether it was logged
or not. So logs need no order among each other, and a log may be made good any number of times.

Marks of deletions that a log of puts does not know: without one, a recovery would put the object again.

A mark is a file of 8 bytes, a modification time in nanoseconds (u64 little-endian), named by the SHA-256 of the
key: nothing that was put or logged before the deletion has a later one. It is needed while any log may hold a
record that is not later.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from hsparse.errors import Conflict, StoreFailed
from hsparse.storage.filesystem.object_file import (
    file_status,
    is_half_written,
    new_temporary,
    open_directory,
    read_at,
    unlink_if_exists,
    write_all,
)
from hsparse.storage.filesystem.root_directory import RootDirectory
from hsparse.storage.object_store import is_key
from hsparse.storage.wal.prepared_put import PreparedPut, Put
from hsparse.storage.wal.write_ahead_log import Record, latest_record, log_paths, read_log, started_durably


def recover(root: RootDirectory) -> int:
    """Make good the logs of dead processes and remove them; return how many records were put; blocks.

    One at a time: who opens the store meanwhile waits, and so serves nothing that is not yet made good.
    """
    with ExitStack() as stack:
        alone = os.open(f"{root.own}/recovery", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        stack.callback(os.close, alone)
        fcntl.flock(alone, fcntl.LOCK_EX)
        dead = {path: file for path in log_paths(root) if (file := _open_dead(path, stack)) is not None}
        dates: dict[str, int] = {}
        for file in dead.values():
            for record in read_log(file):
                dates[record.key] = max(record.date, dates.get(record.key, 0))
        count = sum(_recover_log(root, file, dates) for file in dead.values())
        for path, file in dead.items():
            os.ftruncate(file, 0)
            root.sync(file)
            Path(path).unlink(missing_ok=True)
    remove_old_deletion_markers(root)
    return count


def repair(root: RootDirectory, key: str) -> None:
    """Wait until the file of `key` is no longer being written in place; blocks.

    When its writer has died, or could not finish, the file is given what the writer's log has of it.
    """
    path = f"{root.path}/{key}"
    with root.locked(key):  # its writer holds this as long as it writes
        status = file_status(path)
        if status is None or not is_half_written(status):
            return
        record = latest_record(root, key)
        if record is None:
            raise StoreFailed(
                f"{key!r} is marked as half written and no log holds the rest; restore its file from a copy, "
                "or take the sticky bit off if another program has set it."
            )
        _write(root, path, record)


def _open_dead(path: str, stack: ExitStack) -> int | None:
    """Open the log of a dead process and lock it until the stack is left; None when its process lives."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    stack.callback(os.close, file)
    return file


def _recover_log(root: RootDirectory, file: int, dates: dict[str, int]) -> int:
    """Put the records that are the latest of their keys: before a later one an earlier would be seen."""
    latest = {record.key: record for record in read_log(file) if record.date == dates[record.key]}
    return sum(_restore(root, record) for record in latest.values() if is_key(record.key))


def _restore(root: RootDirectory, record: Record) -> bool:
    """Give a file the state of a record unless it has a later one; tell whether that was needed."""
    path = f"{root.path}/{record.key}"
    while True:
        with root.locked(record.key), suppress(FileNotFoundError):  # another prunes the directory
            status = file_status(path)
            if status is not None and is_half_written(status):
                record = latest_record(root, record.key) or record  # another may have died since
            elif not _is_needed(root, path, status, record):
                return False
            try:
                root.make_directories(record.key)
            except Conflict:
                return False  # an object stands where its directory was: it has been deleted
            _write(root, path, record)
            return True


def _is_needed(root: RootDirectory, path: str, status: os.stat_result | None, record: Record) -> bool:
    if status is None:
        return not Path(path).is_dir() and read_deletion_marker(root, record.key) < record.date
    if status.st_mtime_ns != record.date:
        return status.st_mtime_ns < record.date
    return not _sync_if_same(root, path, record)


def _sync_if_same(root: RootDirectory, path: str, record: Record) -> bool:
    """Tell whether the file holds what the record says; if so it is durable.

    It is written again, for the bytes that are read may be no longer on their way to the disk: a sync that fails
    is told of once, and what it did not write counts as written.
    """
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except PermissionError:
        return False
    try:
        if os.fstat(file).st_uid != os.geteuid() or read_at(file, 0, len(record.data) + 1) != record.data:
            return False
        PreparedPut(Put(record.key, record.data), path, file, record.date, None).apply()
        root.sync(file)
    finally:
        os.close(file)
    root.sync_directories(record.key)
    return True


def _write(root: RootDirectory, path: str, record: Record) -> None:
    directory = path.rpartition("/")[0]
    file, temporary = new_temporary(directory)
    try:
        write_all(file, record.data)
        os.utime(file, ns=(record.date, record.date))
        root.sync(file)
        os.rename(temporary, path)  # noqa: PTH104
    except BaseException:
        unlink_if_exists(temporary)
        raise
    finally:
        os.close(file)
    root.sync_directory(directory)


def write_deletion_marker(root: RootDirectory, key: str, mtime_ns: int) -> None:
    """Mark, durably, that what a log may hold of `key` up to this modification time is not to be put again.

    Called under the key's lock, before the file is removed.
    """
    started = _started(root)
    if not started or mtime_ns < min(started):
        return
    _folder(root).mkdir(exist_ok=True)
    with _locked(root, fcntl.LOCK_SH) as folder:
        # Not truncated: the mark that is there counts until this one has reached the disk.
        path = _folder(root) / _name(key)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            os.pwrite(file, max(mtime_ns, read_deletion_marker(root, key)).to_bytes(8, "little"), 0)
            root.sync(file)
        finally:
            os.close(file)
        root.sync(folder)
    root.sync_directory(root.own)


def read_deletion_marker(root: RootDirectory, key: str) -> int:
    """Return the modification time of the file of `key` whose deletion is marked, or 0."""
    try:
        return int.from_bytes((_folder(root) / _name(key)).read_bytes(), "little")
    except FileNotFoundError:
        return 0


def remove_old_deletion_markers(root: RootDirectory) -> None:
    """Remove the marks that are earlier than all that any log may hold; not while a mark is being made."""
    with suppress(FileNotFoundError, BlockingIOError), _locked(root, fcntl.LOCK_EX | fcntl.LOCK_NB):
        floor = min(_started(root), default=None)
        for path in _folder(root).iterdir():
            if floor is None or int.from_bytes(path.read_bytes(), "little") < floor:
                path.unlink()


def _started(root: RootDirectory) -> list[int]:
    return [began for path in log_paths(root) if (began := started_durably(path)) is not None]


@contextmanager
def _locked(root: RootDirectory, operation: int) -> Iterator[int]:
    """Hold a lock on the directory of marks, as its open file descriptor."""
    folder = open_directory(str(_folder(root)))
    try:
        fcntl.flock(folder, operation)
        yield folder
    finally:
        os.close(folder)


def _folder(root: RootDirectory) -> Path:
    return Path(root.own, "deletions")


def _name(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()
