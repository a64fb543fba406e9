"""Recovery from write-ahead logs of dead processes, and repair of half-written files.

A record is applied to its file unless the file has a later state. Files carry the date of their record as
modification time, and every later put of the key, logged or not, by any process, has a later time. Logs therefore
need no order among each other, and recovery is idempotent.

Objects deleted after they were logged stay deleted (`hsparse.storage.wal.deletion_markers`).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TypeVar

from hsparse.attempts import MAX_CHANGE_ATTEMPTS
from hsparse.errors import Conflict, StoreFailed
from hsparse.storage.filesystem.object_file import (
    DIRECTORY_MODE,
    HalfWritten,
    file_status,
    is_half_written,
    new_temporary,
    read_at,
    unlink_if_exists,
    write_all,
)
from hsparse.storage.filesystem.root_directory import RootDirectory
from hsparse.storage.filesystem.served_root import open_file_of_dead_process
from hsparse.storage.object_store import is_key
from hsparse.storage.wal.deletion_markers import DeletionMarkers, remove_old_deletion_markers
from hsparse.storage.wal.write_ahead_log import (
    LogRecord,
    PreparedPut,
    Put,
    is_damaged,
    latest_record,
    log_folder,
    log_paths,
    read_log,
)

logger = logging.getLogger(__name__)


R = TypeVar("R")


def recover(root: RootDirectory) -> int:
    """Apply the logs of dead processes and remove them; return the number of applied records; blocks the thread.

    The readable records of a damaged log are applied. The log is kept as `.hsparse/damaged/NAME`; an error is logged.
    Recoveries exclude each other: a process that opens the store meanwhile waits, and serves no unrecovered state.
    """
    with root.exclusive("recovery"), ExitStack() as stack:
        dead = {path: file for path in log_paths(root) if (file := _open_dead(path, stack)) is not None}
        dates: dict[str, int] = {}
        for file in dead.values():
            for record in read_log(file):
                dates[record.key] = max(record.date, dates.get(record.key, 0))
        markers = DeletionMarkers(root)
        count = sum(_recover_log(root, file, dates, markers) for file in dead.values())
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
    """Wait until the file of `key` is no longer being written in place; blocks the thread.

    If the writer has died or could not finish, the file is restored from the latest log record of the key. Raises
    `StoreFailed` when there is no such record.
    """
    path = f"{root.path}/{key}"
    with root.locked(key):  # the writer holds this lock while it writes
        status = file_status(path)
        if status is None or not is_half_written(status):
            return
        record = latest_record(root, key)
        if record is None:
            raise StoreFailed(
                f"{key!r} is marked as half written and no log holds its bytes; restore its file from a copy, "
                "or remove the file's sticky bit if another program has set the bit."
            )
        _write(root, path, record)


def repairing(root: RootDirectory, key: str, action: Callable[[], R]) -> R:
    """Return the result of `action`; whenever `action` raises `HalfWritten`, repair the file of `key` and retry."""
    for _ in range(MAX_CHANGE_ATTEMPTS):
        try:
            return action()
        except HalfWritten:
            repair(root, key)
    raise StoreFailed(f"{key!r} changes faster than it can be written or deleted; try again.")


def _open_dead(path: str, stack: ExitStack) -> int | None:
    """Open a dead process's log and lock it until the stack is closed, or return None if the process lives."""
    file = open_file_of_dead_process(path)
    if file is not None:
        stack.callback(os.close, file)
    return file


def _keep_damaged(root: RootDirectory, path: str) -> None:
    """Move a damaged log to `.hsparse/damaged` after its readable records were applied, and log an error."""
    folder = Path(root.internal, "damaged")
    folder.mkdir(DIRECTORY_MODE, exist_ok=True)
    kept = folder / f"{Path(path).name}.{root.now_ns()}"
    Path(path).rename(kept)
    for directory in (str(folder), log_folder(root), root.internal):
        root.sync_directory(directory)
    logger.error(
        "A write-ahead log is damaged or truncated, for instance by a power loss. Its readable records were applied, "
        "but objects that were stored shortly before its process ended may have an earlier state or be missing. Check "
        "the disk and these objects; the log is kept as %s, delete it afterwards.",
        kept,
    )


def _recover_log(root: RootDirectory, file: int, dates: dict[str, int], markers: DeletionMarkers) -> int:
    """Restore the files whose latest record is in this log; return their number. Readers thus see no older state."""
    latest = {record.key: record for record in read_log(file) if record.date == dates[record.key]}
    return sum(_restore(root, record, markers) for record in latest.values() if is_key(record.key))


def _restore(root: RootDirectory, record: LogRecord, markers: DeletionMarkers) -> bool:
    """Restore a file from a record unless the file has a later state; return True if it was restored."""
    path = f"{root.path}/{record.key}"
    while True:
        with root.locked(record.key), suppress(FileNotFoundError):  # another process prunes the directory
            status = file_status(path)
            if status is not None and is_half_written(status):
                record = latest_record(root, record.key) or record  # another process may have died since
            elif not _needs_restore(root, path, status, record, markers):
                return False
            try:
                root.make_directories(record.key)
            except Conflict:
                return False  # an object now has the directory's path, so this key has been deleted
            _write(root, path, record)
            return True


def _needs_restore(
    root: RootDirectory,
    path: str,
    status: os.stat_result | None,
    record: LogRecord,
    markers: DeletionMarkers,
) -> bool:
    if status is None:
        return not Path(path).is_dir() and not markers.cover(record.key, record.date)
    if status.st_mtime_ns != record.date:
        return status.st_mtime_ns < record.date
    return not _make_durable_if_same(root, path, record)


def _make_durable_if_same(root: RootDirectory, path: str, record: LogRecord) -> bool:
    """Tell whether the file holds the record's data; if so, write the data again and make the file durable.

    An fsync alone is not enough: if an earlier fsync failed, its pages count as clean although they may not be on
    stable storage, and the failure is not reported again.
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
