"""Read a domain's state (records and chunk lists), from which its file is planned, and compute the file's URL."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from hashlib import blake2b
from urllib.parse import quote, urlencode

from hsparse.concurrency.gathering import gather_each
from hsparse.errors import MISSING_KINDS, Forbidden, Moved, TooLarge
from hsparse.format.chunk_rows import ChunkRows
from hsparse.format.plan.grid import Grid
from hsparse.format.selections.signed_extent import first_of
from hsparse.hdf5.format.plan.file_form import STOCK, FileForm
from hsparse.hdf5.format.plan.planned_chunks import PlannedChunks
from hsparse.hdf5.format.plan.shifted_chunks import shift_chunks
from hsparse.hdf5.virtual_dataset.copied_chunks import CopiedChunks, copied_chunks
from hsparse.hdf5.virtual_dataset.sources import NestedRights
from hsparse.hdf5.virtual_file.file_backed_pieces import file_backed_chunks
from hsparse.model.acl import Right
from hsparse.model.dataspace import dims_of
from hsparse.model.file_backed import is_file_backed
from hsparse.model.ids import collection_of
from hsparse.model.layout import VIRTUAL
from hsparse.model.schema import VIRTUAL_DATA
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.domains.listing_check import ListingCheck
from hsparse.sn.records.crawl import Batch, Crawl
from hsparse.sn.records.dataset import StoredDataset
from hsparse.sn.records.domain_path import at_snapshot, normal_path
from hsparse.sn.records.stored_chunks import chunk_pages
from hsparse.sn.request import Domain, Request, without_right
from hsparse.wire.message import Record

MAX_METADATA = 64 * 1024 * 1024
"""The maximum size in bytes of a domain's records, as JSON."""
MAX_FILE_CHUNKS = 1 << 20
"""The maximum number of stored chunks of a domain. Each takes about 60 bytes of memory."""
LISTINGS_AT_ONCE = 16
DIGEST_SIZE = 16


@dataclass(frozen=True, slots=True, eq=False)
class DomainState:
    """The records of all objects below a root group, and the chunks of datasets without a null dataspace, by id.

    Chunks have their stored sizes. `digest` is the digest of the whole state; `digests` maps ids to records' digests.
    `virtual` maps the ids of virtual datasets that the file contains as copies to their stored records; `records` has
    the records of the copies.
    """

    records: dict[str, Record]
    digests: dict[str, bytes]
    chunks: dict[str, PlannedChunks]
    digest: bytes
    virtual: dict[str, Record] = field(default_factory=dict)


async def read_domain_state(
    owners: Owners, root: str, form: FileForm = STOCK, rights: NestedRights | None = None
) -> DomainState:
    """Read the state of a domain for a file of this form; copying virtual datasets requires the reader's `rights`.

    An object or chunk that is written during the read has its old or new state. Raises `TooLarge` beyond the limits;
    `Gone`, `NotFound` or `Moved` if an object is deleted or shrunk during the read; and the errors of
    `file_backed_chunks` and `CopiedChunks`.
    """
    records: dict[str, Record] = {}
    digests: dict[str, bytes] = {}
    total = 0
    crawl = Crawl(owners, root, leaves=True)
    batches: AsyncGenerator[Batch, None] = crawl.batches()
    async with aclosing(batches):
        async for batch in batches:
            size = 0
            for id, record in batch:
                text = _text(record)
                size += len(text)
                records[id] = record
                digests[id] = _digest(text)
            total += size
            if total > MAX_METADATA:
                raise TooLarge(
                    f"The domain's metadata has more than {MAX_METADATA} bytes, the limit for a file: divide it."
                )
            crawl.pace.weigh(size)
            await asyncio.sleep(0)
    if root not in records:
        await owners.record(root)  # raises the error of the missing object
        raise Moved(f"{root} was created while the domain was read.")
    listing = ListingCheck(owners, root)
    for id, record in records.items():
        if collection_of(id) == "datasets":
            listing.note(record)
    copied = await _copied(owners, records, form, rights)
    records |= {id: one.record for id, one in copied.items()}
    chunks = await _chunks(owners, records, copied)
    await listing.confirm()
    whole = blake2b(digest_size=DIGEST_SIZE)
    for id in sorted(records):
        whole.update(id.encode() + digests[id])
        if id in copied:  # its extent may follow the extents of its sources
            whole.update(_text(records[id]["shape"]))
        if id in chunks:
            # `digest` has the etags, which also determine sections and defined elements.
            whole.update(chunks[id].scaled.tobytes() + chunks[id].digest.tobytes())
            if (backing := chunks[id].backing) is not None:
                whole.update(backing.file.etag.encode() + backing.offset.tobytes() + backing.mask.tobytes())
                whole.update(chunks[id].size.tobytes())
    virtual = {id: one.virtual for id, one in copied.items()}
    return DomainState(records, digests, chunks, whole.digest(), virtual)


def changed_files(state: DomainState) -> tuple[str, ...]:
    """Return the sorted URIs of the backing files that have changed since their datasets were created."""
    found = {
        chunks.backing.file.uri
        for id, chunks in state.chunks.items()
        if chunks.backing is not None
        and (state.records[id].get("linkedFile") or {}).get("etag", "") not in ("", chunks.backing.file.etag)
    }
    return tuple(sorted(found))


def record_digest(record: Record) -> bytes:
    """Return the digest of a record, as in `DomainState.digests`."""
    return _digest(_text(record))


def _text(record: Record) -> bytes:
    # Keys are not sorted, because their order is the order of links that were created at the same time.
    return json.dumps(record).encode()


def _digest(text: bytes) -> bytes:
    return blake2b(text, digest_size=DIGEST_SIZE).digest()


async def _copied(
    owners: Owners, records: dict[str, Record], form: FileForm, rights: NestedRights | None
) -> dict[str, CopiedChunks]:
    """Return a dict that maps the id of each virtual dataset that the file copies to its chunks."""
    wanted = [
        (id, record)
        for id, record in records.items()
        if VIRTUAL_DATA in record and form.copies(record["creationProperties"]["layout"])
    ]
    found = await gather_each(lambda one: copied_chunks(owners, one[1], rights), wanted, LISTINGS_AT_ONCE)
    return {id: one for (id, _), one in zip(wanted, found, strict=True)}


async def _chunks(
    owners: Owners, records: dict[str, Record], copied: dict[str, CopiedChunks]
) -> dict[str, PlannedChunks]:
    left = MAX_FILE_CHUNKS
    datasets = []
    for id, record in records.items():
        if collection_of(id) == "datasets" and record["shape"]["class"] != "H5S_NULL":
            datasets.append(StoredDataset.of(record))

    def take(count: int) -> None:
        nonlocal left
        left -= count
        if left < 0:
            raise TooLarge(f"The domain has more than {MAX_FILE_CHUNKS} chunks, the limit for a file.")

    async def read(dataset: StoredDataset) -> PlannedChunks:
        if is_file_backed(dataset.record):
            return await file_backed_chunks(owners, dataset.record, take)
        if dataset.id in copied:
            return PlannedChunks.of([await copied[dataset.id].rows(take)], len(dataset.extent))
        if dataset.elsewhere == VIRTUAL:
            return PlannedChunks.of([], len(dataset.extent))
        parts: list[ChunkRows] = []
        async with aclosing(chunk_pages(owners, dataset)) as pages:
            async for rows in pages:
                parts.append(rows)
                take(len(rows))
        found = PlannedChunks.of(parts, len(dataset.extent))
        first = first_of(dataset.extent)
        if not any(first):
            return found
        lengths = dims_of(dataset.record["shape"]) or ()
        return shift_chunks(found, first, Grid(lengths, dataset.spec.dims).counts)

    found = await gather_each(read, datasets, LISTINGS_AT_ONCE)
    return {dataset.id: chunks for dataset, chunks in zip(datasets, found, strict=True)}


SUFFIX = ".h5"


async def file_domain(request: Request, path: str) -> Domain:
    """Return the domain whose file is at `/files{path}`: `path` if it exists, else `path` without `.h5`.

    Raises `Forbidden` without the right to read the domain. The error names the requested path, so that it does not
    reveal which domain exists.
    """
    path, query = normal_path(request.service, path), request.http.query
    shorter = path.removesuffix(SUFFIX)
    if "snapshot" in query:
        path, shorter = (at_snapshot(one, query) for one in (path, shorter))
    name = path
    if shorter != path and not shorter.endswith("/") and await _is_missing(request, path):
        name = path if await _is_missing(request, shorter) else shorter
    try:
        return await request.find(name, Right.READ)
    except Forbidden:
        raise without_right(request.principal, Right.READ, path) from None


async def _is_missing(request: Request, path: str) -> bool:
    (outcome,) = await request.service.owners.read(path)
    return outcome.failure is not None and outcome.failure.kind in MISSING_KINDS


def file_href(request: Request, domain: Domain, form: FileForm) -> str:
    """Return the absolute URL of a domain's file."""
    http, bucket = request.http, request.service.named_bucket
    params = form.params | ({"bucket": bucket} if bucket else {})
    return f"{http.scheme}://{http.host}/files{quote(domain.path)}?{urlencode(params)}"


def requested_form(request: Request, layout: str | None = None) -> FileForm:
    """Return the file form that a request's parameters name; `layout` is the default layout.

    Raises `BadRequest` for an unknown name.
    """
    names = ("revision", "matrices", "virtual")
    return FileForm.parse(request.arg("layout") or layout, *map(request.arg, names))
