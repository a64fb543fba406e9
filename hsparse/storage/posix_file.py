"""Files of a posix store, by open file descriptors: whole reads and writes, and the etag of a state."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from secrets import token_hex

from hsparse.storage.object_store import Buffer

TEMPORARY = ".tmp-"
"""How the names of files begin that are not yet objects."""


class HalfWritten(Exception):
    """A file is marked as being written in place, see `hsparse.storage.logged_puts`: to be settled first."""


def file_etag(status: os.stat_result) -> str:
    """Return the etag of a file's state: its modification time, size and inode."""
    return f"{status.st_mtime_ns:x}-{status.st_size:x}-{status.st_ino:x}"


def open_file(path: str) -> int:
    """Open what may be an object for reading; a FIFO in its place is not waited for."""
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
    """Return the status of a file, None where there is none; a file half written has one too."""
    try:
        status = os.stat(path)  # noqa: PTH116 (a Path for each of a million names costs more than the stat)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def is_half_written(status: os.stat_result) -> bool:
    """Tell whether a file carries the mark of one that is being written in place: the sticky bit."""
    return bool(status.st_mode & stat.S_ISVTX)


def unlink(name: str, directory: int | None = None) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)


def new_temporary(directory: str) -> tuple[int, str]:
    """Make a temporary file in the directory of this path; return it open for writing, and its path."""
    path = f"{directory}/{TEMPORARY}{token_hex(8)}"
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666), path


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
