"""The stored chunks of a dataset, as HDF5's chunk query functions report them: coordinates, address, size, filter mask.

On request, chunks have presigned URLs, by which clients can read the chunks' objects or files for a limited time.

Chunks are listed page by page. Requests for pages name the version of the chunks that was current when the client's
request began, so that the data node lists the chunks once for all pages, and for all requests until a chunk changes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import BadRequest, OutOfRange, StoreFailed, Unsupported
from hsparse.format.chunk_map import MASK, SIZE, UNFILTERED
from hsparse.format.chunk_rows import ChunkRows
from hsparse.format.chunk_spec import chunk_name
from hsparse.format.filters.filters_json import SECTIONS
from hsparse.format.plan.grid import Grid
from hsparse.format.selections.points import Selection
from hsparse.model.ids import map_key
from hsparse.model.stripes import is_placed, placed_key, unplaced_key
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.records.dataset import StoredDataset, list_chunks
from hsparse.sn.request import FileRights
from hsparse.wire.chunk_info_message import CountChunks, FindChunk, GetChunkVersion, ListChunks, SignKeys

CHUNK_PAGE = 9999
"""Chunks in each page of a full listing: one less than ten pages of the store, which saves an eleventh page."""


async def chunk_version(owners: Owners, dataset: str) -> str:
    """Return the version of a dataset's chunks over all data nodes, or "" if the store fails.

    Callers request the version before they list the chunks, so that the listing is of that version or a newer one.
    """
    try:
        versions = await owners.ask_all(GetChunkVersion(dataset))
    except StoreFailed:
        return ""
    return blake2b(json.dumps(versions).encode(), digest_size=16).hexdigest()


async def chunk_pages(
    owners: Owners, dataset: StoredDataset, selection: Selection | None = None
) -> AsyncGenerator[ChunkRows, None]:
    """Yield pages of the stored chunks that a selection (None: all) intersects, with data of sparse chunks' footers."""
    version = await chunk_version(owners, dataset.id)
    after: tuple[int, ...] = ()
    while True:
        message = ListChunks(
            dataset.spec, dataset.extent, selection, after=after, limit=CHUNK_PAGE, version=version
        )
        page = await owners.ask_owner(map_key(dataset.id), message)
        yield page.rows
        if not page.marker:
            return
        after = page.marker


Json = dict[str, Any]
Scaled = tuple[int, ...]
MAX_LISTED_CHUNKS = 1 << 20
"""The maximum number of chunks whose coordinates are in memory at a time."""
ROWS_AT_ONCE = 1000
"""Chunks that are converted to JSON without a pause for other requests: about 10 ms."""


class ChunkOrder(StrEnum):
    """The order of a chunk iteration (H5D_chunk_order_t): as listed, by coordinates, or by address."""

    NATIVE = "native"
    COORD = "coord"
    ADDR = "addr"


@dataclass(frozen=True, slots=True)
class ChunkQuery:
    """A page of chunks that overlap a selection (None: all); it begins `skip` chunks after the chunk `after`."""

    selection: Selection | None
    order: ChunkOrder
    after: Scaled = ()
    skip: int = 0
    limit: int = 1000


def map_query(after: Scaled = (), selection: Selection | None = None) -> ChunkQuery:
    """Return the query for the page of chunks after the chunk `after`, in the order that is cheapest to list."""
    return ChunkQuery(selection, ChunkOrder.NATIVE, after, 0, CHUNK_PAGE)


class ChunkPages(Protocol):
    """The stored chunks of one dataset, page by page; `grid` is the grid of these chunks."""

    grid: Grid

    async def page(self, wanted: ChunkQuery) -> tuple[list[Json], Scaled]:
        """Return a pair: the JSON of a page of chunks, and the marker of the next page, or () after the last page.

        Any page may have fewer chunks than the limit, even none.
        """
        ...


class StoredChunks(ChunkPages, Protocol):
    """The stored chunks of one dataset: pages of them, their number, and lookup by coordinates."""

    async def version(self) -> str:
        """Return the version of the chunks at the first call, so that all pages agree, or "" if it is unknown."""
        ...

    async def count(self, selection: Selection | None) -> int:
        """Return the number of chunks that overlap a selection, or of all chunks for None."""
        ...

    async def find(self, scaled: Scaled) -> Json | None:
        """Return the JSON of one chunk, or None if it is not stored."""
        ...

    async def scaled(self) -> NDArray[np.uint64]:
        """Return the scaled coordinates of all chunks, (n, rank) uint64."""
        ...


async def defined_chunks(chunks: ChunkPages) -> AsyncGenerator[Json, None]:
    """Yield every chunk that has defined elements."""
    rows, marker = await chunks.page(map_query())
    while True:
        for row in rows:
            if row.get("defined", 1):
                yield row
        if not marker:
            return
        rows, marker = await chunks.page(map_query(marker))


def refuse_filter_mask(row: Json) -> None:
    """Raise `Unsupported` for a chunk with a filter mask, which references cannot express."""
    if row.get("filter_mask"):
        raise Unsupported(
            f"The chunk {row['scaled']} in {row['key']} was stored without some of its filters (mask "
            f"{row['filter_mask']}), which references cannot express; read values, or the map in JSON."
        )


def object_url(row: Json, base: str) -> str:
    """Return the URL of a chunk's object: below `base` or, if `base` is empty, an `s3://` URL in its bucket."""
    if not base:
        return f"s3://{row['bucket']}/{row['key']}"
    if is_placed(row["key"]):
        raise Unsupported(
            f"The chunk {row['scaled']} is in the bucket {row['bucket']!r}, not below {base[:200]}: leave base out, or "
            "ask with urls."
        )
    return f"{base}{row['key']}"


class ChunkObjectInfo:
    """The `StoredChunks` of a dataset with chunk objects; if `bucket` is None, their JSON has no bucket and key."""

    def __init__(self, owners: Owners, dataset: StoredDataset, bucket: str | None) -> None:
        self._owners = owners
        self._dataset = dataset
        self._bucket = bucket
        self.grid = dataset.grid
        self._version: str | None = None

    async def version(self) -> str:
        if self._version is None:
            self._version = await chunk_version(self._owners, self._dataset.id)
        return self._version

    async def page(self, wanted: ChunkQuery) -> tuple[list[Json], Scaled]:
        dataset = self._dataset
        lists_all = wanted.order is ChunkOrder.COORD or wanted.skip > 0 or wanted.limit >= CHUNK_PAGE
        message = ListChunks(
            dataset.spec,
            dataset.extent,
            wanted.selection,
            wanted.order is ChunkOrder.COORD,
            wanted.after,
            wanted.skip,
            wanted.limit,
            await self.version() if lists_all else "",
        )
        page = await self._owners.ask_owner(map_key(dataset.id), message)
        found: list[Json] = []
        for first in range(0, len(page.rows), ROWS_AT_ONCE):
            found += self._rows_json(
                page.rows.take(np.arange(first, min(first + ROWS_AT_ONCE, len(page.rows))))
            )
            await asyncio.sleep(0)
        return found, page.marker

    async def count(self, selection: Selection | None) -> int:
        message = CountChunks(self._dataset.spec, self._dataset.extent, selection, await self.version())
        return await self._owners.ask_owner(map_key(self._dataset.id), message)

    async def find(self, scaled: Scaled) -> Json | None:
        key = self._dataset.spec.key(scaled)
        found = self._rows_json(await self._owners.ask_owner(key, FindChunk(self._dataset.spec, scaled)))
        return found[0] if found else None

    async def scaled(self) -> NDArray[np.uint64]:
        found = await list_chunks(self._owners, self._dataset, most=MAX_LISTED_CHUNKS)
        counts = np.array(self.grid.counts, np.uint64)
        return found[(found < counts).all(axis=1)]

    def _address(self, scaled: Sequence[int]) -> Json:
        """Return the bucket and key of a chunk's object."""
        if self._bucket is None:
            return {}
        bucket, key = placed_key(self._bucket, self._dataset.spec.key(scaled))
        return {"bucket": bucket, "key": key}

    def _rows_json(self, rows: ChunkRows) -> list[Json]:
        spec = self._dataset.spec
        shown = rows.scaled.astype(np.int64) + np.array(spec.base, np.int64) if spec.base else rows.scaled
        offsets = shown * np.array(self.grid.chunk, shown.dtype)
        columns = (rows.scaled.tolist(), shown.tolist(), offsets.tolist(), rows.size.tolist(), rows.etags)
        found: list[Json] = [
            {
                "scaled": named,
                "offset": offset,
                **self._address(scaled),
                "address": 0,
                "size": size,
                **({} if spec.sparse else {"filter_mask": 0}),
                "etag": etag,
            }
            for scaled, named, offset, size, etag in zip(*columns, strict=True)
        ]
        if spec.sparse:
            for item, table, defined in zip(
                found, rows.sections.tolist(), rows.defined.tolist(), strict=True
            ):
                item["sections"] = sections_json(table)
                item["size"] = sum(row[SIZE] for row in table)
                item["defined"] = defined
        return found


def chunk_place(grid: Grid, scaled: Sequence[int], base: Sequence[int] = ()) -> Json:
    """Return the JSON of a chunk's scaled coordinates and of its first element's coordinates (`scaled`, `offset`).

    `base`, if given, is the first chunk of a dataset with lower bounds; both coordinates are then signed.
    """
    shown = list(map(int.__add__, scaled, base)) if base else list(scaled)
    return {"scaled": shown, "offset": list(grid.origin(shown))}


def stored_name(scaled: Sequence[int], dataset: StoredDataset) -> str:
    """Return the name of a chunk in keys and requests, such as `0_3`."""
    return chunk_name(chunk_place(dataset.grid, scaled, dataset.spec.base)["scaled"])


def parse_chunk_name(name: str, dataset: StoredDataset) -> Scaled:
    """Parse a chunk name `<i>_<j>_<k>` (`0` for a scalar dataset) to scaled coordinates; raise `BadRequest` if invalid.

    If the dataset has lower bounds, the name has signed coordinates. The result counts from the dataset's first chunk;
    for chunks before the first, `OutOfRange` is raised.
    """
    dataset.require_places()
    parts, base = name.split("_"), dataset.spec.base
    rank = len(dataset.extent)
    digits = [part.removeprefix("-") if base else part for part in parts]
    if len(parts) != max(rank, 1) or not all(
        part.isascii() and part.isdigit() and len(part) <= 19 for part in digits
    ):
        example = "_".join("0" * max(rank, 1))
        raise BadRequest(
            f"{name[:80]!r} is no chunk of {dataset.id}: give {max(rank, 1)} scaled coordinates, such as {example}."
        )
    found = tuple(map(int, parts))
    if base:
        found = tuple(map(int.__sub__, found, base))
        if min(found) < 0:
            raise OutOfRange(
                f"There is no chunk {name} of {dataset.id}: its first chunk is {chunk_name(base)}."
            )
    if any(number >= 2**63 for number in found) or (not rank and found != (0,)):
        raise BadRequest(f"There is no chunk {name} of {dataset.id}: it is beyond any extent.")
    return found[:rank]


def sections_json(table: list[list[int]]) -> list[Json]:
    """Return the JSON of the sections of a structured chunk; `offset` counts from the first byte of the chunk."""
    found, offset = [], 0
    for kind, row in zip(SECTIONS, table, strict=False):
        found.append(
            {
                "type": kind,
                "offset": offset,
                "size": row[SIZE],
                "unfiltered_size": row[UNFILTERED],
                "filter_mask": row[MASK],
            }
        )
        offset += row[SIZE]
    return found


class SignedChunks:
    """A `StoredChunks` that wraps `chunks` and adds to each chunk a presigned `url`, valid for `seconds`.

    `rights` are the principal's rights to files (None: chunk objects). Raises `Forbidden` for an unreadable file.
    """

    def __init__(
        self, chunks: StoredChunks, owners: Owners, seconds: int, rights: FileRights | None = None
    ) -> None:
        self._chunks = chunks
        self._owners = owners
        self._seconds = seconds
        self._rights = rights
        self.grid = chunks.grid

    async def page(self, wanted: ChunkQuery) -> tuple[list[Json], Scaled]:
        rows, marker = await self._chunks.page(wanted)
        return await self._signed(rows), marker

    async def version(self) -> str:
        return await self._chunks.version()

    async def count(self, selection: Selection | None) -> int:
        return await self._chunks.count(selection)

    async def find(self, scaled: Scaled) -> Json | None:
        found = await self._chunks.find(scaled)
        return None if found is None else (await self._signed([found]))[0]

    async def scaled(self) -> NDArray[np.uint64]:
        return await self._chunks.scaled()

    async def _signed(self, rows: list[Json]) -> list[Json]:
        places = dict.fromkeys((row["bucket"], row["key"]) for row in rows)
        if self._rights is not None:
            await self._rights.require(*(f"s3://{bucket}/{key}" for bucket, key in places))
        urls: dict[tuple[str, str], str] = {}
        for bucket in dict.fromkeys(bucket for bucket, _ in places):
            keys = tuple(key for one, key in places if one == bucket)
            owners = self._owners
            if self._rights is not None:
                owners = self._rights.owners_of(f"s3://{bucket}/{keys[0]}")[0]
            named = tuple(unplaced_key(bucket, key) for key in keys)
            signed = await owners.ask_any(SignKeys(named, self._seconds))
            urls |= {(bucket, key): url for key, url in zip(keys, signed, strict=True)}
        return [{**row, "url": urls[row["bucket"], row["key"]]} for row in rows]
