"""Usage of a folder with a quota: the bytes of the last count, plus the bytes this service node admitted since.

Each service node counts for itself. Bytes that other nodes admit are seen by the next count.

A count adds up the sizes in listings of keys. It costs a listing of the names below the folder, a read of each name's
record, and a listing for each domain.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextvars import Context as Variables
from dataclasses import dataclass

from hsparse.api import (
    MISSING_KINDS,
    OBJECT_BYTES,
    UNREADABLE_KINDS,
    Busy,
    Clock,
    HsparseError,
    OverQuota,
    Owners,
    Record,
    SetFields,
    domain_prefix,
    gather_each,
    key_pages,
)

RECORD = "/.domain.json"
QUOTA = "quota"
"""The field of a folder's record with its quota: `bytes`, the counted bytes `used`, and when they were `counted`."""
OF_CLONES = (".clone/", ".history/")
"""Key prefixes, below a clone's domain prefix, of its own objects and of their preserved versions."""
READS_AT_ONCE = 500
LISTINGS_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Name:
    """A domain or folder: its record and the record's bytes; `unreadable` says why the record cannot be read."""

    path: str
    nbytes: int
    record: Record
    unreadable: str = ""

    @property
    def root(self) -> str | None:
        root = self.record.get("root")
        return root if isinstance(root, str) else None


async def count_folder(owners: Owners, folder: str, tell: Callable[[Name], None]) -> int:
    """Return the bytes of all domains and folders below `folder`, and of their objects; each object is counted once.

    `tell` is called with each name whose record cannot be read. The name's record is counted, but its objects are not.
    """
    total, roots = 0, dict[str, bool]()
    async for page in names_below(owners, folder):
        for name in page:
            total += name.nbytes
            if name.root is not None:
                roots[name.root] = "head" in name.record
            if name.unreadable:
                tell(name)

    async def count(one: tuple[str, bool]) -> int:
        root, is_clone = one
        return await (own_bytes if is_clone else tree_bytes)(owners, root)

    sizes = await gather_each(count, roots.items(), LISTINGS_AT_ONCE)
    return total + sum(sizes)


async def names_below(owners: Owners, folder: str) -> AsyncIterator[list[Name]]:
    """Yield the domains and folders below `folder` in groups; names deleted meanwhile may be missing."""
    async for page in key_pages(owners, f"{folder[1:]}/"):
        sizes = {f"/{key.removesuffix(RECORD)}": size for key, size, _ in page if key.endswith(RECORD)}
        sizes.pop(folder, None)
        paths = list(sizes)
        for first in range(0, len(paths), READS_AT_ONCE):
            some = paths[first : first + READS_AT_ONCE]
            found: list[Name] = []
            for path, outcome in zip(some, await owners.read(*some), strict=True):
                failure, nbytes = outcome.failure, max(sizes[path], OBJECT_BYTES)
                if failure is not None and failure.kind in UNREADABLE_KINDS:
                    found.append(Name(path, nbytes, {}, failure.message))
                elif failure is None or failure.kind not in MISSING_KINDS:
                    found.append(Name(path, nbytes, outcome.unwrap()))
            yield found


async def own_bytes(owners: Owners, root: str) -> int:
    """Return the bytes of a clone's own objects, without objects shared with its source."""
    total = OBJECT_BYTES  # for the root group
    for part in OF_CLONES:
        async for page in key_pages(owners, domain_prefix(root) + part):
            total += sum(max(size, OBJECT_BYTES) for _, size, _ in page)
    return total


async def tree_bytes(owners: Owners, root: str) -> int:
    """Return the bytes of all objects of a domain, including its root group."""
    total = 0
    async for page in key_pages(owners, domain_prefix(root)):
        total += sum(max(size, OBJECT_BYTES) for _, size, _ in page)
    return total


log = logging.getLogger(__name__)

COUNT_WAIT_SECONDS = 1.0
"""Seconds that a request waits for a new count when the last count leaves no room."""
PAUSE_RATIO = 4.0
"""Pause between counts, as a multiple of the duration of the last count."""
COUNT_SECONDS = 60.0
"""Seconds after which the next write starts a new count, even if the folder is far below its quota."""


class FolderUsage:
    """The usage of one folder. At most one count of a folder runs at a time; `places` limits counts of all folders."""

    def __init__(self, folder: str, owners: Owners, clock: Clock, places: asyncio.Semaphore) -> None:
        self.folder = folder
        self.used: int | None = None
        """The bytes of the last count, or None before the first count."""
        self.counted: float | None = None
        """The time when the last count began, in seconds since the Unix epoch."""
        self._owners = owners
        self._clock = clock
        self._places = places
        self._since = 0
        """Admitted bytes that the last count may have missed."""
        self._during = 0
        """Admitted bytes that the running count may miss."""
        self._under_way = 0
        """Admitted bytes of unfinished requests, which any count may miss."""
        self._kept: int | None = None
        self._count: asyncio.Task[None] | None = None
        self._rests_until = self._fresh_until = float("-inf")
        self._told: set[str] = set()

    def learn(self, stored: Record) -> None:
        """Use a stored count if it is newer; this node stored the count before a restart, or another node stored it."""
        used, counted = stored.get("used"), stored.get("counted")
        if not isinstance(used, int) or not isinstance(counted, int | float):
            return
        self._kept = used
        if counted > (self.counted or 0.0) and counted <= self._clock.now():
            self.used, self.counted = used, float(counted)

    async def admit(self, nbytes: int, limit: int) -> None:
        """Admit a request that may add `nbytes` to a folder with quota `limit`; raises the errors of `check`."""
        await self.check(nbytes, limit)
        self.add(nbytes)

    async def check(self, nbytes: int, limit: int) -> None:
        """Check that `nbytes` more bytes fit into `limit`, without reserving room for them.

        Raises `OverQuota` if a count shows that they do not fit, and `Busy` if no count ends in time to tell.
        """
        if not self._fits(nbytes, limit):
            await self.renew()
            if not self._fits(nbytes, limit):
                raise self._error(nbytes, limit)
        elif self._clock.monotonic() >= self._fresh_until:
            self._begin_count()

    def add(self, nbytes: int) -> None:
        """Add admitted bytes to the usage until a count includes them."""
        self._since += nbytes
        self._during += nbytes
        self._under_way += nbytes

    def take_back(self, nbytes: int) -> None:
        """Undo `add`: the admitted bytes are not stored after all."""
        self._since -= nbytes
        self._during -= nbytes
        self._under_way -= nbytes

    def end(self, nbytes: int) -> None:
        """Note that the request for which these bytes were admitted has ended; later counts include its objects."""
        self._under_way -= nbytes

    async def renew(self) -> None:
        """Wait up to `COUNT_WAIT_SECONDS` for a new count, which begins when the pause after the last count is over."""
        try:
            async with asyncio.timeout(COUNT_WAIT_SECONDS):
                if self._count is not None:
                    await asyncio.wait({self._count})  # not enough: it may have counted objects deleted since
                pause = self._rests_until - self._clock.monotonic()
                if 0 < pause < COUNT_WAIT_SECONDS:
                    await asyncio.sleep(pause)
                count = self._begin_count()
                if count is not None:
                    await asyncio.wait({count})
        except TimeoutError:
            return

    async def close(self) -> None:
        """Cancel the running count."""
        if self._count is not None:
            self._count.cancel()
            await asyncio.gather(self._count, return_exceptions=True)

    def _fits(self, nbytes: int, limit: int) -> bool:
        return (self.used or 0) + self._since + nbytes <= limit

    def _error(self, nbytes: int, limit: int) -> HsparseError:
        used = self.used or 0
        if used + nbytes > limit:
            return OverQuota(
                f"The quota of {self.folder} is {limit} bytes, of which {used} are used, and this may take {nbytes} "
                "more: delete something below it, or ask an admin for more."
            )
        return Busy(
            f"The quota of {self.folder} may be reached, and its usage is being counted; try again.",
            retry_after=max(1.0, self._rests_until - self._clock.monotonic()),
        )

    def _begin_count(self) -> asyncio.Task[None] | None:
        """Return the running count or start one; return None while the pause after the last count lasts."""
        if self._count is None and self._clock.monotonic() >= self._rests_until:
            # A new context, since the request's deadline must not apply to the count.
            run = asyncio.get_running_loop().create_task(self._run(), context=Variables())
            run.add_done_callback(self._ended)
            self._count = run
        return self._count

    def _ended(self, count: asyncio.Task[None]) -> None:
        self._count = None
        if not count.cancelled() and (error := count.exception()) is not None:
            self._rests_until = self._clock.monotonic() + COUNT_WAIT_SECONDS
            log.warning("The folder %s could not be counted: %s", self.folder, error)

    async def _run(self) -> None:
        async with self._places:
            started, began = self._clock.now(), self._clock.monotonic()
            self._during = self._under_way
            used = await count_folder(self._owners, self.folder, self._tell)
            self.used, self.counted, self._since = used, started, self._during
            ended = self._clock.monotonic()
            self._rests_until = ended + PAUSE_RATIO * (ended - began)
            self._fresh_until = max(self._rests_until, ended + COUNT_SECONDS)
        if used != self._kept:
            await self._keep(used, started)

    def _tell(self, name: Name) -> None:
        """Log, once per name, that the objects of a domain do not count because its record cannot be read."""
        if name.path not in self._told:
            self._told.add(name.path)
            log.warning("The objects of %s do not count for %s: %s", name.path, self.folder, name.unreadable)

    async def _keep(self, used: int, counted: float) -> None:
        """Store a count in the folder's record, for service nodes that start later."""
        change = SetFields(self.folder, {"used": used, "counted": counted}, within=QUOTA)
        outcome = (await self._owners.change(change))[0]
        if outcome.failure is None:
            self._kept = used
        elif outcome.failure.kind not in MISSING_KINDS:
            # A failure matters only to nodes that start later.
            log.warning("The count of %s could not be stored: %s", self.folder, outcome.failure.message)
