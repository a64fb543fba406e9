"""Plans of domains' files, which are computed on request, cached, and compared with the domain before reuse.

`FileAddresses` has the addresses of chunks in one planned file, for a map (JSON with the locations of chunks).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hsparse.attempts import MAX_READ_ATTEMPTS
from hsparse.bounded_cache import BoundedCache
from hsparse.clock import Clock
from hsparse.compute import LONG_WORK_BYTES, compute
from hsparse.concurrency.keyed_lock import KeyedLock
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
from hsparse.hdf5.format.plan.dataset_plan import chunk_form
from hsparse.hdf5.format.plan.domain_plan import DomainPlan, plan_domain
from hsparse.hdf5.format.plan.file_form import STOCK, FileForm, FileLayout
from hsparse.hdf5.format.plan.matrix_plan import check_bands
from hsparse.hdf5.format.plan.planned_chunks import ChunkForm
from hsparse.hdf5.virtual_dataset.copied_chunks import CopyingOwners, require_sources
from hsparse.hdf5.virtual_dataset.sources import NestedRights
from hsparse.hdf5.virtual_file.domain_state import (
    DomainState,
    changed_files,
    file_href,
    read_domain_state,
    record_digest,
    requested_form,
)
from hsparse.hdf5.virtual_file.file_chunks import FileChunkPages
from hsparse.hdf5.virtual_file.matrix_pieces import BandCache, CompressedMatrices
from hsparse.hdf5.virtual_file.sized_chunks import SizedChunks
from hsparse.model.dataset_state import appended_parts, is_trimmed
from hsparse.model.file_backed import is_file_backed
from hsparse.model.ids import collection_of
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.records.dataset import StoredDataset, change_extent, finish_trim
from hsparse.sn.records.object_path import MAX_GROUPS
from hsparse.sn.records.stored_chunks import ChunkPages, Json
from hsparse.sn.request import Request
from hsparse.sn.service import Service
from hsparse.sn.service_settings import ServiceSettings
from hsparse.wire.message import Record
from hsparse.wire.record_message import AbandonAppends

LAYOUT_VERSION = 4
"""A part of every etag. Increment it when the layout of files changes."""
MAX_PLAN_BYTES = 64 * 1024 * 1024
"""The maximum size in bytes of all cached plans. The newest plan is cached even if it is larger."""
VALID_SECONDS = 5.0
"""The time in seconds for which a plan answers range requests before it is compared with the domain again."""
RECHECK_FACTOR = 20.0
"""If comparing a plan takes more than 0.25 s, the plan is reused for this many times the comparison's duration."""
PLANNED_AT_ONCE = 2
APPEND_LOOKS, APPEND_SECONDS = 100, 0.05
"""The most reads of a domain while its matrices have pending appends, and the seconds between these reads."""
Name = tuple[str, FileForm]


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A planned file of a domain and its etag, without quotes; `records` maps ids to the digests of its records.

    Readers need the right to read backing files that have changed since their datasets were created (`changed` has the
    URIs) and the sources of copied virtual datasets (`virtual` maps the datasets' ids to their records).
    """

    etag: str
    plan: DomainPlan
    records: Mapping[str, bytes]
    changed: tuple[str, ...] = ()
    virtual: Mapping[str, Record] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """The approximate memory in bytes."""
        return self.plan.nbytes + 150 * len(self.records)


@dataclass(frozen=True, slots=True)
class _CachedPlan:
    file: PlannedFile
    digest: bytes
    good_until: float


class FilePlans:
    """A cache of plans by root group and form; `answers` is the memory budget for reading chunks.

    `bands` is the cache of matrix bands.
    """

    def __init__(
        self, owners: Owners, clock: Clock, settings: ServiceSettings, answers: MemoryBudget
    ) -> None:
        self._owners = owners
        self._clock = clock
        self._settings = settings
        self._answers = answers
        self._cached = BoundedCache[Name, _CachedPlan](
            MAX_PLAN_BYTES, sys.maxsize, forgotten=lambda name, plan: self._forget_bands(plan)
        )
        self._locks = KeyedLock()
        self.bands = BandCache()
        self._compressed = CompressedMatrices(settings, answers, self.bands)
        self._gate = asyncio.Semaphore(PLANNED_AT_ONCE)

    @classmethod
    def of(cls, service: Service) -> FilePlans:
        """Create the plan cache of a service node."""
        return cls(service.owners, service.clock, service.settings, service.answers)

    async def current(
        self, root: str, form: FileForm = STOCK, rights: NestedRights | None = None, *, check: bool
    ) -> PlannedFile:
        """Return the file of a domain for a reader with `rights`.

        With `check`, the file has the state of the domain during this call; without it, the plan may be some seconds
        old (`VALID_SECONDS`). Raises `Forbidden` without the right to read a source of a copied virtual dataset.
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
            # A concurrent request may have planned the file while this request waited for the lock.
            if not check and (cached := self._valid_plan(name)):
                return cached
            async with self._gate:
                return await self._planned(name, rights)

    def drop(self, root: str, form: FileForm, etag: str) -> None:
        """Drop the cached plan with this etag, because the domain no longer matches it."""
        name = (root, form)
        cached = self._cached.get(name)
        if cached is not None and cached.file.etag == etag:
            self._cached.forget(name)
            self._forget_bands(cached)

    def _valid_plan(self, name: Name) -> PlannedFile | None:
        cached = self._cached.use(name)
        return None if cached is None or cached.good_until < self._clock.monotonic() else cached.file

    async def _planned(self, name: Name, rights: NestedRights | None) -> PlannedFile:
        for _ in range(MAX_READ_ATTEMPTS - 1):
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
            self._cached.keep(name, replace(cached, good_until=good_until), cached.file.nbytes)
            return cached.file
        owners = CopyingOwners(self._owners, state.virtual, rights)
        chunks = await SizedChunks(owners, self._settings, self._answers).of(state, form)
        compressed = await self._compressed.of(state, chunks, form, owners)
        plan = await compute(LONG_WORK_BYTES, plan_domain, root, state.records, chunks, form, compressed)
        for column in plan.columns.values():
            check_bands(column.bands, self._settings.answer_memory)
        parts = (str(LAYOUT_VERSION), *form.params.values(), state.digest.hex())
        file = PlannedFile("-".join(parts), plan, state.digests, changed_files(state), state.virtual)
        if cached is not None:
            self._forget_bands(cached)
        self._cached.keep(name, _CachedPlan(file, state.digest, good_until), file.nbytes)
        return file

    async def _read(self, root: str, form: FileForm, rights: NestedRights | None) -> DomainState:
        """Read the domain's state while no matrix has elements outside its extent, which a file would contain.

        Raises `Busy` if appends continue for too long, and `Conflict` if a snapshot has such elements.
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
                    "The snapshot was taken while its matrices were appended to or shrunk: use the file of a clone."
                ) from error
            await asyncio.sleep(APPEND_SECONDS)
        raise Busy("The domain's matrices are being appended to, so its file cannot be planned: try later.")

    async def _inside(self, records: list[Record]) -> bool:
        """Finish interrupted shrinks; return whether no dataset has elements outside its extent in `records`."""
        for record in records:
            if is_trimmed(record):
                await finish_trim(self._owners, record)
        # Read records after chunks were listed: appends are announced in the record before they store chunks.
        now = [one.unwrap() for one in await self._owners.read(*(record["id"] for record in records))]
        appended = [one["id"] for one in now if appended_parts(one)]
        for id in appended:
            await change_extent(self._owners, AbandonAppends(id, expired=True))
        same = all(
            one["shape"] == record["shape"] and not is_trimmed(record)
            for one, record in zip(now, records, strict=True)
        )
        return same and not appended

    def _forget_bands(self, plan: _CachedPlan) -> None:
        self.bands.forget(column.bands for column in plan.file.plan.columns.values())


class FileAddresses:
    """The addresses of one planned file, for one map. Objects of the map that have changed since are refused."""

    def __init__(self, file: PlannedFile, asked: FileForm, href: str, request: Request) -> None:
        self.file = file
        self._asked = asked
        self.href = href
        self._request = request
        self._checked: set[str] = set()

    @classmethod
    async def of(cls, request: Request) -> FileAddresses:
        """Plan the current file of the request's domain, in the form that the request names."""
        root = request.domain.root
        if root is None:
            raise BadRequest(f"{request.domain.path} is a folder: only domains are files.")
        # The default is the stock layout, because matrices in the layout auto have no chunk addresses.
        form = requested_form(request, FileLayout.STOCK.value)
        if form.matrices is not None:
            raise BadRequest("Matrices in a file have no chunk addresses: omit the parameter matrices.")
        href = file_href(request, request.domain, form)
        rights = NestedRights(request.file_rights(), request.domain.path)
        file = await request.service.component(FilePlans).current(root, form, rights, check=True)
        return cls(file, form, href, request)

    def to_json(self) -> Json:
        """Return the JSON that describes the file in a map: URL, etag, size and form."""
        size = self.file.plan.file.size
        return {"href": self.href, "etag": self.file.etag, "size": size, **self._asked.params}

    def check(self, record: Record) -> None:
        """Raise `PreconditionFailed` if an object has changed since the plan."""
        id = record["id"]
        if self.file.records.get(id) != record_digest(record):
            raise self.changed(id)
        self._checked.add(id)

    def check_complete(self) -> None:
        """Raise `PreconditionFailed` if a group or dataset of the file was not checked, because it was unlinked."""
        ids = [id for id in self.file.records if collection_of(id) != "datatypes"]
        if len(self._checked) < len(ids) and sum(collection_of(id) == "groups" for id in ids) <= MAX_GROUPS:
            raise self.changed(next(id for id in ids if id not in self._checked))

    def form(self, dataset: StoredDataset) -> ChunkForm:
        """Return the form of a dataset's chunks in the file."""
        region = self.file.plan.regions.get((dataset.id, "chunks"))
        return chunk_form(dataset.spec, self._asked) if region is None else region.form

    def chunks(self, dataset: StoredDataset, chunks: ChunkPages) -> FileChunkPages:
        """Return a dataset's chunks with their addresses in the file.

        Raises `Conflict` if the file does not have the dataset, `Unsupported` if it is file-backed or converted.
        """
        if dataset.id not in self.file.records:
            raise Conflict(
                f"No hard link leads to {dataset.id}, so the domain's file does not have it: add a link."
            )
        self.check(dataset.record)
        if self._asked.encoding(dataset.record) is not None:
            raise Unsupported(
                f"{dataset.id} is a matrix in this file, so its chunks are not in the file: request layout=stock, or "
                "omit addresses=file."
            )
        if is_file_backed(dataset.record):
            raise Unsupported(
                f"The chunks of {dataset.id} are in a backing file, not in the domain's: omit addresses=file."
            )
        region = self.file.plan.regions.get((dataset.id, "chunks"))
        if region is not None and region.chunks.shifted is not None:
            raise Unsupported(
                f"{dataset.id} has a lower bound inside of a chunk, so the file has other chunks than the store: "
                "ask without addresses=file."
            )
        if self.form(dataset) in (ChunkForm.TRANSCODED_SECTIONS, ChunkForm.PACKED):
            raise Unsupported(
                f"Chunks of {dataset.id} are converted for this file, so a map cannot describe them: ask for "
                "layout=stock, or without addresses=file."
            )
        return FileChunkPages(dataset, chunks, self.file.plan, self.changed)

    def changed(self, what: str) -> PreconditionFailed:
        """Drop the plan; return the error that says that `what` has changed."""
        root = self._request.domain.root or ""
        self._request.service.component(FilePlans).drop(root, self._asked, self.file.etag)
        return PreconditionFailed(f"{what} was changed while the map was made. Request the map again.")
