"""Plans of the files of domains: computed on request, cached, and compared with the domain before reuse."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace

from hsparse.clock import Clock
from hsparse.concurrency.gather import KeyedLock
from hsparse.concurrency.memory_budget import MemoryBudget
from hsparse.errors import Busy, Gone, Moved, NotFound
from hsparse.format.hdf5.plan.domain_plan import DomainPlan, plan_domain
from hsparse.format.hdf5.plan.file_form import STOCK, FileForm
from hsparse.format.hdf5.plan.matrix_bands import check_bands
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.files.domain_state import DomainState, changed_files, read_domain_state
from hsparse.sn.files.file_chunks import SizedChunks
from hsparse.sn.files.matrix_pieces import BandCache, CompressedMatrices
from hsparse.sn.records.dataset import change_extent, finish_trim
from hsparse.sn.service import Service
from hsparse.sn.service_settings import ServiceSettings
from hsparse.wire.message import Record
from hsparse.wire.record_message import AbandonAppends, appended_parts

LAYOUT_VERSION = 4
"""Part of every etag; increment it when the layout of files changes."""
MAX_PLAN_BYTES = 64 * 1024 * 1024
"""The most bytes of cached plans; the last one is cached whatever its size."""
VALID_SECONDS = 5.0
"""Seconds that a plan serves ranges of a file before it is compared with the domain again."""
RECHECK_FACTOR = 20.0
"""A plan whose comparison takes longer than a quarter of a second is reused for this many times its duration."""
PLANNED_AT_ONCE = 2
ATTEMPTS = 4
APPEND_LOOKS, APPEND_SECONDS = 100, 0.05
"""How often a domain with matrices that others append to is looked at, and the seconds between two looks."""
Name = tuple[str, FileForm]


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """The file of a domain and its etag, without quotes; `records` has the digests of the planned records, by id.

    `changed` are the URIs of backing files that were changed after they were linked: a reader needs the right to them.
    """

    etag: str
    plan: DomainPlan
    records: Mapping[str, bytes]
    changed: tuple[str, ...] = ()

    @property
    def nbytes(self) -> int:
        """Estimated bytes of memory."""
        return self.plan.nbytes + 150 * len(self.records)


@dataclass(frozen=True, slots=True)
class _CachedPlan:
    file: PlannedFile
    digest: bytes
    good_until: float


class FilePlans:
    """Plans by root group and form; `answers` is the memory budget for reading.

    `bands` is the cache of matrix bands.
    """

    def __init__(
        self, owners: Owners, clock: Clock, settings: ServiceSettings, answers: MemoryBudget
    ) -> None:
        self._owners = owners
        self._clock = clock
        self._most_answered = settings.answer_memory
        self._sized = SizedChunks(owners, settings, answers)
        self._cached: OrderedDict[Name, _CachedPlan] = OrderedDict()
        self._locks = KeyedLock()
        self.bands = BandCache()
        self._compressed = CompressedMatrices(owners, settings, answers, self.bands)
        self._gate = asyncio.Semaphore(PLANNED_AT_ONCE)

    @classmethod
    def of(cls, service: Service) -> FilePlans:
        """Make the plans of a service node."""
        return cls(service.owners, service.clock, service.settings, service.answers)

    async def current(self, root: str, form: FileForm = STOCK, *, check: bool) -> PlannedFile:
        """Return the file of a domain; with `check`, of its state after this call.

        Otherwise the plan may be some seconds old, see `VALID_SECONDS`.
        """
        name = (root, form)
        if not check and (cached := self._valid_plan(name)):
            return cached
        async with self._locks.hold(name):
            # A concurrent request may have planned it while this one waited for the lock.
            if not check and (cached := self._valid_plan(name)):
                return cached
            async with self._gate:
                return await self._planned(name)

    def drop(self, root: str, form: FileForm, etag: str) -> None:
        """Drop a plan that the domain no longer matches."""
        name = (root, form)
        cached = self._cached.get(name)
        if cached is not None and cached.file.etag == etag:
            self._forget(name)

    def _valid_plan(self, name: Name) -> PlannedFile | None:
        cached = self._cached.get(name)
        if cached is None or cached.good_until < self._clock.monotonic():
            return None
        self._cached.move_to_end(name)
        return cached.file

    async def _planned(self, name: Name) -> PlannedFile:
        for _ in range(ATTEMPTS - 1):
            try:
                return await self._plan(name)
            except (Moved, Gone, NotFound):  # an object was written or deleted while it was read
                continue
        return await self._plan(name)

    async def _plan(self, name: Name) -> PlannedFile:
        root, form = name
        start = self._clock.monotonic()
        state = await self._read(root, form)
        end = self._clock.monotonic()
        good_until = end + max(VALID_SECONDS, RECHECK_FACTOR * (end - start))
        cached = self._cached.get(name)
        if cached is not None and cached.digest == state.digest:
            self._cached[name] = replace(cached, good_until=good_until)
            return cached.file
        chunks = await self._sized.of(state, form)
        compressed = await self._compressed.of(state, chunks, form)
        plan = await asyncio.to_thread(plan_domain, root, state.records, chunks, form, compressed)
        for column in plan.columns.values():
            check_bands(column.bands, self._most_answered)
        parts = (str(LAYOUT_VERSION), *form.params.values(), state.digest.hex())
        file = PlannedFile("-".join(parts), plan, state.digests, changed_files(state))
        self._keep(name, _CachedPlan(file, state.digest, good_until))
        return file

    async def _read(self, root: str, form: FileForm) -> DomainState:
        """Read the state; for matrices, when none has elements outside its extent: the file would have them.

        Raises `Busy` if there is no such moment: others append all the time.
        """
        for _ in range(APPEND_LOOKS):
            state = await read_domain_state(self._owners, root)
            matrices = [one for one in state.records.values() if form.encoding(one)]
            if not matrices or await self._inside(matrices):
                return state
            await asyncio.sleep(APPEND_SECONDS)
        raise Busy("The matrices of the domain are being appended to; try again.")

    async def _inside(self, records: list[Record]) -> bool:
        """Say whether the datasets have no elements outside the extents in `records`; finish interrupted shrinks."""
        for record in records:
            if "trim" in record:
                await finish_trim(self._owners, record)
        # Now, after the chunks were listed: what an append had stored by then, it had announced before.
        now = [one.unwrap() for one in await self._owners.read(*(record["id"] for record in records))]
        appended = [one["id"] for one in now if appended_parts(one)]
        for id in appended:
            await change_extent(self._owners, AbandonAppends(id, expired=True))
        same = all(
            one["shape"] == record["shape"] and "trim" not in record
            for one, record in zip(now, records, strict=True)
        )
        return same and not appended

    def _keep(self, name: Name, cached: _CachedPlan) -> None:
        if name in self._cached:
            self._forget(name)
        self._cached[name] = cached
        size = sum(one.file.nbytes for one in self._cached.values())
        while size > MAX_PLAN_BYTES and len(self._cached) > 1:
            oldest = next(iter(self._cached))
            size -= self._cached[oldest].file.nbytes
            self._forget(oldest)

    def _forget(self, name: Name) -> None:
        """Drop a plan and the bands cached for it."""
        columns = self._cached.pop(name).file.plan.columns.values()
        self.bands.forget(column.bands for column in columns)
