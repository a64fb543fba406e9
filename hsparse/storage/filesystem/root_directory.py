"""The root directory of a posix store: its locks, and durable directories for keys.

A directory is created with the sticky bit. The bit is cleared once the directory's entry has been fsynced in its
parent, parents first. A directory without the bit is therefore durable, with all directories above it, whichever
process created it and however that process ended. A put that finds the bit does the fsync.
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
"""The directory under the root for files that are not objects: locks, logs, deletion markers."""
OPENED_AT_ONCE = 128
"""New directories held open while their parents are synced; a process may have about 1,000 open files."""


class RootDirectory:
    """The root directory `path`. All methods block and may be called in any thread or process.

    With `fsync=False` nothing is synced. `now_ns` is the clock, in nanoseconds since the Unix epoch.
    """

    def __init__(self, path: str, *, fsync: bool = True, now_ns: Callable[[], int] = time.time_ns) -> None:
        self.path = path
        self.fsync = fsync
        self.now_ns = now_ns
        self.internal = f"{path}/{INTERNAL}"

    def make(self) -> None:
        """Create the root and its directory of locks; make the root's entries in the directories above durable."""
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
        """Open the file of a lock without locking it. Two descriptors of one lock exclude each other."""
        return os.open(
            f"{self.internal}/locks/{number:02x}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE
        )

    @contextmanager
    def locked(self, key: str) -> Iterator[int]:
        """Hold the lock that covers `key` during the context; yield the descriptor of the lock file."""
        with self.locked_number(self.lock_number(key)) as lock:
            yield lock

    @contextmanager
    def locked_number(self, number: int) -> Iterator[int]:
        """Hold lock `number` during the context; yield its descriptor. Take several locks in ascending order."""
        lock = self.open_lock(number)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield lock
        finally:
            os.close(lock)

    @contextmanager
    def exclusive(self, name: str) -> Iterator[None]:
        """Wait for the lock `name`, and hold it during the context; only one process holds it at a time."""
        lock = os.open(f"{self.internal}/{name}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def make_directories(self, key: str, *, durable: bool = True) -> None:
        """Create the directories above `key`, each durable in its parent before the next one is created.

        With `durable=False` new directories keep the sticky bit, the mark of a directory that is not durable yet.
        """
        if not durable and "/" in key:  # in most cases only the last directory is new
            last = f"{self.path}/{key}".rpartition("/")[0]
            with suppress(FileExistsError, FileNotFoundError, NotADirectoryError):  # handled below
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
        """Make the existing directories above `key` durable, and the entries of the deepest such directory.

        Raises `FileNotFoundError` when the root itself does not exist.
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
        """Apply `sync_directories` to each directory, given by its path relative to the root.

        A parent with several new directories is synced only once.
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
        """Apply `_make_durable` to directories whose parents are durable; return the parents that were synced."""
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
                except (FileNotFoundError, NotADirectoryError):  # pruned with its children
                    del marked[parent]
                    continue
                for file, mode in children:
                    self._clear_mark(file, mode)
        return set(marked)

    def _make_durable(self, parent: Path, path: Path) -> None:
        """Make the directory `path` durable in `parent` if it has the sticky bit, and clear the bit.

        The bit is read and cleared through one descriptor, as the directory may be pruned and created anew meanwhile.
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
        with suppress(PermissionError):  # another user's directory stays marked: each put syncs it again
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
    """Return the error of a put that needs a directory at an object's path, or a file at a directory's path."""
    return Conflict(
        f"{key!r} cannot be put in a posix store, where a key cannot be an object and a directory of others "
        "at once; use another key, or a store in a bucket."
    )


def unusable_directory(path: str, error: OSError, deed: str = "write to") -> Misconfigured:
    """Return the error of a root directory that this process cannot create, read, write or lock."""
    return Misconfigured(
        f"The store's directory {path!r} cannot be used ({error.strerror}); name one that this "
        f"process may {deed}."
    )


def high_water_mark(lock: int, now_ns: int) -> int:
    """Return the high-water mark of modification times under this lock, in nanoseconds, or 0 if there is no mark.

    No deleted file and no record of a write-ahead log, applied or not, has a later time than the mark. A mark more than
    a year after both `now_ns` and the lock file's last write is damaged; the later of these two times replaces it.
    """
    mark = int.from_bytes(os.pread(lock, 8, 0), "big")
    if mark <= now_ns:
        return mark
    written = max(now_ns, os.fstat(lock).st_mtime_ns)
    if mark <= written + YEAR_NS:
        return mark
    logger.warning(
        "A lock file of the store is damaged: it has the time %d ns, which is in the future, and gets the time %d ns.",
        mark,
        written,
    )
    raise_high_water_mark(lock, written)
    return written


def raise_high_water_mark(lock: int, mtime_ns: int) -> None:
    """Store the modification time of a file about to be deleted, or of a put about to be logged, as the mark.

    `mtime_ns` must not be less than the current mark, unless the mark is damaged.
    """
    os.pwrite(lock, mtime_ns.to_bytes(8, "big"), 0)
