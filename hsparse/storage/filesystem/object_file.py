"""The file of an object: opening, reading and writing it, its etag, and the conditions a put checks on it.

All functions block. Most take open file descriptors, so that a file that is replaced meanwhile stays the same.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from enum import IntEnum
from secrets import token_hex

from hsparse.errors import BadRequest, HsparseError, PreconditionFailed, StoreFailed
from hsparse.storage.object_store import Buffer

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700
"""Other accounts of the machine neither read what is stored nor hold locks, whatever the umask is."""
TEMPORARY = ".tmp-"
"""Prefix of the names of temporary files, which are no objects yet."""


class HalfWritten(Exception):
    """A file is marked as being written in place; see `hsparse.storage.wal.recovery.repair`."""


class Condition(IntEnum):
    """What a conditional put requires of the current object."""

    NONE = 0
    ABSENT = 1
    MATCH = 2


def file_etag(status: os.stat_result) -> str:
    """Return the etag of a file's state: its modification time, size and inode."""
    return f"{status.st_mtime_ns:x}-{status.st_size:x}-{status.st_ino:x}"


def open_file(path: str) -> int:
    """Open a path that may be an object for reading; never wait for a FIFO in its place."""
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)


def open_directory(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def object_status(directory: int, name: str) -> os.stat_result | None:
    """Return the status of the file `name` in an open directory, None when there is no such file.

    Raises `HalfWritten` when it is being written in place.
    """
    try:
        status = os.stat(name, dir_fd=directory)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    if is_half_written(status):
        raise HalfWritten
    return status


def file_status(path: str) -> os.stat_result | None:
    """Return the status of a file, also of a half-written one; None when there is no file."""
    try:
        status = os.stat(path)  # noqa: PTH116 (a Path for each of a million names costs more than the stat)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def is_half_written(status: os.stat_result) -> bool:
    """Tell whether a file has the sticky bit: the mark of a file that is being written in place."""
    return bool(status.st_mode & stat.S_ISVTX)


def unlink_if_exists(name: str, directory: int | None = None) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)


def new_temporary(directory: str) -> tuple[int, str]:
    """Create a temporary file in `directory`; return it open for writing, and its path."""
    path = f"{directory}/{TEMPORARY}{token_hex(8)}"
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE), path


def write_all(file: int, data: Buffer) -> None:
    view = memoryview(data).cast("B")
    while view:
        view = view[os.write(file, view) :]


def read_at(file: int, first: int, count: int) -> bytes:
    """Read `count` bytes from byte `first`, fewer where the file ends; one call reads at most 2 GiB."""
    data = os.pread(file, count, first)
    if len(data) == count:
        return data
    pieces = [data]
    while data and (count := count - len(data)):
        first += len(data)
        data = os.pread(file, count, first)
        pieces.append(data)
    return b"".join(pieces)


def check_condition(condition: Condition, etag: str, key: str, current: os.stat_result | None) -> None:
    """Raise `PreconditionFailed` when `current`, the status of the key's file or None, violates the condition."""
    if condition is Condition.ABSENT and current is not None:
        raise PreconditionFailed(f"{key!r} exists already; read it and replace that state.")
    if condition is Condition.MATCH and (current is None or file_etag(current) != etag):
        raise PreconditionFailed(f"{key!r} is no longer at etag {etag}; read it again.")


REMEDIES = {
    errno.ENOSPC: "free space on its file system",
    errno.EDQUOT: "raise the quota of its file system",
    errno.EIO: "check the disk",
    errno.EROFS: "mount its file system for writing",
    errno.EACCES: "give this process the right to read and write there",
    errno.EPERM: "give this process the right to read and write there",
    errno.EMFILE: "raise the limit of open files",
    errno.ENFILE: "raise the limit of open files",
}


def translate_os_error(error: OSError, key: str, store: str) -> HsparseError:
    """Return the store's error for one of the file system, which names the key and a remedy."""
    code = error.errno or 0
    if code == errno.ENAMETOOLONG:
        return BadRequest(f"The path of {key!r} is too long for the file system; use a shorter key.")
    remedy = REMEDIES.get(code, "see the system's log")
    return StoreFailed(f"The store {store!r} failed on {key!r} ({error.strerror}); {remedy}.")
