"""What a folder with a quota takes, as one service node knows it: the last count, and what it let through since.

Each node counts by itself, so what others let through is known after the next count.

What the domains below a folder take in the store, counted from listings of keys.

It costs a listing of the names below the folder, a read of the record of each, and a listing for each domain.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextvars import Context as Variables
from dataclasses import dataclass

from hsparse.clock import Clock
from hsparse.compute import gather_each
from hsparse.errors import MISSING_KINDS, UNREADABLE_KINDS, Busy, HsparseError, OverQuota
from hsparse.model.ids import domain_prefix
from hsparse.sn.data_nodes.owners import Owners, key_pages
from hsparse.sn.request import OBJECT_BYTES
from hsparse.wire.message import Record
from hsparse.wire.record_message import PutQuota

RECORD = "/.domain.json"
READS_AT_ONCE = 500
LISTINGS_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Name:
    """A domain or folder, its record and how many bytes it counts; `unreadable` says why there is no record."""

    path: str
    nbytes: int
    record: Record
    unreadable: str = ""

    @property
    def root(self) -> str | None:
        root = self.record.get("root")
        return root if isinstance(root, str) else None


async def count_folder(owners: Owners, folder: str, tell: Callable[[Name], None]) -> int:
    """Return the bytes of all domains and folders below `folder`, and of their objects; each object counts once.

    `tell` is called with each name whose record cannot be read: it counts, and its objects do not.
    """
    total, roots = 0, set[str]()
    async for page in names_below(owners, folder):
        for name in page:
            total += name.nbytes
            if name.root is not None:
                roots.add(name.root)
            if name.unreadable:
                tell(name)

    sizes = await gather_each(lambda root: tree_bytes(owners, root), roots, LISTINGS_AT_ONCE)
    return total + sum(sizes)


async def names_below(owners: Owners, folder: str) -> AsyncIterator[list[Name]]:
    """Yield the domains and folders below `folder`. What is deleted meanwhile may be left out."""
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


async def tree_bytes(owners: Owners, root: str) -> int:
    """Return the bytes of all objects of a domain, and of its root group."""
    total = 0
    async for page in key_pages(owners, domain_prefix(root)):
        total += sum(max(size, OBJECT_BYTES) for _, size, _ in page)
    return total


log = logging.getLogger(__name__)

WAIT = 1.0
"""Seconds that a request waits for a count where the last one leaves no room."""
REST = 4.0
"""No count begins within this many times the duration of the last one."""
FRESH = 60.0
"""Seconds after which a count is renewed while the folder is written to, also far below its quota."""


class FolderUsage:
    """The use of one folder; at most one count of it runs, in one of `places`."""

    def __init__(self, folder: str, owners: Owners, clock: Clock, places: asyncio.Semaphore) -> None:
        self.folder = folder
        self.used: int | None = None
        """The bytes of the last count; None before the first."""
        self.counted: float | None = None
        """When that count began, in seconds since the Unix epoch."""
        self._owners = owners
        self._clock = clock
        self._places = places
        self._since = 0
        """Bytes let through that the last count may not have seen."""
        self._during = 0
        """The same of the count that runs."""
        self._under_way = 0
        """Bytes of requests that are not done: no count has surely seen them."""
        self._kept: int | None = None
        self._count: asyncio.Task[None] | None = None
        self._rests_until = self._fresh_until = float("-inf")
        self._told: set[str] = set()

    def learn(self, stored: Record) -> None:
        """Take over a stored count, of this node before a start or of another one, if it is newer."""
        used, counted = stored.get("used"), stored.get("counted")
        if not isinstance(used, int) or not isinstance(counted, int | float):
            return
        self._kept = used
        if counted > (self.counted or 0.0) and counted <= self._clock.now():
            self.used, self.counted = used, float(counted)

    async def admit(self, nbytes: int, limit: int) -> None:
        """Let through what may add so many bytes; raises as `check`."""
        await self.check(nbytes, limit)
        self.add(nbytes)

    async def check(self, nbytes: int, limit: int) -> None:
        """Look whether there is room for so many bytes, and keep none of it.

        `OverQuota` if they do not fit into `limit` by a count, `Busy` if they may, and there is no new count in time.
        """
        if not self._fits(nbytes, limit):
            await self.renew()
            if not self._fits(nbytes, limit):
                raise self._error(nbytes, limit)
        elif self._clock.monotonic() >= self._fresh_until:
            self._begin_count()

    def add(self, nbytes: int) -> None:
        """Note bytes that are let through."""
        self._since += nbytes
        self._during += nbytes
        self._under_way += nbytes

    def take_back(self, nbytes: int) -> None:
        """Note that bytes let through are not stored after all."""
        self._since -= nbytes
        self._during -= nbytes
        self._under_way -= nbytes

    def end(self, nbytes: int) -> None:
        """Note that the request is done that bytes were let through for."""
        self._under_way -= nbytes

    async def renew(self) -> None:
        """Wait up to `WAIT` seconds for a count that begins now, unless it is too early for one."""
        try:
            async with asyncio.timeout(WAIT):
                if self._count is not None:
                    await asyncio.wait({self._count})  # it may have passed what was deleted since
                count = self._begin_count()
                if count is not None:
                    await asyncio.wait({count})
        except TimeoutError:
            return

    async def close(self) -> None:
        """Stop counting."""
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
            f"The quota of {self.folder} may be reached, and what is there is being counted; try again.",
            retry_after=max(1.0, self._rests_until - self._clock.monotonic()),
        )

    def _begin_count(self) -> asyncio.Task[None] | None:
        """Return the count that runs, or a new one; None if it is too early for one."""
        if self._count is None and self._clock.monotonic() >= self._rests_until:
            # With variables of its own: the count is no part of the request, whose deadline is not its.
            run = asyncio.get_running_loop().create_task(self._run(), context=Variables())
            run.add_done_callback(self._ended)
            self._count = run
        return self._count

    def _ended(self, count: asyncio.Task[None]) -> None:
        self._count = None
        if not count.cancelled() and (error := count.exception()) is not None:
            self._rests_until = self._clock.monotonic() + WAIT
            log.warning("The folder %s could not be counted: %s", self.folder, error)

    async def _run(self) -> None:
        async with self._places:
            started, began = self._clock.now(), self._clock.monotonic()
            self._during = self._under_way
            used = await count_folder(self._owners, self.folder, self._tell)
            self.used, self.counted, self._since = used, started, self._during
            ended = self._clock.monotonic()
            self._rests_until = ended + REST * (ended - began)
            self._fresh_until = max(self._rests_until, ended + FRESH)
        if used != self._kept:
            await self._keep(used, started)

    def _tell(self, name: Name) -> None:
        """Log, once, that the objects of a name do not count."""
        if name.path not in self._told:
            self._told.add(name.path)
            log.warning("The objects of %s do not count for %s: %s", name.path, self.folder, name.unreadable)

    async def _keep(self, used: int, counted: float) -> None:
        """Store a count in the folder's record, for service nodes that start."""
        outcome = (await self._owners.change(PutQuota(self.folder, {"used": used, "counted": counted})))[0]
        if outcome.failure is None:
            self._kept = used
        elif outcome.failure.kind not in MISSING_KINDS:
            # If this fails, only a node that starts knows less.
            log.warning("The count of %s could not be kept: %s", self.folder, outcome.failure.message)
