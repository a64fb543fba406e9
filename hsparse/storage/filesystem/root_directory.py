"""The directory of a posix store: its locks, its directories, and what makes them durable."""

from __future__ import annotations

import fcntl
import os
import stat
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hsparse.errors import Conflict
from hsparse.storage.filesystem.object_file import open_directory

LOCK_COUNT = 256
INTERNAL = ".hsparse"
"""The directory under the root that holds what is not an object: locks, logs, marks of deletions."""


class RootDirectory:
    """The directory `path`. All methods block and may be called in any thread or process.

    With `fsync=False` nothing is synced. `now_ns` is the clock, in nanoseconds since the Unix epoch.
    """

    def __init__(self, path: str, *, fsync: bool = True, now_ns: Callable[[], int] = time.time_ns) -> None:
        self.path = path
        self.fsync = fsync
        self.now_ns = now_ns
        self.own = f"{path}/{INTERNAL}"

    def make(self) -> None:
        """Make the root, durable in the directories above it, and the directory of its locks."""
        root = Path(self.path)
        missing = [path for path in (root, *root.parents) if not path.exists()]
        Path(self.own, "locks").mkdir(parents=True, exist_ok=True)
        for path in missing:
            self.sync_directory(str(path.parent))

    def lock_number(self, key: str) -> int:
        """Return the number of the lock that covers `key`."""
        return zlib.crc32(key.encode()) % LOCK_COUNT

    def open_lock(self, number: int) -> int:
        """Open a lock's file, unlocked. Two descriptors of one lock exclude each other."""
        return os.open(f"{self.own}/locks/{number:02x}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)

    @contextmanager
    def locked(self, key: str) -> Iterator[int]:
        """Hold the lock that covers `key`, as an open file descriptor."""
        lock = self.open_lock(self.lock_number(key))
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield lock
        finally:
            os.close(lock)

    def make_directories(self, key: str, *, durable: bool = True) -> None:
        """Make the directories above `key`, each durable in its parent before the next.

        With `durable=False` new ones keep the mark that says they are not; see `hsparse.storage.posix`.
        """
        parent = Path(self.path)
        for component in key.split("/")[:-1]:
            path = parent / component
            with suppress(FileExistsError):
                path.mkdir(0o1777)
            if not stat.S_ISDIR(path.stat().st_mode):  # not `is_dir`, which says no of one pruned just now
                raise directory_conflict(key)
            if durable:
                self._keep_directory(parent, path)
            parent = path

    def sync_directories(self, key: str) -> None:
        """Make durable which of the directories above `key` there are, and the names in the last of them.

        `FileNotFoundError` when the root itself is not there.
        """
        while True:
            path = Path(self.path)
            try:
                for component in key.split("/")[:-1]:
                    self._keep_directory(path, path / component)
                    path /= component
            except (FileNotFoundError, NotADirectoryError):
                pass  # pruned: that it is gone is what the one above is to say
            try:
                return self.sync_directory(str(path))
            except FileNotFoundError:
                if path == Path(self.path):
                    raise  # the root itself is gone: nothing is there to be made durable

    def _keep_directory(self, parent: Path, path: Path) -> None:
        """Make the directory `path` durable in `parent` if it bears the mark, and take that off.

        Through a descriptor: another may be pruned and made again by this path before the mark is taken off.
        """
        directory = open_directory(str(path))
        try:
            mode = os.fstat(directory).st_mode
            if mode & stat.S_ISVTX:
                self.sync_directory(str(parent))
                with suppress(PermissionError):  # another user's: it stays marked, and puts sync it again
                    os.fchmod(directory, stat.S_IMODE(mode) & ~stat.S_ISVTX)
        finally:
            os.close(directory)

    def sync(self, file: int) -> None:
        """Wait until an open file or directory is on the disk."""
        if self.fsync:
            os.fsync(file)

    def sync_directory(self, path: str) -> None:
        """Wait until the names in a directory are on the disk."""
        directory = open_directory(path)
        try:
            self.sync(directory)
        finally:
            os.close(directory)


def directory_conflict(key: str) -> Conflict:
    """Return what a put fails with where a directory is needed and an object stands, or the reverse."""
    return Conflict(
        f"{key!r} cannot be put in a posix store, where a key cannot be an object and a directory of others "
        "at once; use another key, or another store."
    )


def high_water_mark(lock: int) -> int:
    """Return the latest modification time in nanoseconds that was passed under this lock, or 0.

    No file that was deleted had a later one, and no record of a log, made good or not.
    """
    return int.from_bytes(os.pread(lock, 8, 0), "big")


def raise_high_water_mark(lock: int, mtime_ns: int) -> None:
    """Note the modification time of a file about to be deleted, or of a put about to be logged.

    It is not before what `high_water_mark` tells.
    """
    os.pwrite(lock, mtime_ns.to_bytes(8, "big"), 0)
