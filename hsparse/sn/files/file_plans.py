"""The files of domains, planned when they are asked for and kept as long as they are what the domain is."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from hsparse.clock import Clock
from hsparse.errors import Gone, Moved, NotFound
from hsparse.format.blosc_frame import is_frame
from hsparse.format.hdf5.addressed import Key
from hsparse.format.hdf5.chunk_region import ChunkForm
from hsparse.format.hdf5.dataset_plan import check_made, form_of
from hsparse.format.hdf5.domain_plan import DomainPlan, known_key, plan_domain
from hsparse.format.hdf5.file_layout import FileLayout
from hsparse.format.hdf5.made_chunk import made_size
from hsparse.format.hdf5.planned_chunks import PlannedChunks
from hsparse.format.hdf5.stored_type import stored_type
from hsparse.model.chunk_spec import ChunkSpec
from hsparse.model.layout import chunk_spec
from hsparse.sn.files.domain_state import DomainState, read_state
from hsparse.sn.files.file_chunk import read_planned
from hsparse.sn.owners import Owners
from hsparse.sn.settings import ServiceSettings
from hsparse.wire.budget import Budget
from hsparse.wire.gather import gather_each

VERSION = 2
"""Part of every etag: to be raised when the same domain is laid out in another way."""
MOST_HELD = 64 * 1024 * 1024
"""Bytes of the plans that are kept; the last one is kept whatever it has."""
GOOD_FOR = 5.0
"""Seconds that a plan is used for parts of a file before it is compared with the domain again."""
REST = 20.0
"""One whose comparison takes longer than a quarter of a second is used for so many times as long as that."""
PLANNED_AT_ONCE = 2
READS_AT_ONCE = 8
ATTEMPTS = 4
Name = tuple[str, FileLayout]


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
class _Held:
    file: PlannedFile
    digest: bytes
    good_until: float


class FilePlans:
    """Plans by root group and layout; `answers` is the memory that reading for them may take."""

    def __init__(self, owners: Owners, clock: Clock, settings: ServiceSettings, answers: Budget) -> None:
        self._owners = owners
        self._clock = clock
        self._settings = settings
        self._answers = answers
        self._held: OrderedDict[Name, _Held] = OrderedDict()
        self._turns: dict[Name, tuple[asyncio.Lock, int]] = {}
        self._gate = asyncio.Semaphore(PLANNED_AT_ONCE)

    async def current(self, root: str, layout: FileLayout, *, check: bool) -> PlannedFile:
        """Return a domain's file; with `check` it is the domain's at a moment after this call.

        Otherwise it may be some seconds old, see `GOOD_FOR`.
        """
        name = (root, layout)
        if not check and (held := self._good(name)):
            return held
        async with self._turn(name):
            # Others may have planned it while this request waited for its turn.
            if not check and (held := self._good(name)):
                return held
            async with self._gate:
                return await self._planned(name)

    def drop(self, root: str, layout: FileLayout, etag: str) -> None:
        """Forget a file that the domain is not any more."""
        held = self._held.get((root, layout))
        if held is not None and held.file.etag == etag:
            del self._held[root, layout]

    def _good(self, name: Name) -> PlannedFile | None:
        held = self._held.get(name)
        if held is None or held.good_until < self._clock.monotonic():
            return None
        self._held.move_to_end(name)
        return held.file

    @asynccontextmanager
    async def _turn(self, name: Name) -> AsyncIterator[None]:
        """Let one request at a time plan a domain."""
        lock, waiting = self._turns.get(name, (asyncio.Lock(), 0))
        self._turns[name] = (lock, waiting + 1)
        try:
            async with lock:
                yield
        finally:
            lock, waiting = self._turns[name]
            if waiting > 1:
                self._turns[name] = (lock, waiting - 1)
            else:
                del self._turns[name]

    async def _planned(self, name: Name) -> PlannedFile:
        for _ in range(ATTEMPTS - 1):
            try:
                return await self._plan(name)
            except (Moved, Gone, NotFound):  # something was written or deleted while it was read
                continue
        return await self._plan(name)

    async def _plan(self, name: Name) -> PlannedFile:
        root, layout = name
        start = self._clock.monotonic()
        state = await read_state(self._owners, root)
        end = self._clock.monotonic()
        good_until = end + max(GOOD_FOR, REST * (end - start))
        held = self._held.get(name)
        if held is not None and held.digest == state.digest:
            self._held[name] = replace(held, good_until=good_until)
            return held.file
        chunks = await self._sized(state, layout)
        plan = await asyncio.to_thread(plan_domain, root, state.records, chunks, layout)
        file = PlannedFile(f"{VERSION}-{layout.value}-{state.digest.hex()}", plan, state.digests)
        self._keep(name, _Held(file, state.digest, good_until))
        return file

    def _keep(self, name: Name, held: _Held) -> None:
        self._held[name] = held
        self._held.move_to_end(name)
        size = sum(one.file.nbytes for one in self._held.values())
        while size > MOST_HELD and len(self._held) > 1:
            _, oldest = self._held.popitem(last=False)
            size -= oldest.file.nbytes

    async def _sized(self, state: DomainState, layout: FileLayout) -> dict[str, PlannedChunks]:
        """Return the chunks with the sizes that they take in the file: those of variable length are read for it."""
        found = dict(state.chunks)
        ids = frozenset(state.records)
        for id, chunks in state.chunks.items():
            spec = chunk_spec(state.records[id])
            check_made(spec, layout, self._settings.max_request_size)
            chunks = await self._judged(spec, chunks)
            if form_of(spec, layout, foreign=chunks.foreign) is not ChunkForm.MADE:
                continue
            if spec.datatype.is_variable:
                found[id] = await self._measured(spec, chunks, ids)
            else:
                found[id] = chunks.sized(prod(spec.dims) * stored_type(spec.datatype.item).size)
        return found

    async def _judged(self, spec: ChunkSpec, chunks: PlannedChunks) -> PlannedChunks:
        """Return chunks as foreign where the first is: whoever wrote that wrote all, or nearly so."""
        if spec.sparse or not spec.filters[0] or not len(chunks):
            return chunks
        async with self._answers.hold(int(chunks.size[0])):
            first = await read_planned(self._owners, spec, chunks, 0)
        return replace(chunks, foreign=is_frame(first, spec.filters[0]))

    async def _measured(self, spec: ChunkSpec, chunks: PlannedChunks, ids: frozenset[str]) -> PlannedChunks:
        def key_of(name: str) -> Key | None:
            return known_key(name, ids)

        async def measure(row: int) -> int:
            stored = int(chunks.size[row]) + prod(spec.dims) * stored_type(spec.datatype.item).size
            async with self._answers.hold(2 * stored):
                data = await read_planned(self._owners, spec, chunks, row)
                return await asyncio.to_thread(made_size, spec, data, chunks.sections[row], key_of)

        sizes = await gather_each(measure, range(len(chunks)), READS_AT_ONCE)
        return chunks.sized(np.array(sizes, np.uint64))
