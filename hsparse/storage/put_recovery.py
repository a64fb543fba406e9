"""Making good what logs of puts hold of processes that have ended without emptying theirs.

A record is put into its file unless the file shows a later state: files carry the date of their record as
modification time, and every later put of the key has a later one, whoever made it and whether it was logged
or not. So logs need no order among each other, and a log may be made good any number of times.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from hsparse.errors import Conflict, StoreFailed
from hsparse.storage.deletions import deleted_at, forget_deletions
from hsparse.storage.posix_file import file_status, is_half_written, new_temporary, read_at, unlink, write_all
from hsparse.storage.posix_root import PosixRoot
from hsparse.storage.put_log import Record, log_paths, read_log


def recover(root: PosixRoot) -> int:
    """Make good the logs of dead processes and remove them; return how many records were put; blocks."""
    count = 0
    for path in log_paths(root):
        try:
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # another recovers too
        try:
            with suppress(BlockingIOError):  # its process lives
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                count += _recover_log(root, file)
                with suppress(FileNotFoundError):
                    Path(path).unlink()
        finally:
            os.close(file)
    forget_deletions(root)
    return count


def settle(root: PosixRoot, key: str) -> None:
    """Wait until the file of `key` is no longer being written in place; blocks.

    When its writer has died the writer's log is made good. `StoreFailed` when the writer lives and could not
    finish.
    """
    if not _is_unsettled(root, key):
        return
    recover(root)
    if _is_unsettled(root, key):
        raise StoreFailed(
            f"{key!r} was left half written by a process that still runs, for its disk failed; restart that "
            "process, and its log will mend the object."
        )


def _is_unsettled(root: PosixRoot, key: str) -> bool:
    with root.locked(key):  # its writer holds this as long as it writes
        status = file_status(f"{root.path}/{key}")
        return status is not None and is_half_written(status)


def _recover_log(root: PosixRoot, file: int) -> int:
    latest: dict[str, Record] = {record.key: record for record in read_log(file)}
    count = sum(_restore(root, record) for record in latest.values())
    os.ftruncate(file, 0)
    root.sync(file)
    return count


def _restore(root: PosixRoot, record: Record) -> bool:
    """Give a file the state of a record unless it has a later one; tell whether that was needed."""
    path = f"{root.path}/{record.key}"
    while True:
        try:
            root.make_directories(record.key)
        except Conflict:
            return False  # an object stands where its directory was: it has been deleted
        with root.locked(record.key), suppress(FileNotFoundError):  # another prunes the directory
            if needed := _is_needed(root, path, record):
                _write(root, path, record)
            return needed


def _is_needed(root: PosixRoot, path: str, record: Record) -> bool:
    status = file_status(path)
    if status is None:
        return not Path(path).is_dir() and deleted_at(root, record.key) < record.date
    if is_half_written(status) or status.st_mtime_ns < record.date:
        return True
    return status.st_mtime_ns == record.date and not _sync_if_same(root, path, record)


def _sync_if_same(root: PosixRoot, path: str, record: Record) -> bool:
    """Tell whether the file holds what the record says; if so it is durable."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if read_at(file, 0, len(record.data) + 1) != record.data:
            return False
        root.sync(file)
    finally:
        os.close(file)
    root.sync_directory(path.rpartition("/")[0])
    return True


def _write(root: PosixRoot, path: str, record: Record) -> None:
    directory = path.rpartition("/")[0]
    file, temporary = new_temporary(directory)
    try:
        write_all(file, record.data)
        os.utime(file, ns=(record.date, record.date))
        root.sync(file)
        os.rename(temporary, path)  # noqa: PTH104
    except BaseException:
        unlink(temporary)
        raise
    finally:
        os.close(file)
    root.sync_directory(directory)
