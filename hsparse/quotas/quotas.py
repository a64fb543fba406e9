"""Quotas: how many bytes all domains below a folder may take in the store.

A folder's quota is in its record. Home folders without one have that of the setting `home_quota`. All quotas above a
domain hold for it. Requests that make a domain larger take the bytes from a `Growth`.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable
from functools import lru_cache
from types import TracebackType
from typing import Self

from hsparse.clock import Clock
from hsparse.errors import MISSING_KINDS, Busy, ErrorKind, OverQuota
from hsparse.model.acl import Principal, Right
from hsparse.quotas.folder_usage import FolderUsage, names_below, tree_bytes
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.records.second_names import DomainNames
from hsparse.sn.request import OBJECT_BYTES, Domain
from hsparse.sn.service import Service
from hsparse.wire.message import Record

HOME = "/home/"
KNOWN_SECONDS = 10.0
"""Seconds for which a node uses what it has read of a folder: so late does it learn of a change by another node."""
MAX_KNOWN = 10_000
WITHOUT_QUOTA = (*MISSING_KINDS, ErrorKind.CORRUPT)
"""Why a folder's record cannot be read, without keeping anybody from writing below the folder."""
COUNTS_AT_ONCE = 2


class Quotas:
    """The quotas of a bucket, and what the folders take that have one."""

    def __init__(self, owners: Owners, clock: Clock, home_quota: int) -> None:
        self._owners = owners
        self._clock = clock
        self._home_quota = home_quota
        self._known: dict[str, tuple[float, int | None]] = {}
        """Of each folder until when its quota is known, and the bytes; the oldest first."""
        self.free: OrderedDict[str, tuple[Record | None, float]] = OrderedDict()
        """Paths without a quota above them: the record of the domain that was looked at, and until when that holds."""
        self._usages: dict[str, FolderUsage] = {}
        self._places = asyncio.Semaphore(COUNTS_AT_ONCE)

    @classmethod
    def of(cls, service: Service) -> Self:
        """Make the quotas of a service node."""
        return cls(service.owners, service.clock, service.settings.home_quota)

    def free_until(self, names: DomainNames) -> float:
        """Return until when no folder above a domain has a quota, as far as is known without asking; else 0."""
        if names.others:
            return 0.0
        known = [self._known.get(folder, (0.0, None)) for folder in folders_above(names.path)]
        is_free = all(limit is None for _, limit in known)
        return min((until for until, _ in known), default=math.inf) if is_free else 0.0

    def growth(self, names: DomainNames, principal: Principal) -> Growth:
        """Return what a request may add to a domain, in all folders where it has a name."""
        return Growth(self, names, principal)

    async def check_new(self, path: str, principal: Principal) -> None:
        """See `FolderLimits`."""
        with self.growth(DomainNames(path), principal) as growth:
            await growth.take(OBJECT_BYTES)

    async def check_second_name(self, path: str, principal: Principal, first: str, root: str) -> None:
        """See `FolderLimits`."""
        with Growth(self, DomainNames(path), principal, besides=folders_above(first)) as growth:
            if await growth.limits():
                await growth.take(await tree_bytes(self._owners, root))

    async def of_folder(self, folder: str) -> tuple[int | None, FolderUsage | None]:
        """Return a folder's own quota, None without one, and its use as counted now, if that does not take long."""
        self.forget(folder)
        limit = (await self._limits((folder,)))[0]
        if limit is None:
            return None, None
        usage = self._usage(folder)
        await usage.renew()
        return limit, usage

    async def limited(self, *paths: str) -> list[tuple[FolderUsage, int]]:
        """Return the use and the quota of each folder above one of `paths` that has one, the nearest first."""
        folders = tuple(dict.fromkeys(folder for path in paths for folder in folders_above(path)))
        limits = await self._limits(folders)
        pairs = zip(folders, limits, strict=True)
        return [(self._usage(folder), limit) for folder, limit in pairs if limit is not None]

    async def limited_folders(self, path: str) -> list[str]:
        """See `FolderLimits`."""
        return [usage.folder for usage, _ in await self.limited(path)]

    async def domains_below(self, folder: str) -> AsyncIterator[list[Domain]]:
        """See `FolderLimits`."""
        async for page in names_below(self._owners, folder):
            yield [Domain(name.path, name.record) for name in page]

    async def current(self, names: DomainNames) -> list[str]:
        """Return the path and those of the others whose domains have the objects now."""
        if not names.others:
            return [names.path]
        outcomes = zip(names.others, await self._owners.read(*names.others), strict=True)
        found = [(other, one.unwrap()) for other, one in outcomes if one.failure is None]
        return [names.path, *(other for other, record in found if record.get("root") == names.root)]

    async def may_read(self, folder: str, principal: Principal) -> bool:
        """Say whether the principal may read a folder."""
        [found] = await self._owners.read(folder)
        return found.failure is None and Domain(folder, found.unwrap()).allows(principal, Right.READ)

    def forget(self, folder: str) -> None:
        """Read a folder's quota again when it is needed."""
        self.free.clear()
        self._known.pop(folder, None)

    async def close(self) -> None:
        """Stop counting."""
        for usage in self._usages.values():
            await usage.close()

    def _usage(self, folder: str) -> FolderUsage:
        usage = self._usages.get(folder)
        if usage is None:
            usage = FolderUsage(folder, self._owners, self._clock, self._places)
            self._usages[folder] = usage
        return usage

    async def _limits(self, folders: tuple[str, ...]) -> list[int | None]:
        """Return the quota of each folder; those that are not known are read, in one message to each owner."""
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
        """Return the quota of a folder by its record, and remember it."""
        stored = record.get("quota")
        stored = stored if isinstance(stored, dict) else {}
        limit = stored.get("bytes")
        if not isinstance(limit, int):
            limit = self._home_quota or None if _is_home(folder) else None
        self._known.pop(folder, None)
        self._known[folder] = (self._clock.monotonic() + KNOWN_SECONDS, limit)
        while len(self._known) > MAX_KNOWN:
            del self._known[next(iter(self._known))]
        if limit is not None:
            self._usage(folder).learn(stored)
        return limit


class Growth:
    """What one request may add to a domain, a context that ends with the request."""

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
        """Folders that count the objects already."""
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
        """Raise `OverQuota` or `Busy` if a folder above the domain has no room for what the request announces.

        It takes nothing: else what is announced and never sent would keep others out.
        """
        for usage, limit in await self.limits():
            await self._ask(usage.folder, usage.check(nbytes, limit))

    async def take(self, nbytes: int) -> None:
        """Let the request add `nbytes` in all; raises as `check`."""
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
        """Return the use and the quota of each folder that the request may add to."""
        if self._limited is None:
            limited = await self._quotas.limited(*await self._quotas.current(self._names))
            self._limited = [one for one in limited if one[0].folder not in self._besides]
        return self._limited

    async def _ask(self, folder: str, room: Awaitable[None]) -> None:
        """Await room below a folder; what is raised tells only who may read the folder of it and its numbers."""
        try:
            await room
        except (OverQuota, Busy) as error:
            if await self._quotas.may_read(folder, self._principal):
                raise
            if isinstance(error, Busy):
                raise Busy(
                    f"A quota above {self._names.path} may be reached, and what is there is being counted; try again.",
                    retry_after=error.retry_after,
                ) from None
            raise OverQuota(
                f"A quota above {self._names.path}, of a folder that {self._principal.name} may not read, leaves no "
                "room for this: delete something, or ask an admin for more."
            ) from None


@lru_cache(maxsize=4096)
def folders_above(path: str) -> tuple[str, ...]:
    """Return the folders above a path, the nearest first, without the top level, which has no record."""
    above = path.rpartition("/")[0]
    folders = []
    while above:
        folders.append(above)
        above = above.rpartition("/")[0]
    return tuple(folders)


def _is_home(folder: str) -> bool:
    return folder.startswith(HOME) and "/" not in folder.removeprefix(HOME)
