"""A store in a directory: one object is one file.

This is how a put by rename (`hsparse.storage.filesystem.rename_put`) keeps the contract; puts through a
write-ahead log (`hsparse.storage.wal`) keep it together with these rules:

*Atomic.* A put writes a temporary file (`.tmp-...`) beside its target and renames it. A reader opens the
old file or the new one, never a torn one. A file that a logged put is writing in place is marked, and readers
wait for it. Temporary files of killed processes are swept when a listing meets them, or by `sweep`.

*Conditional.* Stat, compare and rename happen under an exclusive `flock` on one of 256 lock files, chosen
by a hash of the key. A lock file is opened for each operation, so that `flock` excludes threads and
processes alike. Only compare and rename are under the lock, never a write or an fsync of data.

*Versioned.* An etag is made of one stat: modification time in nanoseconds, size, inode. Under the lock a
put sets a modification time strictly greater than that of the file it replaces. A delete stores the time of
the removed file in the lock file, as a high-water mark that the next put must exceed: so this store never gives
two states of a key one time. The size and the inode are there for other programs, HSDS for one, that write a
file in place: the kernel then sets another time, and the etag changes with it.

*Durable.* A put answers after fsync of the file, then of its directory. New directories are durable with all
directories above them first (`hsparse.storage.filesystem.root_directory`). When a store is opened, write-ahead
logs of dead processes are recovered.

*Free space.* Puts leave some on the file system, so that what is stored can still be changed and deleted.
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
from os.path import commonpath
from pathlib import Path
from typing import TypeVar

from hsparse.compute import ShortCalls
from hsparse.errors import NotFound, StoreFailed
from hsparse.storage.filesystem.object_file import (
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
from hsparse.storage.filesystem.rename_put import ATTEMPTS, put_by_rename
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
from hsparse.storage.wal.wal_process import WalProcess, fits_a_packet

PAGE_SIZE = 1000

R = TypeVar("R")


SMALL = 64 * 1024
"""Objects of fewer bytes, such as records, may use all of the reserve but a quarter: deleting puts notes."""
PART = 20
"""A reserve is at most this part of the file system."""
SECONDS = 1.0
"""How long what was free stands, less what was put since."""
MIB = 1024 * 1024


class FreeSpace:
    """The free space of the file system that has the directory `path`, of which `reserve` bytes are kept free."""

    def __init__(self, path: str, reserve: int) -> None:
        self._path = path
        self._reserve = self._wanted = reserve
        self._free = 0
        self._seen_at = math.inf

    def is_outdated(self, now: float) -> bool:
        """Say whether `look` should be called first; `now` is in seconds."""
        return bool(self._wanted) and not 0 <= now - self._seen_at < SECONDS

    def look(self, now: float) -> None:
        """Ask the file system, which blocks."""
        status = os.statvfs(self._path)
        self._reserve = min(self._wanted, status.f_blocks * status.f_frsize // PART)
        self._free = status.f_bavail * status.f_frsize
        self._seen_at = now

    def take(self, nbytes: int, store: str) -> None:
        """Count a put of so many bytes; `StoreFailed` if it would leave less than the reserve."""
        if not self._wanted:
            return
        keep = self._reserve if nbytes >= SMALL else self._reserve // 4
        if self._free - nbytes < keep:
            raise StoreFailed(
                f"The store {store!r} has {self._free // MIB} MiB free and keeps {self._reserve // MIB} MiB "
                "(reserve_size), so that data can be deleted; free space on its file system. Nothing was stored."
            )
        self._free -= nbytes


class PosixStore:
    """An `ObjectStore` under the directory `root`, for any number of processes that share it.

    Each operation is offloaded once: to one of the store's `workers` threads or, for a put of a small object
    with `wal`, to the process that puts through a write-ahead log. With `fsync=False` a put survives the end of
    the process but not of the machine. A key cannot be an object and a directory of others at once: such a put
    is a `Conflict`. A cancelled call may be applied all the same. Puts leave `reserve` bytes of the file system free.
    With `read_only` it makes no file, lock or directory: it is for a `ReadOnlyStore`, and puts are not expected.
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
        self._space = FreeSpace(str(root), reserve)

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
        await self._offload(key, lambda: delete_file(self._root, key))

    async def delete_if_match(self, key: str, etag: str) -> None:
        check_key(key)
        await self._offload(key, lambda: delete_file(self._root, key, Condition.MATCH, etag))

    async def delete_all(self, entries: Sequence[Entry]) -> list[bool]:
        for entry in entries:
            check_key(entry.key)
        if not entries:
            return []
        among = commonpath([entry.key for entry in entries])
        return await self._offload(among, lambda: delete_files(self._root, entries))

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
        """Remove the temporary files of killed processes; return how many."""
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
        self._space.take(memoryview(data).nbytes, self.name)
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

    async def _offload(self, key: str, work: Callable[[], R]) -> R:
        """Run `work` on `key` in a thread; raise its `OSError` as an error of the store."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        except OSError as error:
            raise translate_os_error(error, key, self.name) from error

    # --- in a thread ------------------------------------------------------------------------------

    def _read(self, key: str, resolve: Callable[[int], tuple[int, int]]) -> Stored:
        """Read the range (first, count) that `resolve` returns for the file's size."""
        for _ in range(ATTEMPTS):
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
            f"{key!r} changes faster than it can be read; stop the other program that writes it in place."
        )

    def _check_there(self) -> None:
        """Raise `StoreFailed` if the directory itself is gone, as one that is not mounted: nothing is absent there."""
        if not os.path.isdir(self._root.path if self._read_only else self._root.internal):  # noqa: PTH112 (costs less)
            raise StoreFailed(
                f"The directory {self._root.path!r} of the store {self.name!r} is gone or not mounted; bring it back."
            )

    def _read_once(self, file: int, key: str, resolve: Callable[[int], tuple[int, int]]) -> Stored | None:
        """Read from an open file; None when it was written in place meanwhile."""
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
        """Wait until a half-written file is written, or repair it; if nothing may be written, return its state."""
        if self._read_only:
            return logged_state(self._root, key)
        repair(self._root, key)
        return None

    def _listed(self, items: Iterator[Item]) -> Iterator[Entry | str]:
        """Yield the listed objects and prefixes; wait for, or repair, files that are half written."""
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
