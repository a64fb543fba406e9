"""Files that are locked as long as their process lives, by which others tell a live process from a dead one.

The lock is a `flock` of the open file: no program that the process starts inherits it, and it ends with the process,
however that ends. A write-ahead log is such a file, and so is a server's entry in its root directory. All functions
block.
"""

from __future__ import annotations

import fcntl
import os
from secrets import token_hex

from hsparse.storage.filesystem.object_file import FILE_MODE


def create_process_file(folder: str) -> tuple[int, str]:
    """Create an empty file of this process in `folder`; return it open and locked, and its path.

    Closing the file ends the lock.
    """
    while True:
        path = f"{folder}/{token_hex(8)}"
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.fstat(file).st_nlink:
                return file, path
        except OSError:
            os.close(file)  # whoever looks next removes the empty file of a dead process
            raise
        os.close(file)  # it was taken for a dead process's, and removed, before it was locked


def open_file_of_dead_process(path: str) -> int | None:
    """Open and lock the file of a dead process; None while its process lives, or if the file is gone."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    return file
