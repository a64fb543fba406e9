"""Plans of domains' files: made when they are asked for, cached, and compared with the domain before reuse."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace

from hsparse.clock import Clock
from hsparse.concurrency.keyed_lock import KeyedLock
from hsparse.concurrency.memory_budget import MemoryBudget
from hsparse.errors import Gone, Moved, NotFound
from hsparse.format.hdf5.plan.domain_plan import DomainPlan, plan_domain
from hsparse.format.hdf5.plan.file_form import STOCK, FileForm
from hsparse.format.hdf5.plan.matrix_bands import check_bands
from hsparse.sn.data_nodes import Owners
from hsparse.sn.files.domain_state import DomainState, read_domain_state
from hsparse.sn.files.matrix_pieces import BandCache
from hsparse.sn.files.sized_chunks import SizedChunks
from hsparse.sn.records.dataset import finish_trim
from hsparse.sn.service import Service
from hsparse.sn.service_settings import ServiceSettings

LAYOUT_VERSION = 2
"""Part of every etag: to be incremented when the layout of files changes."""
MAX_PLAN_BYTES = 64 * 1024 * 1024
"""Bytes of the plans that are cached; the last one is cached whatever its size."""
VALID_SECONDS = 5.0
"""Seconds that a plan is used for ranges of a file before it is compared with the domain again."""
RECHECK_FACTOR = 20.0
"""A plan whose comparison takes longer than a quarter of a second is reused for this many times its duration."""
PLANNED_AT_ONCE = 2
ATTEMPTS = 4
Name = tuple[str, FileForm]


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A domain's file and its etag, without quotes; `records` are the digests of what it was planned from, by id."""

    etag: str
    plan: DomainPlan
    records: Mapping[str, bytes]

    @property
    def nbytes(self) -> int:
        """The memory that it takes, roughly."""
        return self.plan.nbytes + 150 * len(self.records)


@dataclass(frozen=True, slots=True)
class _CachedPlan:
    file: PlannedFile
    digest: bytes
    good_until: float


class FilePlans:
    """Plans by root group and form; `answers` is the memory that reading for them may take.

    `bands` is the cache of matrix bands, for the next part of a file.
    """

    def __init__(
        self, owners: Owners, clock: Clock, settings: ServiceSettings, answers: MemoryBudget
    ) -> None:
        self._owners = owners
        self._clock = clock
        self._most_answered = settings.answer_memory
        self._sized = SizedChunks(owners, settings, answers)
        self._held: OrderedDict[Name, _CachedPlan] = OrderedDict()
        self._locks = KeyedLock()
        self.bands = BandCache()
        self._gate = asyncio.Semaphore(PLANNED_AT_ONCE)

    @classmethod
    def of(cls, service: Service) -> FilePlans:
        """Make the plans of a service node."""
        return cls(service.owners, service.clock, service.settings, service.answers)

    async def current(self, root: str, form: FileForm = STOCK, *, check: bool) -> PlannedFile:
        """Return a domain's file; with `check` the domain is read after this call.

        Otherwise the plan may be some seconds old, see `VALID_SECONDS`.
        """
        name = (root, form)
        if not check and (held := self._good(name)):
            return held
        async with self._locks.hold(name):
            # Others may have planned it while this request waited for the lock.
            if not check and (held := self._good(name)):
                return held
            async with self._gate:
                return await self._planned(name)

    def drop(self, root: str, form: FileForm, etag: str) -> None:
        """Drop a plan that the domain no longer matches."""
        name = (root, form)
        held = self._held.get(name)
        if held is not None and held.file.etag == etag:
            self._forget(name)

    def _good(self, name: Name) -> PlannedFile | None:
        held = self._held.get(name)
        if held is None or held.good_until < self._clock.monotonic():
            return None
        self._held.move_to_end(name)
        return held.file

    async def _planned(self, name: Name) -> PlannedFile:
        for _ in range(ATTEMPTS - 1):
            try:
                return await self._plan(name)
            except (Moved, Gone, NotFound):  # something was written or deleted while it was read
                continue
        return await self._plan(name)

    async def _plan(self, name: Name) -> PlannedFile:
        root, form = name
        start = self._clock.monotonic()
        state = await self._read(root, form)
        end = self._clock.monotonic()
        good_until = end + max(VALID_SECONDS, RECHECK_FACTOR * (end - start))
        held = self._held.get(name)
        if held is not None and held.digest == state.digest:
            self._held[name] = replace(held, good_until=good_until)
            return held.file
        chunks = await self._sized.of(state, form)
        plan = await asyncio.to_thread(plan_domain, root, state.records, chunks, form)
        for column in plan.columns.values():
            check_bands(column.bands, self._most_answered)
        parts = (str(LAYOUT_VERSION), *form.params.values(), state.digest.hex())
        file = PlannedFile("-".join(parts), plan, state.digests)
        self._keep(name, _CachedPlan(file, state.digest, good_until))
        return file

    async def _read(self, root: str, form: FileForm) -> DomainState:
        """Read the state; finish an interrupted shrink of a matrix first, so that what lies outside is not counted."""
        state = await read_domain_state(self._owners, root)
        if form.matrices is None:
            return state
        shrinking = [one for one in state.records.values() if "trim" in one and form.matrices.fits(one)]
        for record in shrinking:
            await finish_trim(self._owners, record)
        return await read_domain_state(self._owners, root) if shrinking else state

    def _keep(self, name: Name, held: _CachedPlan) -> None:
        if name in self._held:
            self._forget(name)
        self._held[name] = held
        size = sum(one.file.nbytes for one in self._held.values())
        while size > MAX_PLAN_BYTES and len(self._held) > 1:
            oldest = next(iter(self._held))
            size -= self._held[oldest].file.nbytes
            self._forget(oldest)

    def _forget(self, name: Name) -> None:
        """Drop a plan and the bands cached for it."""
        columns = self._held.pop(name).file.plan.columns.values()
        self.bands.forget(column.bands for column in columns)
