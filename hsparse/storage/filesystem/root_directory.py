"""The root directory of a posix store: its locks, its directories, and what makes them durable.

A directory is created with the sticky bit, which is cleared once its own entry has been fsynced in its parent,
and parents come first. So a directory without the bit is known to be durable with all above it, whoever
created it and however that process ended; a put that finds the bit does that fsync itself.
"""

from __future__ import annotations

import fcntl
import logging
import os
import stat
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from hsparse.errors import Conflict, Misconfigured
from hsparse.storage.filesystem.object_file import DIRECTORY_MODE, FILE_MODE, open_directory

logger = logging.getLogger(__name__)

LOCK_COUNT = 256
YEAR_NS = 365 * 86_400 * 10**9
INTERNAL = ".hsparse"
"""The directory under the root for all that is not an object: locks, logs, deletion markers."""
OPENED_AT_ONCE = 128
"""New directories that are held open while their parents are synced; a process may have some 1,000 open files."""


class RootDirectory:
    """The directory `path`. All methods block and may be called in any thread or process.

    With `fsync=False` nothing is synced. `now_ns` is the clock, in nanoseconds since the Unix epoch.
    """

    def __init__(self, path: str, *, fsync: bool = True, now_ns: Callable[[], int] = time.time_ns) -> None:
        self.path = path
        self.fsync = fsync
        self.now_ns = now_ns
        self.internal = f"{path}/{INTERNAL}"

    def make(self) -> None:
        """Create the root, durable in the directories above it, and the directory of its locks."""
        root = Path(self.path)
        missing = [path for path in (root, *root.parents) if not path.exists()]
        root.parent.mkdir(parents=True, exist_ok=True)
        for path in (root, Path(self.internal), Path(self.internal, "locks")):
            path.mkdir(DIRECTORY_MODE, exist_ok=True)
        for path in missing:
            self.sync_directory(str(path.parent))

    def lock_number(self, key: str) -> int:
        """Return the number of the lock that covers `key`."""
        return zlib.crc32(key.encode()) % LOCK_COUNT

    def open_lock(self, number: int) -> int:
        """Open a lock's file, unlocked. Two descriptors of one lock exclude each other."""
        return os.open(
            f"{self.internal}/locks/{number:02x}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE
        )

    @contextmanager
    def locked(self, key: str) -> Iterator[int]:
        """Hold the lock that covers `key`, as an open file descriptor."""
        with self.locked_number(self.lock_number(key)) as lock:
            yield lock

    @contextmanager
    def locked_number(self, number: int) -> Iterator[int]:
        """Hold a lock by its number, as an open file descriptor; who holds several takes them in order."""
        lock = self.open_lock(number)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield lock
        finally:
            os.close(lock)

    @contextmanager
    def exclusive(self, name: str) -> Iterator[None]:
        """Hold the lock of a thing that one process does at a time, by its name; wait for it."""
        lock = os.open(f"{self.internal}/{name}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def make_directories(self, key: str, *, durable: bool = True) -> None:
        """Create the directories above `key`, each durable in its parent before the next.

        With `durable=False` new directories keep the sticky bit, the mark of a directory that is not durable yet.
        """
        if not durable and "/" in key:  # mostly only the last one is new
            last = f"{self.path}/{key}".rpartition("/")[0]
            with suppress(FileExistsError, FileNotFoundError, NotADirectoryError):  # told apart below
                os.mkdir(last, stat.S_ISVTX | DIRECTORY_MODE)  # noqa: PTH102 (a Path costs more than the call)
                return
        parent = Path(self.path)
        for component in key.split("/")[:-1]:
            path = parent / component
            with suppress(FileExistsError):
                path.mkdir(stat.S_ISVTX | DIRECTORY_MODE)
            # `is_dir` would be False for a directory that was just pruned.
            if not stat.S_ISDIR(path.stat().st_mode):
                raise directory_conflict(key)
            if durable:
                self._make_durable(parent, path)
            parent = path

    def sync_directories(self, key: str) -> None:
        """Make the existing directories above `key` durable, and the names in the last of them.

        `FileNotFoundError` when the root itself does not exist.
        """
        while True:
            path = Path(self.path)
            try:
                for component in key.split("/")[:-1]:
                    self._make_durable(path, path / component)
                    path /= component
            except (FileNotFoundError, NotADirectoryError):
                pass  # pruned: the parent's names must be made durable instead
            try:
                return self.sync_directory(str(path))
            except FileNotFoundError:
                if path == Path(self.path):
                    raise

    def sync_all_directories(self, directories: Iterable[str]) -> None:
        """Do what `sync_directories` does for a key in each of these directories, relative to the root.

        The parent of many new ones is synced once for all of them.
        """
        wanted = set(directories)
        levels: dict[int, set[str]] = {}
        for parts in {tuple(directory.split("/")) for directory in wanted if directory}:
            for depth in range(1, len(parts) + 1):
                levels.setdefault(depth, set()).add("/".join(parts[:depth]))
        synced: set[str] = set()
        for depth in sorted(levels):
            level = sorted(levels[depth])
            for first in range(0, len(level), OPENED_AT_ONCE):
                synced |= self._make_all_durable(level[first : first + OPENED_AT_ONCE])
        for directory in wanted - synced:
            try:
                self.sync_directory(f"{self.path}/{directory}")
            except (FileNotFoundError, NotADirectoryError):  # pruned
                self.sync_directories(f"{directory}/")

    def _make_all_durable(self, level: Sequence[str]) -> set[str]:
        """Do what `_make_durable` does for directories whose parents are durable; return the parents synced."""
        with ExitStack() as stack:
            marked: dict[str, list[tuple[int, int]]] = {}
            for directory in level:
                try:
                    file = open_directory(f"{self.path}/{directory}")
                except (FileNotFoundError, NotADirectoryError):
                    continue  # pruned
                mode = os.fstat(file).st_mode
                if mode & stat.S_ISVTX:
                    stack.callback(os.close, file)
                    marked.setdefault(directory.rpartition("/")[0], []).append((file, mode))
                else:
                    os.close(file)
            for parent, children in list(marked.items()):
                try:
                    self.sync_directory(f"{self.path}/{parent}")
                except (FileNotFoundError, NotADirectoryError):  # pruned, so these are too
                    del marked[parent]
                    continue
                for file, mode in children:
                    self._clear_mark(file, mode)
        return set(marked)

    def _make_durable(self, parent: Path, path: Path) -> None:
        """Make the directory `path` durable in `parent` if it has the sticky bit, and clear the bit.

        Through a descriptor: the directory at this path may be pruned and created again meanwhile.
        """
        directory = open_directory(str(path))
        try:
            mode = os.fstat(directory).st_mode
            if mode & stat.S_ISVTX:
                self.sync_directory(str(parent))
                self._clear_mark(directory, mode)
        finally:
            os.close(directory)

    def _clear_mark(self, directory: int, mode: int) -> None:
        with suppress(PermissionError):  # another user's: it stays marked, and each put syncs it again
            os.fchmod(directory, stat.S_IMODE(mode) & ~stat.S_ISVTX)

    def sync(self, file: int) -> None:
        """Wait until an open file or directory has reached stable storage (fsync)."""
        if self.fsync:
            os.fsync(file)

    def sync_directory(self, path: str) -> None:
        """Wait until the names in a directory have reached stable storage."""
        directory = open_directory(path)
        try:
            self.sync(directory)
        finally:
            os.close(directory)


def directory_conflict(key: str) -> Conflict:
    """Return the error of a put that needs a directory where an object is, or the reverse."""
    return Conflict(
        f"{key!r} cannot be put in a posix store, where a key cannot be an object and a directory of others "
        "at once; use another key, or another store."
    )


def unusable_directory(path: str, error: OSError, deed: str = "write to") -> Misconfigured:
    """Return the error of a root directory that cannot be created, written to or locked, or read."""
    return Misconfigured(
        f"The store's directory {path!r} cannot be used ({error.strerror}); name one that this "
        f"process may {deed}."
    )


def high_water_mark(lock: int, now_ns: int) -> int:
    """Return the high-water mark of modification times under this lock, in nanoseconds, or 0.

    No deleted file had a later time, and no record of a write-ahead log has one, applied or not. A mark that is more
    than a year later than now, and than when the lock's file was written, is damaged: it is replaced by that time.
    """
    mark = int.from_bytes(os.pread(lock, 8, 0), "big")
    if mark <= now_ns:
        return mark
    written = max(now_ns, os.fstat(lock).st_mtime_ns)
    if mark <= written + YEAR_NS:
        return mark
    logger.warning(
        "A lock of the store has the time %d ns, which has not come yet: its file is damaged, and gets the time %d ns.",
        mark,
        written,
    )
    raise_high_water_mark(lock, written)
    return written


def raise_high_water_mark(lock: int, mtime_ns: int) -> None:
    """Store the modification time of a file about to be deleted, or of a put about to be logged.

    `mtime_ns` is at least the mark that is there, unless that is damaged.
    """
    os.pwrite(lock, mtime_ns.to_bytes(8, "big"), 0)
