"""Puts that write a temporary file and rename it, for objects of any size; no write-ahead log is needed."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from secrets import token_hex
from typing import TypeAlias

from hsparse.attempts import MAX_CHANGE_ATTEMPTS
from hsparse.errors import StoreFailed
from hsparse.storage.filesystem.object_file import (
    FILE_MODE,
    TEMPORARY,
    Condition,
    check_condition,
    file_etag,
    object_status,
    open_directory,
    unlink_if_exists,
    write_all,
)
from hsparse.storage.filesystem.root_directory import RootDirectory, directory_conflict, high_water_mark
from hsparse.storage.object_store import Buffer

MTIME_STEPS_NS = (1, 1_000, 1_000_000, 1_000_000_000, 2_000_000_000)
"""Steps by which a modification time is raised above another; file systems resolve 1 ns to 2 s."""

Check: TypeAlias = Callable[[os.stat_result | None], None]
"""A function that raises `PreconditionFailed` if the status of the key's file violates the put's condition."""


def put_by_rename(
    root: RootDirectory, key: str, data: Buffer, condition: Condition = Condition.NONE, etag: str = ""
) -> str:
    """Put an object and return its etag once it is durable; blocks.

    Raises `PreconditionFailed` when the condition does not hold, `Conflict` when a directory has the key's path,
    `HalfWritten` when the file must be repaired first: see `hsparse.storage.wal.recovery.repairing`.
    """
    check = partial(check_condition, condition, etag, key)
    for _ in range(MAX_CHANGE_ATTEMPTS):
        try:
            return _attempt(root, key, data, check)
        except FileNotFoundError:
            continue  # pruned or swept by another process meanwhile
    raise StoreFailed(f"{key!r} cannot be put because its directory keeps vanishing; stop what removes it.")


def _attempt(root: RootDirectory, key: str, data: Buffer, check: Check) -> str:
    parent, _, name = key.rpartition("/")
    try:
        directory = open_directory(f"{root.path}/{parent}")
    except FileNotFoundError:
        check(None)
        with suppress(FileNotFoundError):  # pruned by another process meanwhile
            root.make_directories(key)
        raise
    except NotADirectoryError as error:
        check(None)
        raise directory_conflict(key) from error
    try:
        check(object_status(directory, name))  # fails early, before the bytes are written
        if os.fstat(directory).st_mode & stat.S_ISVTX:
            root.make_directories(key)
        return _replace(root, directory, key, data, check)
    finally:
        os.close(directory)


def _replace(root: RootDirectory, directory: int, key: str, data: Buffer, check: Check) -> str:
    """Write a temporary file in `directory`, rename it to the key's name if `check` passes, and return the etag."""
    name = key.rpartition("/")[2]
    temporary = TEMPORARY + token_hex(8)
    file = os.open(
        temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE, dir_fd=directory
    )
    try:
        write_all(file, data)
        now = root.now_ns()
        os.utime(file, ns=(now, now))
        root.sync(file)
        with root.locked(key) as lock:
            current = object_status(directory, name)
            check(current)
            floor = max(current.st_mtime_ns if current else 0, high_water_mark(lock, root.now_ns()))
            etag = _date(root, file, floor)
            try:
                os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
            except IsADirectoryError as error:
                raise directory_conflict(key) from error
    except BaseException:
        unlink_if_exists(temporary, directory)
        raise
    finally:
        os.close(file)
    root.sync(directory)
    return etag


def _date(root: RootDirectory, file: int, floor: int) -> str:
    """Raise the file's modification time above `floor` (ns) if needed; return the etag."""
    status = os.fstat(file)
    for step in MTIME_STEPS_NS:
        if status.st_mtime_ns > floor:
            return file_etag(status)
        os.utime(file, ns=(floor + step, floor + step))
        root.sync(file)  # rare: the clock is behind, or the file system keeps coarse times
        status = os.fstat(file)
    if status.st_mtime_ns > floor:
        return file_etag(status)
    raise StoreFailed(f"The file system of {root.path!r} does not keep modification times; use another one.")
