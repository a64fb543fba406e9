"""Quotas: limits on the bytes that all domains below a folder take in the store.

A folder's quota is stored in its record. Home folders without a quota have the quota of the setting `home_quota`. The
quotas of all folders above a domain apply to it. A request that makes a domain larger reserves the bytes by a `Growth`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable
from types import TracebackType
from typing import Self

from hsparse.api import (
    MISSING_KINDS,
    OBJECT_BYTES,
    BoundedCache,
    Busy,
    Clock,
    Domain,
    DomainNames,
    ErrorKind,
    OverQuota,
    Owners,
    Principal,
    Record,
    Right,
    Service,
    remember,
)
from hsparse.quotas.folder_usage import QUOTA, FolderUsage, names_below, tree_bytes
from hsparse.quotas.settings import QuotaSettings

HOME = "/home/"
UNLIMITED = 2**63 - 1
"""Stored quota of a home folder without a quota, to which the setting `home_quota` does not apply either."""
KNOWN_SECONDS = 10.0
"""The seconds for which a node uses a quota after reading it; changes by other nodes take effect within this time."""
MAX_KNOWN = 10_000
WITHOUT_QUOTA = (*MISSING_KINDS, ErrorKind.CORRUPT)
"""Kinds of failures to read a folder's record after which the folder counts as having no quota."""
COUNTS_AT_ONCE = 2


class Quotas:
    """The quotas of a bucket, and the usage of the folders with a quota."""

    def __init__(self, owners: Owners, clock: Clock, home_quota: int) -> None:
        self._owners = owners
        self._clock = clock
        self._home_quota = home_quota
        self._known: BoundedCache[str, tuple[float, int | None]] = BoundedCache.of_entries(MAX_KNOWN)
        """Maps each folder to a pair: expiry on the monotonic clock, and quota in bytes or None."""
        self.free: BoundedCache[str, tuple[Record | None, float]] = BoundedCache.of_entries(MAX_KNOWN)
        """By path without a quota above it: the domain's record when checked, and the result's monotonic expiry."""
        self._usages: dict[str, FolderUsage] = {}
        self._places = asyncio.Semaphore(COUNTS_AT_ONCE)

    @classmethod
    def of(cls, service: Service) -> Self:
        """Create the quotas of a service node."""
        return cls(service.owners, service.clock, service.section(QuotaSettings).home_quota)

    def free_until(self, names: DomainNames) -> float:
        """Return the monotonic time until which no folder above a domain has a quota, or 0 if one may have one."""
        if names.others:
            return 0.0
        known = [self._known.get(folder, (0.0, None)) for folder in folders_above(names.path)]
        is_free = all(limit is None for _, limit in known)
        return min((until for until, _ in known), default=math.inf) if is_free else 0.0

    def growth(self, names: DomainNames, principal: Principal) -> Growth:
        """Return the growth of a domain by one request, limited by the folders above all of its names."""
        return Growth(self, names, principal)

    async def check_new(self, path: str, principal: Principal) -> None:
        """Check that the quotas above `path` have room for a new domain or folder; see `FolderLimits`."""
        with self.growth(DomainNames(path), principal) as growth:
            await growth.take(OBJECT_BYTES)

    async def check_second_name(self, path: str, principal: Principal, first: str, root: str) -> None:
        """Check that the quotas above `path`, but not above `first`, have room for the objects of `root`."""
        with Growth(self, DomainNames(path), principal, besides=folders_above(first)) as growth:
            if await growth.limits():
                await growth.take(await tree_bytes(self._owners, root))

    async def of_folder(self, folder: str) -> tuple[int | None, FolderUsage | None]:
        """Return a folder's quota and usage, or (None, None) without a quota; wait up to a second for a new count."""
        self.forget(folder)
        limit = (await self._limits((folder,)))[0]
        if limit is None:
            return None, None
        usage = self._usage(folder)
        await usage.renew()
        return limit, usage

    async def limited(self, *paths: str) -> list[tuple[FolderUsage, int]]:
        """Return (usage, quota) of each folder that has a quota and is above any of `paths`, the nearest first."""
        folders = tuple(dict.fromkeys(folder for path in paths for folder in folders_above(path)))
        limits = await self._limits(folders)
        pairs = zip(folders, limits, strict=True)
        return [(self._usage(folder), limit) for folder, limit in pairs if limit is not None]

    async def limited_folders(self, path: str) -> list[str]:
        """Return the folders above `path` that have a quota, the nearest first."""
        return [usage.folder for usage, _ in await self.limited(path)]

    async def domains_below(self, folder: str) -> AsyncIterator[list[Domain]]:
        """Yield the domains and folders below `folder`, in batches; see `FolderLimits`."""
        async for page in names_below(self._owners, folder):
            yield [Domain(name.path, name.record) for name in page]

    async def current(self, names: DomainNames) -> list[str]:
        """Return the path, and those of the domain's other names that still name the same objects."""
        if not names.others:
            return [names.path]
        outcomes = zip(names.others, await self._owners.read(*names.others), strict=True)
        found = [(other, one.unwrap()) for other, one in outcomes if one.failure is None]
        return [names.path, *(other for other, record in found if record.get("root") == names.root)]

    async def may_read(self, folder: str, principal: Principal) -> bool:
        """Return whether the principal may read a folder."""
        [found] = await self._owners.read(folder)
        return found.failure is None and Domain(folder, found.unwrap()).allows(principal, Right.READ)

    def forget(self, folder: str) -> None:
        """Forget a folder's quota, so that it is read again when needed."""
        self.free.clear()
        self._known.forget(folder)

    async def close(self) -> None:
        """Cancel the running counts."""
        for usage in self._usages.values():
            await usage.close()

    def _usage(self, folder: str) -> FolderUsage:
        usage = self._usages.get(folder)
        if usage is None:
            usage = FolderUsage(folder, self._owners, self._clock, self._places)
            self._usages[folder] = usage
        return usage

    async def _limits(self, folders: tuple[str, ...]) -> list[int | None]:
        """Return the quota of each folder; read unknown quotas, in one message to each owner."""
        now, known = self._clock.monotonic(), self._known
        limits = {
            folder: entry[1]
            for folder in folders
            if (entry := known.get(folder)) is not None and entry[0] > now
        }
        unknown = [folder for folder in folders if folder not in limits]
        if unknown:
            for folder, outcome in zip(unknown, await self._owners.read(*unknown), strict=True):
                has_none = outcome.failure is not None and outcome.failure.kind in WITHOUT_QUOTA
                limits[folder] = self._learn(folder, {} if has_none else outcome.unwrap())
        return [limits[folder] for folder in folders]

    def _learn(self, folder: str, record: Record) -> int | None:
        """Return the quota in a folder's record, and remember it."""
        stored = record.get(QUOTA)
        stored = stored if isinstance(stored, dict) else {}
        limit = stored.get("bytes")
        if limit == UNLIMITED:
            limit = None
        elif not isinstance(limit, int):
            limit = self._home_quota or None if is_home(folder) else None
        self._known.keep(folder, (self._clock.monotonic() + KNOWN_SECONDS, limit))
        if limit is not None:
            self._usage(folder).learn(stored)
        return limit


class Growth:
    """The bytes that one request adds to a domain; a context that ends with the request."""

    def __init__(
        self,
        quotas: Quotas,
        names: DomainNames,
        principal: Principal,
        besides: tuple[str, ...] = (),
    ) -> None:
        self._quotas = quotas
        self._names = names
        self._principal = principal
        self._besides = besides
        """Folders whose quotas do not apply, because they count the objects already."""
        self._limited: list[tuple[FolderUsage, int]] | None = None
        self._taken = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for usage, _ in self._limited or ():
            usage.end(self._taken)
        self._limited = []

    async def check(self, nbytes: int) -> None:
        """Raise `OverQuota` or `Busy` if a folder above the domain has no room for `nbytes`, without taking them.

        `nbytes` is the announced size of the request: if it were taken but never sent, it would block other requests.
        """
        for usage, limit in await self.limits():
            await self._ask(usage.folder, usage.check(nbytes, limit))

    async def take(self, nbytes: int) -> None:
        """Increase the bytes that are reserved for the request to `nbytes` in total; raise the errors of `check`."""
        more = nbytes - self._taken
        if more <= 0:
            return
        done: list[FolderUsage] = []
        try:
            for usage, limit in await self.limits():
                await self._ask(usage.folder, usage.admit(more, limit))
                done.append(usage)
        except BaseException:
            for usage in done:
                usage.take_back(more)
            raise
        self._taken = nbytes

    async def limits(self) -> list[tuple[FolderUsage, int]]:
        """Return a pair (usage, quota) for each folder with a quota to which the request may add bytes."""
        if self._limited is None:
            limited = await self._quotas.limited(*await self._quotas.current(self._names))
            self._limited = [one for one in limited if one[0].folder not in self._besides]
        return self._limited

    async def _ask(self, folder: str, room: Awaitable[None]) -> None:
        """Await `room`; if the principal may not read the folder, remove its name and numbers from the error."""
        try:
            await room
        except (OverQuota, Busy) as error:
            if await self._quotas.may_read(folder, self._principal):
                raise
            if isinstance(error, Busy):
                raise Busy(
                    f"A quota above {self._names.path} may be reached, and its usage is being counted; try again.",
                    retry_after=error.retry_after,
                ) from None
            raise OverQuota(
                f"A quota above {self._names.path}, of a folder that {self._principal.name} may not read, leaves no "
                "room for this: delete something, or ask an admin for more."
            ) from None


@remember(4 * 1024 * 1024, lambda found, path: 4 * sum(map(len, found)))
def folders_above(path: str) -> tuple[str, ...]:
    """Return the folders above a path, the nearest first, without the top level, which has no record."""
    above = path.rpartition("/")[0]
    folders = []
    while above:
        folders.append(above)
        above = above.rpartition("/")[0]
    return tuple(folders)


def is_home(folder: str) -> bool:
    return folder.startswith(HOME) and "/" not in folder.removeprefix(HOME)
