"""Files of a posix store, by open file descriptors: whole reads and writes, and the etag of a state."""

from __future__ import annotations

import os
import stat
from contextlib import suppress

from hsparse.storage.object_store import Buffer


def file_etag(status: os.stat_result) -> str:
    """Return the etag of a file's state: its modification time, size and inode."""
    return f"{status.st_mtime_ns:x}-{status.st_size:x}-{status.st_ino:x}"


def open_file(path: str) -> int:
    """Open what may be an object for reading; a FIFO in its place is not waited for."""
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)


def open_directory(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def object_status(directory: int, name: str) -> os.stat_result | None:
    """Return the status of the file `name` in an open directory, None when there is no such file."""
    try:
        status = os.stat(name, dir_fd=directory)
    except FileNotFoundError:
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def unlink(name: str, directory: int) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)


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
