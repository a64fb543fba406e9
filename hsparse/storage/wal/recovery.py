"""Recovery from write-ahead logs of dead processes, repair of half-written files, and deletion markers.

A record is applied to its file unless the file has a later state. Files carry the date of their record as
modification time, and every later put of the key has a later one, whichever process made it, logged or not. So
logs need no order among each other, and recovery is idempotent.

A deletion marker says that a key was deleted: without it, a recovery would restore the object from a log. A
marker is a file of 8 bytes, a modification time in nanoseconds (u64 little-endian), named by the SHA-256 of the
key: nothing that was put or logged before the deletion has a later one. A marker is needed while any log may hold
a record that is not later.
Tests: tests/storage/wal/test_recovery.py, tests/storage/wal/test_deletion_markers.py.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from hsparse.errors import Conflict, StoreFailed
from hsparse.storage.filesystem.object_file import (
    DIRECTORY_MODE,
    FILE_MODE,
    HalfWritten,
    file_status,
    is_half_written,
    new_temporary,
    open_directory,
    read_at,
    unlink_if_exists,
    write_all,
)
from hsparse.storage.filesystem.process_file import open_file_of_dead_process
from hsparse.storage.filesystem.root_directory import RootDirectory
from hsparse.storage.object_store import is_key
from hsparse.storage.wal.prepared_put import PreparedPut, Put
from hsparse.storage.wal.write_ahead_log import (
    LogRecord,
    is_damaged,
    latest_record,
    log_folder,
    log_paths,
    read_log,
    started_durably,
)

logger = logging.getLogger(__name__)

ATTEMPTS = 100

R = TypeVar("R")


def recover(root: RootDirectory) -> int:
    """Apply the logs of dead processes and remove them; return how many records were applied; blocks.

    A damaged log is applied as far as it can be read, and kept as `.hsparse/damaged/NAME`, with an error in the log.
    Recoveries exclude each other: a process that opens the store meanwhile waits, and serves no unrecovered state.
    """
    with root.exclusive("recovery"), ExitStack() as stack:
        dead = {path: file for path in log_paths(root) if (file := _open_dead(path, stack)) is not None}
        dates: dict[str, int] = {}
        for file in dead.values():
            for record in read_log(file):
                dates[record.key] = max(record.date, dates.get(record.key, 0))
        count = sum(_recover_log(root, file, dates) for file in dead.values())
        for path, file in dead.items():
            if is_damaged(file):
                _keep_damaged(root, path)
                continue
            os.ftruncate(file, 0)
            root.sync(file)
            Path(path).unlink(missing_ok=True)
    remove_old_deletion_markers(root)
    return count


def repair(root: RootDirectory, key: str) -> None:
    """Wait until the file of `key` is no longer being written in place; blocks.

    When its writer has died, or could not finish, the file is restored from the latest log record of the key.
    `StoreFailed` when there is no such record.
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


def repairing(root: RootDirectory, key: str, action: Callable[[], R]) -> R:
    """Return what `action` returns; whenever it finds the file of `key` half written, repair that and call again."""
    for _ in range(ATTEMPTS):
        try:
            return action()
        except HalfWritten:
            repair(root, key)
    raise StoreFailed(f"{key!r} changes faster than it can be written or deleted; try again.")


def _open_dead(path: str, stack: ExitStack) -> int | None:
    """Open the log of a dead process and lock it until the stack is closed; None when the process lives."""
    file = open_file_of_dead_process(path)
    if file is not None:
        stack.callback(os.close, file)
    return file


def _keep_damaged(root: RootDirectory, path: str) -> None:
    """Move a log away that was applied without its damaged parts."""
    folder = Path(root.internal, "damaged")
    folder.mkdir(DIRECTORY_MODE, exist_ok=True)
    kept = folder / f"{Path(path).name}.{root.now_ns()}"
    Path(path).rename(kept)
    for directory in (str(folder), log_folder(root), root.internal):
        root.sync_directory(directory)
    logger.error(
        "A write-ahead log is damaged, or a power loss has cut its last append: what can be read of it was put into "
        "place, but objects that were stored shortly before that process ended may have an earlier state, or be "
        "missing. Check the disk and what was written then; the log is kept as %s, delete it afterwards.",
        kept,
    )


def _recover_log(root: RootDirectory, file: int, dates: dict[str, int]) -> int:
    """Restore only the latest record of each key, so that no reader sees an earlier state."""
    latest = {record.key: record for record in read_log(file) if record.date == dates[record.key]}
    return sum(_restore(root, record) for record in latest.values() if is_key(record.key))


def _restore(root: RootDirectory, record: LogRecord) -> bool:
    """Restore a file from a record unless it has a later state; return whether that was needed."""
    path = f"{root.path}/{record.key}"
    while True:
        with root.locked(record.key), suppress(FileNotFoundError):  # another process prunes the directory
            status = file_status(path)
            if status is not None and is_half_written(status):
                record = latest_record(root, record.key) or record  # another process may have died since
            elif not _needs_restore(root, path, status, record):
                return False
            try:
                root.make_directories(record.key)
            except Conflict:
                return False  # an object is where its directory was, so it has been deleted
            _write(root, path, record)
            return True


def _needs_restore(root: RootDirectory, path: str, status: os.stat_result | None, record: LogRecord) -> bool:
    if status is None:
        return not Path(path).is_dir() and read_deletion_marker(root, record.key) < record.date
    if status.st_mtime_ns != record.date:
        return status.st_mtime_ns < record.date
    return not _make_durable_if_same(root, path, record)


def _make_durable_if_same(root: RootDirectory, path: str, record: LogRecord) -> bool:
    """Tell whether the file holds the record's data; if so, make it durable.

    The file is written again: a failed fsync is reported only once, and pages that it did not write count as
    clean afterwards, so the bytes that are read may never reach stable storage by an fsync exclusive.
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


def _write(root: RootDirectory, path: str, record: LogRecord) -> None:
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
    """Mark durably that records of `key` up to this modification time must not be restored.

    Called under the key's lock, before the file is removed. No marker is written when no log can hold such a record.
    """
    started = _log_starts(root)
    if started and mtime_ns >= min(started):
        write_deletion_markers(root, {key: mtime_ns})


def write_deletion_markers(root: RootDirectory, times: Mapping[str, int]) -> None:
    """Mark durably that records of each key up to its modification time must not be restored.

    Called under the keys' locks, before the files are removed.
    """
    _marker_folder(root).mkdir(DIRECTORY_MODE, exist_ok=True)
    with _locked_markers(root, fcntl.LOCK_SH) as folder:
        for key, mtime_ns in times.items():
            # Not truncated: the old marker counts until this one has reached stable storage.
            path = _marker_folder(root) / _marker_name(key)
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
            try:
                os.pwrite(file, max(mtime_ns, read_deletion_marker(root, key)).to_bytes(8, "little"), 0)
                root.sync(file)
            finally:
                os.close(file)
        root.sync(folder)
    root.sync_directory(root.internal)


def read_deletion_marker(root: RootDirectory, key: str) -> int:
    """Return the modification time in the deletion marker of `key`, or 0 when there is none."""
    try:
        return int.from_bytes((_marker_folder(root) / _marker_name(key)).read_bytes(), "little")
    except FileNotFoundError:
        return 0


def remove_old_deletion_markers(root: RootDirectory) -> None:
    """Remove the markers that are older than every log, unless a marker is being written."""
    with suppress(FileNotFoundError, BlockingIOError), _locked_markers(root, fcntl.LOCK_EX | fcntl.LOCK_NB):
        floor = min(_log_starts(root), default=None)
        for path in _marker_folder(root).iterdir():
            if floor is None or int.from_bytes(path.read_bytes(), "little") < floor:
                path.unlink()


def _log_starts(root: RootDirectory) -> list[int]:
    return [began for path in log_paths(root) if (began := started_durably(path)) is not None]


@contextmanager
def _locked_markers(root: RootDirectory, operation: int) -> Iterator[int]:
    """Hold a lock on the directory of markers, as its open file descriptor."""
    folder = open_directory(str(_marker_folder(root)))
    try:
        fcntl.flock(folder, operation)
        yield folder
    finally:
        os.close(folder)


def _marker_folder(root: RootDirectory) -> Path:
    return Path(root.internal, "deletions")


def _marker_name(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()
