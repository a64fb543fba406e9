"""A put of a small object on its way through the write-ahead log: prepared, logged, then applied to its file."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from dataclasses import dataclass

from hsparse.storage.filesystem.object_file import Condition, file_etag, unlink_if_exists, write_all
from hsparse.storage.object_store import Buffer
from hsparse.storage.wal.write_ahead_log import LogRecord


class NotLoggable(Exception):
    """A put of this file cannot be logged; it must use a temporary file and a rename."""


@dataclass(frozen=True, slots=True)
class Put:
    """A requested put."""

    key: str
    data: Buffer
    condition: Condition = Condition.NONE
    etag: str = ""


@dataclass(frozen=True, slots=True)
class PreparedPut:
    """A put ready to be logged, under its key's lock.

    `temporary` is the file to rename, None to write in place.
    """

    put: Put
    path: str
    file: int
    date: int
    temporary: str | None

    @property
    def record(self) -> LogRecord:
        return LogRecord(self.put.key, self.date, self.put.data)

    def apply(self) -> str:
        """Apply the logged put to the file; return the new etag."""
        if self.temporary is not None:
            os.rename(self.temporary, self.path)  # noqa: PTH104
            return file_etag(os.fstat(self.file))
        before = os.fstat(self.file)
        mode = stat.S_IMODE(before.st_mode)
        os.fchmod(self.file, mode | stat.S_ISVTX)
        write_all(self.file, self.put.data)
        if before.st_size > len(self.put.data):
            os.ftruncate(self.file, len(self.put.data))
        os.utime(self.file, ns=(self.date, self.date))
        os.fchmod(self.file, mode)
        return file_etag(os.fstat(self.file))

    def abandon(self) -> None:
        """Discard the put; the key stays as it was."""
        if self.temporary is not None:
            with suppress(OSError):  # the disk fails; the temporary file is swept later
                unlink_if_exists(self.temporary)


def open_for_writing(path: str) -> int | None:
    """Open a path that may be an object for writing; None when there is no file.

    `NotLoggable` when it is no regular file.
    """
    try:
        file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except IsADirectoryError as error:
        raise NotLoggable from error
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise NotLoggable
    return file
