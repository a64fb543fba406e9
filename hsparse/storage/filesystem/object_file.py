"""Files of objects in a posix store: open, read, write, etags, conditions, listing and sweeping.

All functions block. Most functions take open file descriptors, so that they use one file even if a put replaces it.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from enum import IntEnum
from secrets import token_hex
from typing import TypeAlias

from hsparse.errors import FULL, BadRequest, HsparseError, PreconditionFailed, StoreFailed, StoreFull
from hsparse.printable import is_printable
from hsparse.storage.object_store import RESERVED, Buffer, is_key

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700
"""Modes that keep other accounts of the machine from reading objects and holding locks, whatever the umask."""
TEMPORARY = ".tmp-"
"""Prefix of the names of temporary files, which are not objects yet."""


class HalfWritten(Exception):
    """Raised for a file that is marked as being written in place; see `hsparse.storage.wal.recovery.repair`."""


class Condition(IntEnum):
    """The condition of a put: none, that the object is absent, or that its etag matches."""

    NONE = 0
    ABSENT = 1
    MATCH = 2


def file_etag(status: os.stat_result) -> str:
    """Return the etag of a file's state: its modification time, size and inode."""
    return f"{status.st_mtime_ns:x}-{status.st_size:x}-{status.st_ino:x}"


def open_file(path: str) -> int:
    """Open the path of an object for reading; if the path is a FIFO, do not wait for its writer."""
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)


def open_directory(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def object_status(directory: int, name: str) -> os.stat_result | None:
    """Return the status of the regular file `name` in an open directory, or None if there is no such file.

    Raises `HalfWritten` when the file is being written in place.
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
    """Return the status of a regular file, even if it is half written, or None if there is no such file."""
    try:
        status = os.stat(path)  # noqa: PTH116 (a Path for each of a million names costs more than the stat)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def is_half_written(status: os.stat_result) -> bool:
    """Tell whether a file has the sticky bit, the mark of a file that is being written in place."""
    return bool(status.st_mode & stat.S_ISVTX)


def unlink_if_exists(name: str, directory: int | None = None) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)


def new_temporary(directory: str) -> tuple[int, str]:
    """Create a temporary file in `directory`; return a pair: its descriptor, open for writing, and its path."""
    path = f"{directory}/{TEMPORARY}{token_hex(8)}"
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE), path


def write_all(file: int, data: Buffer) -> None:
    view = memoryview(data).cast("B")
    while view:
        view = view[os.write(file, view) :]


def read_at(file: int, first: int, count: int) -> bytes:
    """Read `count` bytes from byte `first`, or fewer if the file ends. One system call reads at most 2 GiB."""
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
    """Raise `PreconditionFailed` if `current`, the status of the key's file or None, violates the condition."""
    if condition is Condition.ABSENT and current is not None:
        raise PreconditionFailed(f"{key!r} exists already; read it and replace that state.")
    if condition is Condition.MATCH and (current is None or file_etag(current) != etag):
        raise PreconditionFailed(f"{key!r} is no longer at etag {etag}; read it again.")


REMEDIES = {
    **FULL,
    errno.EIO: "check the disk",
    errno.EROFS: "mount its file system for writing",
    errno.EACCES: "give this process the right to read and write there",
    errno.EPERM: "give this process the right to read and write there",
    errno.EMFILE: "raise the limit of open files",
    errno.ENFILE: "raise the limit of open files",
}


def translate_os_error(error: OSError, key: str, store: str) -> HsparseError:
    """Return the store's error for an error of the file system; its message names the key and a remedy."""
    code = error.errno or 0
    if code == errno.ENAMETOOLONG:
        return BadRequest(f"The path of {key!r} is too long for the file system; use a shorter key.")
    remedy = REMEDIES.get(code, "see the system's log")
    kind = StoreFull if code in FULL else StoreFailed
    return kind(f"The store {store!r} failed on {key!r} ({error.strerror}); {remedy}.")


STALE_NS = 3600 * 1_000_000_000
"""Age, in nanoseconds, of temporary files to remove. A put takes seconds, and is retried if its file is removed."""

Item: TypeAlias = tuple[str, os.stat_result | None]
"""A key and its file's status, or a common prefix and None."""


def walk(root: str, prefix: str, delimiter: bool, start_after: str, *, sweeps: bool = True) -> Iterator[Item]:
    """Yield the objects below the directory `root` in the order and selection of `ObjectStore.list`.

    Only the names in the directories above the current key are in memory. Objects that appear or disappear
    during the walk may be missed; other objects are yielded once. `sweeps` removes stale temporary files.
    """
    base = prefix.rpartition("/")[0]
    if base and not is_key(base):
        return
    at = f"{base}/" if base else ""
    yield from _walk(root, at, prefix, delimiter, start_after, sweeps)


def _walk(root: str, at: str, prefix: str, delimiter: bool, start_after: str, sweeps: bool) -> Iterator[Item]:
    for key in sorted(at + name for name in _names(f"{root}/{at}", sweeps)):
        if not key.startswith(prefix):
            continue
        if not key.endswith("/"):
            if key > start_after and (status := file_status(f"{root}/{key}")) is not None:
                yield key, status
        elif delimiter:
            if key > start_after and _holds_object(f"{root}/{key}", sweeps):
                yield key, None
        elif key > start_after or start_after.startswith(key):
            yield from _walk(root, key, prefix, delimiter, start_after, sweeps)


def _names(directory: str, sweeps: bool) -> Iterator[str]:
    """Yield the names in a directory that can be part of a key; names of directories end in `/`.

    With the `/`, a directory sorts like the keys below it: the file `a.b` comes before `a/b`.
    """
    try:
        scan = os.scandir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return
    with scan:
        for entry in scan:
            if entry.name.startswith(TEMPORARY):
                if sweeps:
                    _sweep_file(entry.path)
            elif is_printable(entry.name) and not entry.name.startswith(RESERVED):
                yield f"{entry.name}/" if entry.is_dir() else entry.name


def _holds_object(directory: str, sweeps: bool) -> bool:
    """Tell whether any object is below `directory`; a running or failed put may leave an empty directory."""
    below = []
    for name in _names(directory, sweeps):
        if not name.endswith("/"):
            return True
        below.append(name)
    return any(_holds_object(directory + name, sweeps) for name in below)


def sweep(root: str) -> int:
    """Remove all stale temporary files below `root`; return their number."""
    swept = 0
    for directory, _, names in os.walk(root):
        swept += sum(_sweep_file(f"{directory}/{name}") for name in names if name.startswith(TEMPORARY))
    return swept


def _sweep_file(path: str) -> bool:
    status = file_status(path)
    if status is None or time.time_ns() - status.st_mtime_ns < STALE_NS:
        return False
    with suppress(FileNotFoundError):  # another process has swept it
        os.unlink(path)  # noqa: PTH108
    return True
