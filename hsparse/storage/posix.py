"""A store in a directory: one object is one file, replaced by an atomic rename.

How the contract is kept:

*Atomic.* A put writes a temporary file (`.tmp-...`) beside its target and renames it. A reader opens the
old file or the new one, never a torn one. A temporary that a killed process left is swept when a listing
meets it, or by `sweep`.

*Conditional.* Stat, compare and rename happen under an exclusive `flock` on one of 256 lock files, chosen
by a hash of the key. A lock file is opened for each operation, so that `flock` excludes threads and
processes alike; only compare and rename are under it, never a write or an fsync of data.

*Versioned.* An etag is made of one stat: modification time in nanoseconds, size, inode. Under the lock a
put sets a modification time strictly greater than that of the file it replaces, and a delete leaves the
time of what it removed in the lock file, for the next put to pass: so this store never gives two states
of a key one time. The size and the inode are there for other programs, HSDS for one, that write a file in
place: the kernel then sets another time, and the etag changes with it.

*Durable.* A put answers after fsync of the file, then of its directory. A directory is made with the
sticky bit, which is taken off once its own entry has been fsynced in its parent, and parents come first:
so a directory without the bit is known to be durable with all above it, whoever made it and however that
process ended, and any put that finds the bit does that fsync itself.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import itertools
import os
import stat
import time
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import TypeAlias, TypeVar

from hsparse.errors import (
    BadRequest,
    Conflict,
    HsparseError,
    Misconfigured,
    NotFound,
    PreconditionFailed,
    StoreFailed,
)
from hsparse.storage.byte_range import check_range, resolve_range
from hsparse.storage.key import check_key
from hsparse.storage.object_store import Buffer, Entry, Page, Stored
from hsparse.storage.posix_file import (
    file_etag,
    object_status,
    open_directory,
    open_file,
    read_at,
    unlink,
    write_all,
)
from hsparse.storage.posix_listing import TEMPORARY, sweep, walk
from hsparse.storage.put_processes import MOST, Condition, PutProcesses

PAGE_SIZE = 1000
LOCK_COUNT = 256
ATTEMPTS = 100
MTIME_STEPS_NS = (1, 1_000, 1_000_000, 1_000_000_000, 2_000_000_000)
"""What may lift a modification time above another: file systems keep it in steps of 1 ns up to 2 s."""

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

R = TypeVar("R")
Check: TypeAlias = Callable[[str, os.stat_result | None], None]
"""A put's condition: raises `PreconditionFailed` when the key's current file, or None, is not as expected."""


class PosixStore:
    """An `ObjectStore` under the directory `root`, for any number of processes that share it.

    Each operation is one hop to one of `workers` threads of the store's own or, a put of a small object, to
    one of `processes` (see `put_processes`; 0: threads alone). With `fsync=False` a put
    survives the end of the process but not of the machine. A key cannot be an object and a directory of
    others at once: such a put is a `Conflict`. A call that is cancelled may be applied all the same.
    """

    def __init__(
        self,
        root: Path,
        *,
        name: str | None = None,
        fsync: bool = True,
        workers: int = 16,
        page_size: int = PAGE_SIZE,
        processes: int = 0,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.name = name or root.name
        self._root = str(root)
        self._locks = f"{root}/.hsparse/locks"
        self._fsync = fsync
        self._page_size = page_size
        self._now_ns = now_ns
        try:
            missing = [path for path in (root, *root.parents) if not path.exists()]
            Path(self._locks).mkdir(parents=True, exist_ok=True)
            for path in missing:
                self._sync_directory(str(path.parent))
        except OSError as error:
            raise Misconfigured(
                f"The store's directory {str(root)!r} cannot be used ({error.strerror}); name one that this "
                "process may write to."
            ) from error
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="posix-store")
        self._processes = PutProcesses(self._root, processes, fsync=fsync) if processes else None

    async def get(self, key: str) -> Stored:
        check_key(key)
        return await self._hop(key, lambda: self._read(key, lambda size: (0, size)))

    async def get_range(self, key: str, start: int, length: int | None = None) -> Stored:
        check_key(key)
        check_range(key, start, length)
        return await self._hop(
            key, lambda: self._read(key, lambda size: resolve_range(key, start, length, size))
        )

    async def put(self, key: str, data: Buffer) -> str:
        return await self._conditional(key, data, Condition.NONE)

    async def put_if_absent(self, key: str, data: Buffer) -> str:
        return await self._conditional(key, data, Condition.ABSENT)

    async def put_if_match(self, key: str, data: Buffer, etag: str) -> str:
        return await self._conditional(key, data, Condition.MATCH, etag)

    async def delete(self, key: str) -> None:
        check_key(key)
        await self._hop(key, lambda: self._delete(key))

    async def list(
        self, prefix: str, *, delimiter: bool = False, start_after: str = ""
    ) -> AsyncIterator[Page]:
        items = walk(self._root, prefix, delimiter, start_after)
        while page := await self._hop(prefix, lambda: tuple(itertools.islice(items, self._page_size))):
            yield Page(
                tuple(
                    Entry(key, status.st_size, file_etag(status), status.st_mtime_ns / 1e9)
                    for key, status in page
                    if status is not None
                ),
                tuple(key for key, status in page if status is None),
            )

    async def sweep(self) -> int:
        """Remove every temporary file that a killed process left; return how many."""
        return await self._hop("", lambda: sweep(self._root))

    async def close(self) -> None:
        if self._processes is not None:
            await self._processes.close()
        await asyncio.to_thread(self._pool.shutdown)

    def put_now(self, key: str, data: Buffer, condition: Condition, etag: str = "") -> str:
        """Put an object and return its etag, in the calling thread."""
        try:
            return self._put(key, data, _check(condition, etag))
        except OSError as error:
            raise self._failure(error, key) from error

    async def _conditional(self, key: str, data: Buffer, condition: Condition, etag: str = "") -> str:
        check_key(key)
        if self._processes is not None and memoryview(data).nbytes <= MOST:
            return await self._processes.put(key, condition, etag, data)
        return await self._hop(key, lambda: self.put_now(key, data, condition, etag))

    async def _hop(self, key: str, work: Callable[[], R]) -> R:
        """Do `work` on `key` in a thread; the only hop of an operation."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        except OSError as error:
            raise self._failure(error, key) from error

    def _failure(self, error: OSError, key: str) -> HsparseError:
        code = error.errno or 0
        if code == errno.ENAMETOOLONG:
            return BadRequest(f"The path of {key!r} is too long for the file system; use a shorter key.")
        remedy = REMEDIES.get(code, "see the system's log")
        return StoreFailed(f"The store {self.name!r} failed on {key!r} ({error.strerror}); {remedy}.")

    # --- in a thread ------------------------------------------------------------------------------

    def _read(self, key: str, resolve: Callable[[int], tuple[int, int]]) -> Stored:
        """Read the bytes (first, count) that `resolve` finds for the file's size."""
        try:
            file = open_file(f"{self._root}/{key}")
        except (FileNotFoundError, NotADirectoryError) as error:
            raise self._absent(key) from error
        try:
            for _ in range(ATTEMPTS):
                status = os.fstat(file)
                if not stat.S_ISREG(status.st_mode):
                    raise self._absent(key)
                first, count = resolve(status.st_size)
                data = read_at(file, first, count)
                # Only another program's write in place can change an open file: read again after it.
                if len(data) == count and file_etag(os.fstat(file)) == file_etag(status):
                    return Stored(data, file_etag(status))
        finally:
            os.close(file)
        raise StoreFailed(
            f"{key!r} changes faster than it can be read; stop the other program that writes it in place."
        )

    def _absent(self, key: str) -> NotFound:
        return NotFound(f"There is no object {key!r} in {self.name!r}.")

    def _put(self, key: str, data: Buffer, check: Check) -> str:
        parent, _, name = key.rpartition("/")
        for _ in range(ATTEMPTS):
            try:
                directory = open_directory(f"{self._root}/{parent}")
            except FileNotFoundError:
                check(key, None)
                with suppress(FileNotFoundError):  # pruned by another in the meantime
                    self._make_directories(key)
                continue
            except NotADirectoryError as error:
                check(key, None)
                raise _in_the_way(key) from error
            try:
                check(key, object_status(directory, name))  # before the bytes are written for nothing
                if os.fstat(directory).st_mode & stat.S_ISVTX:
                    self._make_directories(key)
                return self._replace(directory, key, data, check)
            except FileNotFoundError:
                continue  # pruned or swept by another in the meantime
            finally:
                os.close(directory)
        raise StoreFailed(
            f"{key!r} cannot be put because its directory keeps vanishing; see what removes it."
        )

    def _replace(self, directory: int, key: str, data: Buffer, check: Check) -> str:
        """Write a temporary file in `directory` and rename it when `check` passes; return the etag."""
        name = key.rpartition("/")[2]
        temporary = TEMPORARY + token_hex(8)
        file = os.open(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=directory
        )
        try:
            write_all(file, data)
            now = self._now_ns()
            os.utime(file, ns=(now, now))
            self._sync(file)
            with self._locked(key) as lock:
                current = object_status(directory, name)
                check(key, current)
                etag = self._date(file, max(current.st_mtime_ns if current else 0, _passed(lock)))
                try:
                    os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
                except IsADirectoryError as error:
                    raise _in_the_way(key) from error
        except BaseException:
            unlink(temporary, directory)
            raise
        finally:
            os.close(file)
        self._sync(directory)
        return etag

    def _date(self, file: int, floor: int) -> str:
        """Make the file's modification time greater than `floor` if it is not; return its etag."""
        status = os.fstat(file)
        for step in MTIME_STEPS_NS:
            if status.st_mtime_ns > floor:
                return file_etag(status)
            os.utime(file, ns=(floor + step, floor + step))
            self._sync(file)  # rare: the clock is behind, or the file system keeps coarse times
            status = os.fstat(file)
        if status.st_mtime_ns > floor:
            return file_etag(status)
        raise StoreFailed(
            f"The file system of the store {self.name!r} does not keep modification times; use another one."
        )

    def _delete(self, key: str) -> None:
        parent, _, name = key.rpartition("/")
        try:
            directory = open_directory(f"{self._root}/{parent}")
        except (FileNotFoundError, NotADirectoryError):
            return
        try:
            with self._locked(key) as lock:
                current = object_status(directory, name)
                if current is None:
                    return
                _pass(lock, current.st_mtime_ns)
                unlink(name, directory)
            self._sync(directory)
        finally:
            os.close(directory)
        self._prune(parent)

    def _prune(self, parent: str) -> None:
        """Remove directories left empty; one that a put has entered holds its temporary and stays."""
        while parent:
            try:
                Path(self._root, parent).rmdir()
            except OSError:  # not empty, or gone; an empty one that stays does no harm
                return
            parent = parent.rpartition("/")[0]

    def _make_directories(self, key: str) -> None:
        """Make the directories above `key`, each durable in its parent before the next; see the module."""
        parent = Path(self._root)
        for component in key.split("/")[:-1]:
            path = parent / component
            with suppress(FileExistsError):
                path.mkdir(0o1777)
            mode = path.stat().st_mode
            if not stat.S_ISDIR(mode):
                raise _in_the_way(key)
            if mode & stat.S_ISVTX:
                self._sync_directory(str(parent))
                with suppress(PermissionError):  # another user's: it stays marked, and puts sync it again
                    path.chmod(stat.S_IMODE(mode) & ~stat.S_ISVTX)
            parent = path

    def _sync(self, file: int) -> None:
        if self._fsync:
            os.fsync(file)

    def _sync_directory(self, path: str) -> None:
        directory = open_directory(path)
        try:
            self._sync(directory)
        finally:
            os.close(directory)

    @contextmanager
    def _locked(self, key: str) -> Iterator[int]:
        """Hold the lock that covers `key`, as an open file descriptor."""
        number = zlib.crc32(key.encode()) % LOCK_COUNT
        lock = os.open(f"{self._locks}/{number:02x}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield lock
        finally:
            os.close(lock)


def _check(condition: Condition, etag: str) -> Check:
    def check(key: str, current: os.stat_result | None) -> None:
        if condition is Condition.ABSENT and current is not None:
            raise PreconditionFailed(f"{key!r} exists already; read it and replace that state.")
        if condition is Condition.MATCH and (current is None or file_etag(current) != etag):
            raise PreconditionFailed(f"{key!r} is no longer at etag {etag}; read it again.")

    return check


def _in_the_way(key: str) -> Conflict:
    return Conflict(
        f"{key!r} cannot be put in a posix store, where a key cannot be an object and a directory of others "
        "at once; use another key, or another store."
    )


def _passed(lock: int) -> int:
    """Return the latest modification time in nanoseconds that a file deleted under this lock had, or 0."""
    return int.from_bytes(os.pread(lock, 8, 0), "big")


def _pass(lock: int, mtime_ns: int) -> None:
    """Note the modification time of a file about to be deleted."""
    os.pwrite(lock, max(mtime_ns, _passed(lock)).to_bytes(8, "big"), 0)
