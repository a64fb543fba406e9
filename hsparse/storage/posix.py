"""A store in a directory: one object is one file.

Puts by rename (`hsparse.storage.filesystem.rename_put`) fulfil the contract of `ObjectStore` by these rules. Puts
through a write-ahead log (`hsparse.storage.wal`) follow the same rules and some more.

*Atomic.* A put writes a temporary file (`.tmp-...`) beside its target and renames it. A reader opens the
old file or the new file, never a mixture. A file that a logged put is writing in place is marked, and readers
wait for it. Temporary files of killed processes are swept when a listing finds them, or by `sweep`.

*Conditional.* Stat, compare and rename happen under an exclusive `flock` on one of 256 lock files, chosen
by a hash of the key. A lock file is opened for each operation, so that `flock` excludes threads and
processes alike. Only compare and rename are under the lock, never a write or an fsync of data.

*Versioned.* An etag consists of a file's modification time in nanoseconds, size and inode. Under the lock, a put sets a
modification time strictly greater than that of the file it replaces. A delete stores the time of the removed file in
the lock file, as a high-water mark that the next put must exceed. Two states of a key therefore never share a time. The
size and the inode detect changes by other programs, such as HSDS, that write a file in place.

*Durable.* A put returns after fsync of the file, then of its directory. New directories and all directories above
them are made durable first (`hsparse.storage.filesystem.root_directory`). When a store is opened, write-ahead
logs of dead processes are recovered.

*Free space.* Puts leave `reserve` bytes free on the file system, because deletions must write too: deletion markers for
the logs, notes of unfinished deletions, and smaller records. Other programs may use up the reserve. Once the file
system is nearly full, a reserve file therefore occupies some blocks. The file is truncated when a deletion needs room,
and refilled later.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import os
import stat
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from os.path import commonpath
from pathlib import Path
from typing import TypeVar

from hsparse.attempts import MAX_CHANGE_ATTEMPTS
from hsparse.concurrency.short_calls import ShortCalls
from hsparse.errors import NotFound, StoreFailed, StoreFull
from hsparse.storage.filesystem.object_file import (
    FILE_MODE,
    Condition,
    HalfWritten,
    Item,
    file_etag,
    file_status,
    is_half_written,
    open_file,
    read_at,
    sweep,
    translate_os_error,
    walk,
)
from hsparse.storage.filesystem.rename_put import put_by_rename
from hsparse.storage.filesystem.root_directory import (
    RootDirectory,
    unusable_directory,
)
from hsparse.storage.object_store import (
    Buffer,
    Entry,
    Page,
    Stored,
    check_key,
    check_range,
    no_urls,
    resolve_range,
)
from hsparse.storage.wal.file_deletion import delete_file, delete_files
from hsparse.storage.wal.recovery import recover, repair, repairing
from hsparse.storage.wal.unrecovered import check_recovered, logged_state
from hsparse.storage.wal.wal_client import WalProcess
from hsparse.storage.wal.wal_process import fits_a_packet

PAGE_SIZE = 1000

R = TypeVar("R")


SMALL_OBJECT_BYTES = 64 * 1024
"""Objects of fewer bytes, such as records, may use three quarters of the reserve."""
RESERVE_FRACTION = 20
"""The reserve is at most 1/20 of the file system."""
MEASURED_SECONDS = 1.0
"""Seconds for which a measurement of the free space is used; the bytes of later puts are subtracted."""
MIB = 1024 * 1024
RESERVE_FILE = "reserve"
"""Name of the file that occupies reserved blocks, in the store's internal directory."""
MOST_KEPT = 8 * MIB
NEARLY_FULL = 8
"""The reserve file is created when less than this many times the reserve is free."""
DELETION_BYTES = 256 * 1024
"""Bytes that must be free for a deletion; if fewer are free, the reserve file is truncated by this number of bytes."""
NOTES = "db/.deleting/"
"""Prefix of the keys of deletion notes, the objects that record unfinished deletions of domains."""
RECORD_GROWTH_BYTES = 256
"""Bytes by which a record may grow when a deletion is noted in it."""


class FreeSpace:
    """The free space of the file system of the directory `path`; puts keep `reserve` bytes of it free.

    `internal` is the directory of the reserve file, which occupies blocks for deletions.
    """

    def __init__(self, path: str, reserve: int, internal: str = "") -> None:
        self._path = path
        self._file = f"{internal or path}/{RESERVE_FILE}"
        self._reserve = self._wanted = reserve
        self._free = 0
        self._block = 1
        self._seen_at = math.inf

    def is_outdated(self, now: float) -> bool:
        """Tell whether `look` must be called before `take`; `now` is in seconds."""
        return bool(self._wanted) and not 0 <= now - self._seen_at < MEASURED_SECONDS

    def look(self, now: float) -> None:
        """Measure the free space, and fill the reserve file if the file system is nearly full; blocks the thread."""
        status = os.statvfs(self._path)
        self._reserve = min(self._wanted, status.f_blocks * status.f_frsize // RESERVE_FRACTION)
        self._free, self._block = status.f_bavail * status.f_frsize, status.f_frsize
        if self._free < NEARLY_FULL * self._reserve:
            self._hold()
        self._seen_at = now

    def take(self, nbytes: int) -> bool:
        """Subtract a put of `nbytes` bytes and return True, or return False if it would use up the reserve."""
        taken = -(-nbytes // self._block) * self._block
        if self._wanted and self._free - taken < self._reserve // (1 if nbytes >= SMALL_OBJECT_BYTES else 4):
            return False
        self._free -= taken
        return True

    def full(self, store: str) -> StoreFull:
        """Return the error of a put that has no room."""
        return StoreFull(
            f"Nothing was stored: the store {store!r} has {self._free // MIB} MiB free, and {self._reserve // MIB} MiB "
            "are reserved for deletions (reserve_size); free space on its file system."
        )

    def may_use_reserve(self, key: str, nbytes: int, before: int | None) -> bool:
        """Tell whether a put may use the blocks of the reserve file, because it is part of a deletion.

        Deletion notes may use all blocks. A put that replaces an object of `before` bytes may use half of the blocks,
        if it is at most `RECORD_GROWTH_BYTES` bytes larger. `before` is None for a new object, which may use no blocks.
        """
        if key.startswith(NOTES):
            return True
        half = self._held() >= self._target // 2 > 0
        return before is not None and nbytes <= before + RECORD_GROWTH_BYTES and half

    def make_room(self) -> None:
        """Truncate the reserve file by `DELETION_BYTES` if less than `DELETION_BYTES` is free; blocks the thread."""
        if not self._wanted or not (held := self._held()):
            return
        status = os.statvfs(self._path)
        if status.f_bavail * status.f_frsize < DELETION_BYTES:
            os.truncate(self._file, max(held - DELETION_BYTES, 0))

    @property
    def _target(self) -> int:
        return min(self._reserve // 4, MOST_KEPT)

    def _held(self) -> int:
        try:
            return os.stat(self._file).st_size  # noqa: PTH116 (as in all of the store)
        except FileNotFoundError:
            return 0

    def _hold(self) -> None:
        """Enlarge the reserve file to its target size, unless that leaves less than twice the reserve free."""
        missing = self._target - self._held()
        if missing <= 0 or self._free - missing < 2 * self._reserve:
            return
        with suppress(OSError):  # another program has taken the room
            file = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
            try:
                os.posix_fallocate(file, 0, self._target)
                self._free -= missing
            finally:
                os.close(file)


class PosixStore:
    """An `ObjectStore` under the directory `root`, for any number of processes that share it.

    Each operation is offloaded once: to one of the store's `workers` threads or, for a put of a small object
    with `wal`, to the process that puts through a write-ahead log. With `fsync=False` a put survives a crash of the
    process but not of the machine. A put raises `Conflict` if its key is the directory of other objects, or is below
    an object. A cancelled call may still be applied. Puts leave `reserve` bytes of the file system free. With
    `read_only` the store creates no file, lock or directory; wrap it in a `ReadOnlyStore`, which refuses puts.
    """

    def __init__(
        self,
        root: Path,
        *,
        name: str | None = None,
        fsync: bool = True,
        workers: int = 16,
        page_size: int = PAGE_SIZE,
        wal: bool = False,
        reserve: int = 0,
        read_only: bool = False,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.name = name or root.name
        self._root = RootDirectory(str(root), fsync=fsync, now_ns=now_ns)
        self._page_size = page_size
        self._read_only = read_only
        try:
            if read_only:
                os.scandir(root).close()
                check_recovered(self._root)
            else:
                self._root.make()
                recover(self._root)
        except OSError as error:
            raise unusable_directory(str(root), error, "read" if read_only else "write to") from error
        self._workers = workers
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="posix-store")
        self._gets: ShortCalls | None = None
        self._process = WalProcess(self._root, self.name) if wal else None
        self._space = FreeSpace(str(root), 0 if read_only else reserve, self._root.internal)

    async def get(self, key: str) -> Stored:
        check_key(key)
        loop = asyncio.get_running_loop()
        if self._gets is None or self._gets.loop is not loop:
            self._gets = ShortCalls(loop, self._pool, self._workers)
        try:
            return await self._gets.call(lambda: self._read(key, lambda size: (0, size)))
        except OSError as error:
            raise translate_os_error(error, key, self.name) from error

    async def get_range(self, key: str, start: int, length: int | None = None) -> Stored:
        check_key(key)
        check_range(key, start, length)
        return await self._offload(
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
        await self._free(key, lambda: delete_file(self._root, key))

    async def delete_if_match(self, key: str, etag: str) -> None:
        check_key(key)
        await self._free(key, lambda: delete_file(self._root, key, Condition.MATCH, etag))

    async def delete_all(self, entries: Sequence[Entry]) -> list[bool]:
        for entry in entries:
            check_key(entry.key)
        if not entries:
            return []
        among = commonpath([entry.key for entry in entries])
        return await self._free(among, lambda: delete_files(self._root, entries))

    async def list(
        self, prefix: str, *, delimiter: bool = False, start_after: str = ""
    ) -> AsyncIterator[Page]:
        items = self._listed(
            walk(self._root.path, prefix, delimiter, start_after, sweeps=not self._read_only)
        )
        while page := await self._offload(prefix, lambda: tuple(itertools.islice(items, self._page_size))):
            yield Page(
                tuple(one for one in page if isinstance(one, Entry)),
                tuple(one for one in page if isinstance(one, str)),
            )

    async def sweep(self) -> int:
        """Remove the temporary files of killed processes; return their number."""
        return await self._offload("", lambda: sweep(self._root.path))

    async def presigned(self, key: str, seconds: int) -> str:
        check_key(key)
        raise no_urls(self.name)

    async def close(self) -> None:
        if self._process is not None:
            await self._process.close()
        await asyncio.to_thread(self._pool.shutdown)

    async def _conditional(self, key: str, data: Buffer, condition: Condition, etag: str = "") -> str:
        check_key(key)
        now = self._root.now_ns() / 1e9
        if self._space.is_outdated(now):
            await self._offload(key, lambda: self._space.look(now))
        nbytes = memoryview(data).nbytes
        if not self._space.take(nbytes):
            await self._offload(key, lambda: self._free_room(key, nbytes, condition))
        if self._process is not None and fits_a_packet(etag, data):
            try:
                return await self._process.put(key, condition, etag, data)
            except StoreFailed:
                self._check_there()
                raise

        def put() -> str:
            self._check_there()
            return put_by_rename(self._root, key, data, condition, etag)

        return await self._offload(key, lambda: repairing(self._root, key, put))

    async def _free(self, key: str, delete: Callable[[], R]) -> R:
        """Call `delete` in a thread; on a full file system, first free blocks of the reserve file for the deletion."""

        def free() -> R:
            self._space.make_room()
            return delete()

        return await self._offload(key, free)

    async def _offload(self, key: str, work: Callable[[], R]) -> R:
        """Run `work` on `key` in a thread; translate its `OSError` into an error of the store."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        except OSError as error:
            raise translate_os_error(error, key, self.name) from error

    # --- in a thread ------------------------------------------------------------------------------

    def _read(self, key: str, resolve: Callable[[int], tuple[int, int]]) -> Stored:
        """Read the range (first byte, count) that `resolve` returns for the file's size."""
        for _ in range(MAX_CHANGE_ATTEMPTS):
            try:
                file = open_file(f"{self._root.path}/{key}")
            except (FileNotFoundError, NotADirectoryError) as error:
                self._check_there()
                raise self._absent(key) from error
            try:
                if (stored := self._read_once(file, key, resolve)) is not None:
                    return stored
            except HalfWritten:
                if (logged := self._repair(key)) is not None:
                    entry, data = logged
                    first, count = resolve(entry.size)
                    return Stored(data[first : first + count], entry.etag, entry.size)
            finally:
                os.close(file)
        raise StoreFailed(
            f"{key!r} changes faster than it can be read; stop the other program that writes its file in place."
        )

    def _free_room(self, key: str, nbytes: int, condition: Condition) -> None:
        """Make room on a full file system for a put that is part of a deletion; raise `StoreFull` for other puts."""
        found = file_status(f"{self._root.path}/{key}") if condition is Condition.MATCH else None
        if not self._space.may_use_reserve(key, nbytes, None if found is None else found.st_size):
            raise self._space.full(self.name)
        self._space.make_room()

    def _check_there(self) -> None:
        """Raise `StoreFailed` if the root is gone, for example not mounted, so that its objects do not seem missing."""
        if not os.path.isdir(self._root.path if self._read_only else self._root.internal):  # noqa: PTH112 (costs less)
            raise StoreFailed(
                f"The directory {self._root.path!r} of the store {self.name!r} is gone or not mounted; bring it back."
            )

    def _read_once(self, file: int, key: str, resolve: Callable[[int], tuple[int, int]]) -> Stored | None:
        """Read from an open file, or return None if the file was written in place during the read."""
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise self._absent(key)
        if is_half_written(status):
            raise HalfWritten
        first, count = resolve(status.st_size)
        data = read_at(file, first, count)
        after = os.fstat(file)
        if len(data) < count or file_etag(after) != file_etag(status) or is_half_written(after):
            return None
        return Stored(data, file_etag(status), status.st_size)

    def _repair(self, key: str) -> tuple[Entry, bytes] | None:
        """Wait for the writer of a half-written file, or repair the file; if read-only, return its logged state."""
        if self._read_only:
            return logged_state(self._root, key)
        repair(self._root, key)
        return None

    def _listed(self, items: Iterator[Item]) -> Iterator[Entry | str]:
        """Yield the listed objects and prefixes; wait for half-written files, or repair them."""
        self._check_there()
        for key, found in items:
            status = found
            if status is None:
                yield key
                continue
            if is_half_written(status):
                if (logged := self._repair(key)) is not None:
                    yield logged[0]
                    continue
                status = file_status(f"{self._root.path}/{key}")
            if status is not None:
                yield Entry(key, status.st_size, file_etag(status), status.st_mtime_ns / 1e9)

    def _absent(self, key: str) -> NotFound:
        return NotFound(f"There is no object {key!r} in {self.name!r}.")
