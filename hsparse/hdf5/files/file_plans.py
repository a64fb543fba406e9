"""Plans of the files of domains: computed on request, cached, and compared with the domain before reuse.

The addresses of chunks in the file of their domain, in the state that the file's etag names.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hsparse.clock import Clock
from hsparse.compute import LONG, KeyedLock, compute
from hsparse.concurrency.memory_budget import MemoryBudget
from hsparse.errors import (
    BadRequest,
    Busy,
    Conflict,
    Forbidden,
    Gone,
    Moved,
    NotFound,
    PreconditionFailed,
    Unsupported,
)
from hsparse.hdf5.files.domain_state import (
    DomainState,
    changed_files,
    file_href,
    read_domain_state,
    record_digest,
    requested_form,
)
from hsparse.hdf5.files.file_chunks import FileChunks, SizedChunks
from hsparse.hdf5.files.matrix_pieces import BandCache, CompressedMatrices
from hsparse.hdf5.format.plan.dataset_plan import chunk_form
from hsparse.hdf5.format.plan.domain_plan import DomainPlan, plan_domain
from hsparse.hdf5.format.plan.file_plan import STOCK, FileForm, FileLayout
from hsparse.hdf5.format.plan.matrix_plan import check_bands
from hsparse.hdf5.format.plan.planned_chunks import ChunkForm
from hsparse.hdf5.virtual.copied_chunks import CopyingOwners, require_sources
from hsparse.hdf5.virtual.sources import NestedRights
from hsparse.model.dataset_state import appended_parts, is_trimmed
from hsparse.model.file_backed import is_file_backed
from hsparse.model.ids import collection_of
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.records.dataset import Dataset, change_extent, finish_trim
from hsparse.sn.records.object_path import MAX_GROUPS
from hsparse.sn.records.stored_chunks import ChunkPages, Json
from hsparse.sn.request import Request
from hsparse.sn.service import Service
from hsparse.sn.service_settings import ServiceSettings
from hsparse.wire.message import Record
from hsparse.wire.record_message import AbandonAppends

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
    `virtual` are the records, by id, of virtual datasets whose values it has: a reader needs the right to the sources.
    """

    etag: str
    plan: DomainPlan
    records: Mapping[str, bytes]
    changed: tuple[str, ...] = ()
    virtual: Mapping[str, Record] = field(default_factory=dict)

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
        self._settings = settings
        self._answers = answers
        self._cached: OrderedDict[Name, _CachedPlan] = OrderedDict()
        self._locks = KeyedLock()
        self.bands = BandCache()
        self._compressed = CompressedMatrices(settings, answers, self.bands)
        self._gate = asyncio.Semaphore(PLANNED_AT_ONCE)

    @classmethod
    def of(cls, service: Service) -> FilePlans:
        """Make the plans of a service node."""
        return cls(service.owners, service.clock, service.settings, service.answers)

    async def current(
        self, root: str, form: FileForm = STOCK, rights: NestedRights | None = None, *, check: bool
    ) -> PlannedFile:
        """Return the file of a domain for a reader with `rights`; with `check`, of its state after this call.

        Otherwise the plan may be some seconds old, see `VALID_SECONDS`. `Forbidden` without the right to a source of a
        virtual dataset whose values it has.
        """
        file = await self._current(root, form, rights, check)
        await require_sources(self._owners, file.virtual.values(), rights)
        return file

    async def _current(
        self, root: str, form: FileForm, rights: NestedRights | None, check: bool
    ) -> PlannedFile:
        name = (root, form)
        if not check and (cached := self._valid_plan(name)):
            return cached
        async with self._locks.hold(name):
            # A concurrent request may have planned it while this one waited for the lock.
            if not check and (cached := self._valid_plan(name)):
                return cached
            async with self._gate:
                return await self._planned(name, rights)

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

    async def _planned(self, name: Name, rights: NestedRights | None) -> PlannedFile:
        for _ in range(ATTEMPTS - 1):
            try:
                return await self._plan(name, rights)
            except (Moved, Gone, NotFound):  # an object was written or deleted while it was read
                continue
        return await self._plan(name, rights)

    async def _plan(self, name: Name, rights: NestedRights | None) -> PlannedFile:
        root, form = name
        start = self._clock.monotonic()
        state = await self._read(root, form, rights)
        end = self._clock.monotonic()
        good_until = end + max(VALID_SECONDS, RECHECK_FACTOR * (end - start))
        cached = self._cached.get(name)
        if cached is not None and cached.digest == state.digest:
            self._cached[name] = replace(cached, good_until=good_until)
            return cached.file
        owners = CopyingOwners(self._owners, state.virtual, rights)
        chunks = await SizedChunks(owners, self._settings, self._answers).of(state, form)
        compressed = await self._compressed.of(state, chunks, form, owners)
        plan = await compute(LONG, plan_domain, root, state.records, chunks, form, compressed)
        for column in plan.columns.values():
            check_bands(column.bands, self._settings.answer_memory)
        parts = (str(LAYOUT_VERSION), *form.params.values(), state.digest.hex())
        file = PlannedFile("-".join(parts), plan, state.digests, changed_files(state), state.virtual)
        self._keep(name, _CachedPlan(file, state.digest, good_until))
        return file

    async def _read(self, root: str, form: FileForm, rights: NestedRights | None) -> DomainState:
        """Read the state; for matrices, when none has elements outside its extent: the file would have them.

        Raises `Busy` if there is no such moment: others append all the time.
        """
        for _ in range(APPEND_LOOKS):
            state = await read_domain_state(self._owners, root, form, rights)
            matrices = [
                one for id, one in state.records.items() if form.encoding(one) and id not in state.virtual
            ]
            try:
                if not matrices or await self._inside(matrices):
                    return state
            except Forbidden as error:
                raise Conflict(
                    "The snapshot was taken while matrices were appended to, or shrunk: take the file of a clone of it."
                ) from error
            await asyncio.sleep(APPEND_SECONDS)
        raise Busy("The matrices of the domain are being appended to; try again.")

    async def _inside(self, records: list[Record]) -> bool:
        """Say whether the datasets have no elements outside the extents in `records`; finish interrupted shrinks."""
        for record in records:
            if is_trimmed(record):
                await finish_trim(self._owners, record)
        # Now, after the chunks were listed: what an append had stored by then, it had announced before.
        now = [one.unwrap() for one in await self._owners.read(*(record["id"] for record in records))]
        appended = [one["id"] for one in now if appended_parts(one)]
        for id in appended:
            await change_extent(self._owners, AbandonAppends(id, expired=True))
        same = all(
            one["shape"] == record["shape"] and not is_trimmed(record)
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


class FileAddresses:
    """One planned file, for one map: each object of the map is compared with the plan."""

    def __init__(self, file: PlannedFile, asked: FileForm, href: str, request: Request) -> None:
        self.file = file
        self._asked = asked
        self.href = href
        self._request = request
        self._checked: set[str] = set()

    @classmethod
    async def of(cls, request: Request) -> FileAddresses:
        """Return the current file of the request's domain, in the form that the request names."""
        root = request.domain.root
        if root is None:
            raise BadRequest(f"{request.domain.path} is a folder: only domains are files.")
        # Matrices have no addresses, so that a map has more of the layout stock.
        form = requested_form(request, FileLayout.STOCK.value)
        if form.matrices is not None:
            raise BadRequest("Matrices are no chunks of the file, and have no addresses: leave matrices out.")
        href = file_href(request, request.domain, form)
        rights = NestedRights(request.file_rights(), request.domain.path)
        file = await request.service.component(FilePlans).current(root, form, rights, check=True)
        return cls(file, form, href, request)

    def to_json(self) -> Json:
        """Return the JSON of the file in a map: URL, etag, size and form."""
        size = self.file.plan.file.size
        return {"href": self.href, "etag": self.file.etag, "size": size, **self._asked.params}

    def check(self, record: Record) -> None:
        """Raise `PreconditionFailed` for an object that has changed since the plan."""
        id = record["id"]
        if self.file.records.get(id) != record_digest(record):
            raise self.changed(id)
        self._checked.add(id)

    def check_complete(self) -> None:
        """Raise `PreconditionFailed` if a group or dataset of the file was not checked: it was unlinked."""
        ids = [id for id in self.file.records if collection_of(id) != "datatypes"]
        if len(self._checked) < len(ids) and sum(collection_of(id) == "groups" for id in ids) <= MAX_GROUPS:
            raise self.changed(next(id for id in ids if id not in self._checked))

    def form(self, dataset: Dataset) -> ChunkForm:
        """Return the form of a dataset's chunks in the file."""
        region = self.file.plan.regions.get((dataset.id, "chunks"))
        return chunk_form(dataset.spec, self._asked) if region is None else region.form

    def chunks(self, dataset: Dataset, chunks: ChunkPages) -> FileChunks:
        """Return a dataset's chunks with their places in the file; `Conflict` if the dataset is not in it.

        `Unsupported` for data that stays in other files, and for chunks that are converted.
        """
        if dataset.id not in self.file.records:
            raise Conflict(
                f"No hard link leads to {dataset.id}, so the domain's file does not have it: link it."
            )
        self.check(dataset.record)
        if self._asked.encoding(dataset.record) is not None:
            raise Unsupported(
                f"{dataset.id} is a matrix in this file, whose arrays are no chunks of it: ask for layout=stock, or "
                "without addresses=file."
            )
        if is_file_backed(dataset.record):
            raise Unsupported(
                f"The data of {dataset.id} stays in a file: its chunks are there, ask without addresses=file."
            )
        region = self.file.plan.regions.get((dataset.id, "chunks"))
        if region is not None and region.chunks.shifted is not None:
            raise Unsupported(
                f"{dataset.id} has a lower bound inside of a chunk, so that stored chunks are no chunks of the file: "
                "ask without addresses=file."
            )
        if self.form(dataset) in (ChunkForm.TRANSCODED_SECTIONS, ChunkForm.PACKED):
            raise Unsupported(
                f"Chunks of {dataset.id} are converted for this file, which no map describes: ask for layout=stock, or "
                "without addresses=file."
            )
        return FileChunks(dataset, chunks, self.file.plan, self.changed)

    def changed(self, what: str) -> PreconditionFailed:
        """Drop the plan and return the error for something that has changed since."""
        root = self._request.domain.root or ""
        self._request.service.component(FilePlans).drop(root, self._asked, self.file.etag)
        return PreconditionFailed(f"{what} was changed while the map was made. Ask for the map again.")
