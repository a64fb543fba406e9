"""The chunk index of a dataset: which chunks are stored, their sizes, and the contents of their footers.

The store's listing says which chunks exist. A data node remembers a whole listing in its cache (`RememberedListing`)
while the version of the dataset's chunks stays the same.

The chunk map (`CachedChunkMap`) is a stored object with the contents of footers, by the etags of their chunks. Only
footers that the map lacks are read from chunks. A node loads the map once, and puts it again when many of its rows are
new. Dense chunks have no footers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, cast

import numpy as np

from hsparse.compute import compute
from hsparse.concurrency.gathering import with_pauses
from hsparse.concurrency.single_flight import shielded
from hsparse.dn.cache import Cache
from hsparse.dn.chunk_bytes import ChunkFooters, footer_columns, read_chunk_footer, read_tail
from hsparse.dn.fences import Fences
from hsparse.dn.stored_form import ObjectState, SingleObject, load_state
from hsparse.errors import BadRequest, Corrupt, Forbidden, HsparseError, PreconditionFailed
from hsparse.format.chunk_map import ChunkMap, based, decode_map, digests, encode_map, row_names
from hsparse.format.chunk_rows import ChunkRows
from hsparse.format.chunk_spec import ChunkSpec, unknown_statistics
from hsparse.format.plan.chunk_plan import selection_intersects
from hsparse.format.plan.grid import Grid
from hsparse.format.selections.points import Selection
from hsparse.format.structured.container import MAX_FOOTER
from hsparse.model.ids import MAP_FOLDER, chunk_prefix, map_key
from hsparse.storage.object_store import Buffer, Entry, ObjectStore, Page
from hsparse.wire.chunk_info_message import ChunkPage, CountChunks, FindChunk, ListChunks, SignKeys

ROW_BYTES = 200
"""The approximate memory of the etag of a listed chunk, in bytes, which `ChunkRows.nbytes` does not include."""

State = tuple[str, tuple[int, ...]]
"""The version of a dataset's chunks, and the extent and base (`ChunkSpec.base`) with which the chunks were listed."""


class RememberedListing:
    """A `CacheEntry` with the rows of a listing, in key order, and the state of the dataset when they were listed."""

    def __init__(self, key: str) -> None:
        self.key = key
        self._state: State | None = None
        self._rows: ChunkRows | None = None
        self._too_many = False
        """Whether a listing had too many rows to remember; no further listing is attempted."""
        self._listing: asyncio.Task[ChunkRows | None] | None = None

    @property
    def busy(self) -> bool:
        return self._listing is not None

    @property
    def nbytes(self) -> int:
        rows = self._rows
        return len(self.key) + (0 if rows is None else rows.nbytes + ROW_BYTES * len(rows))

    def invalidate(self, kept: Callable[[str], bool]) -> None:
        """Do nothing: a listing serves only the version that a caller names, and callers name the newest."""

    async def settle(self) -> None:
        """Return at once: the entry has no changes."""

    async def drain(self) -> None:
        while self._listing is not None:
            await asyncio.wait([self._listing])

    def known(self, state: State) -> ChunkRows | None:
        """Return the remembered rows if they were listed in `state`, or None if they were not."""
        return self._rows if state == self._state else None

    async def rows(self, state: State, read: Callable[[], Awaitable[ChunkRows | None]]) -> ChunkRows | None:
        """Return the rows of `state`, which `read` lists once for concurrent callers, or None if there are too many.

        The state is determined before the listing begins, so the rows may be newer than the state, but never older.
        """
        if (rows := self.known(state)) is not None or self._too_many:
            return rows
        if self._listing is None or self._state != state:
            self._state, self._rows = state, None
            self._listing = asyncio.create_task(self._read(state, read))
            # A caller that was cancelled does not retrieve the listing's error.
            self._listing.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await shielded(self._listing)

    async def _read(self, state: State, read: Callable[[], Awaitable[ChunkRows | None]]) -> ChunkRows | None:
        try:
            rows = await read()
            self._too_many = rows is None
            if self._state == state:
                self._rows = rows
            return rows
        finally:
            if self._listing is asyncio.current_task():
                self._listing = None


def rows_after(rows: ChunkRows, after: tuple[int, ...]) -> int | None:
    """Return the index of the first row after chunk `after`: 0 if `after` is empty, or None if `after` has no row."""
    if not after:
        return 0
    (places,) = (rows.scaled == np.array(after, np.int64).astype(np.uint64)).all(axis=1).nonzero()
    return int(places[0]) + 1 if len(places) else None


log = logging.getLogger(__name__)

MIN_NEW_ROWS = 64
"""A map with at most this many new rows is not put: reading so many footers costs as much as reading the map."""
ROWS_PER_NEW_ROW = 32
"""A map is put again when more than one in this many of its rows is new."""


@dataclass(frozen=True, slots=True)
class MapCodec:
    """Codec of the chunk map in object `key`; `shape` is (rank, sections, columns). A damaged map decodes as empty."""

    key: str
    shape: tuple[int, int, int]
    speed: ClassVar[int] = 1

    def decode(self, data: bytes) -> ChunkMap:
        try:
            return decode_map(data, *self.shape)
        except Corrupt as error:
            # The rows can be read again from the chunks; the next put replaces the damaged map.
            log.warning("The damaged chunk map %s is read again from the chunks: %s", self.key, error.message)
            return ChunkMap.empty(*self.shape)

    def encode(self, value: ChunkMap) -> bytes:
        return encode_map(value)

    def nbytes(self, value: ChunkMap, data: Buffer) -> int:
        return value.nbytes


class CachedChunkMap:
    """A `CacheEntry` with a chunk map; a row is used only if its chunk still has the row's etag."""

    def __init__(
        self,
        key: str,
        rank: int,
        sections: int,
        store: ObjectStore,
        columns: int = 0,
    ) -> None:
        self.key = key
        self._shape = rank, sections, columns
        self._form = SingleObject(key, store, MapCodec(key, self._shape))
        self._rows: ChunkMap | None = None
        self._version: str | None = None
        self._new = 0
        self._loading: asyncio.Task[ChunkMap] | None = None
        self._saving: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        return self._loading is not None or self._saving is not None

    @property
    def nbytes(self) -> int:
        return len(self.key) + (0 if self._rows is None else self._rows.nbytes)

    def invalidate(self, kept: Callable[[str], bool]) -> None:
        """Do nothing: a row's etag is compared with its chunk's whenever the row is used."""

    async def settle(self) -> None:
        """Wait until no put of the map is in progress."""
        if self._saving is not None:
            await asyncio.wait([self._saving])

    async def drain(self) -> None:
        while tasks := [task for task in (self._loading, self._saving) if task is not None]:
            await asyncio.wait(tasks)

    async def rows(self) -> ChunkMap:
        """Return the rows, loaded from the store once (single flight)."""
        if self._rows is not None:
            return self._rows
        if self._loading is None:
            self._loading = asyncio.create_task(self._load())
        return await shielded(self._loading)

    async def add(
        self, new: ChunkMap, counts: tuple[int, ...], check: Callable[[], None], base: tuple[int, ...] = ()
    ) -> None:
        """Add rows, and put the map if enough rows are new.

        The stored map has only the rows inside the grid of `counts` chunks that begins at `base`. `check` raises if the
        map may not be put. A failed put does not fail the request: the next request puts again.
        """
        while True:
            known = await self.rows()
            enough = max(MIN_NEW_ROWS, (len(known) + len(new)) // ROWS_PER_NEW_ROW)
            grid = (counts, base) if self._new + len(new) > enough and self._saving is None else None
            merged, data = await compute(known.nbytes + new.nbytes, _merged, known, new, grid)
            if self._rows is known:  # no other call has added rows meanwhile
                break
        self._rows = merged
        self._new += len(new)
        if data and self._saving is None:
            check()
            self._saving = asyncio.create_task(self._save(merged, data))
            await shielded(self._saving)

    async def _load(self) -> ChunkMap:
        try:
            state = await load_state(self._form)
        finally:
            self._loading = None
        self._rows, self._version = state.value or ChunkMap.empty(*self._shape), state.version
        return self._rows

    async def _save(self, rows: ChunkMap, data: bytes) -> None:
        new, self._new = self._new, 0
        try:
            self._version = (await self._form.put(ObjectState(None, self._version), rows, data)).version
        except PreconditionFailed:
            # Another node has put the map: the next request reads that map and adds the missing rows.
            self._rows = self._version = None
        except Forbidden:  # the store is read-only
            pass
        except HsparseError as error:
            self._new += new
            log.warning("The chunk map %s could not be put: %s", self.key, error.message)
        finally:
            self._saving = None


def _merged(
    known: ChunkMap, new: ChunkMap, grid: tuple[tuple[int, ...], tuple[int, ...]] | None
) -> tuple[ChunkMap, bytes]:
    """Return a pair: `known` merged with `new`, and the encoded rows inside `grid` (counts, base), if it is given."""
    merged = known.merge(new)
    return merged, b"" if grid is None else encode_map(merged.inside(*grid))


MAX_LISTED = 100_000
"""The most rows of one reply to `ListChunks`."""
FOUND_AT_ONCE = 1000
"""How many rows are looked up in a map between two pauses: 2 ms of work for a map of any size."""
SORT_BATCH = 10_000
"""The number of rows that are gathered before a sort by coordinates; it bounds the rows in memory beside the reply."""
MAX_REMEMBERED = 1 << 20
"""The most chunks of a remembered listing: about 250 MB, and never more than a quarter of the cache."""
REMEMBERED = "~listing"
"""The listing of a dataset is cached under the prefix of the dataset's objects followed by this suffix."""
FIRST_KEY = f"{MAP_FOLDER}~"
"""The end of a key that sorts after a dataset's record and chunk map; a listing that begins there has only chunks."""


class ChunkIndex:
    """Lists the stored chunks of datasets in the node's store, with chunk maps and listings in its cache."""

    def __init__(self, store: ObjectStore, cache: Cache, fences: Fences) -> None:
        self._store = store
        self._cache = cache
        self._fences = fences
        self._footers = ChunkFooters(store, cache)

    async def list(self, message: ListChunks) -> ChunkPage:
        """Answer `ListChunks`: return a page of the stored chunks that the message selects."""
        if not 0 < message.limit <= MAX_LISTED:
            raise BadRequest(f"The limit of a page must be 1 to {MAX_LISTED} chunks, not {message.limit}.")
        page = await (self._by_coords(message) if message.by_coords else self._in_order(message))
        if not message.spec.sparse:
            return page
        return ChunkPage(await self._described(message.spec, message.extent, page.rows), page.marker)

    async def count(self, message: CountChunks) -> int:
        """Answer `CountChunks`: return the number of stored chunks that the message selects."""
        return sum([len(rows) async for rows in self._listed(message)])

    async def find(self, message: FindChunk) -> ChunkRows:
        """Answer `FindChunk`: return one row, or no rows if the chunk is missing, from one range read of its end."""
        spec = message.spec
        key = spec.key(message.scaled)
        rank = len(spec.dims)
        tail = await read_tail(self._store, key, MAX_FOOTER if spec.sparse else 1)
        if tail is None:
            return ChunkRows.of((), rank, (), ())
        rows = ChunkRows.of((message.scaled,), rank, (tail.size,), (tail.etag,))
        if not spec.sparse:
            return rows
        return rows.described(*footer_columns([read_chunk_footer(key, tail, spec)], spec))

    async def sign(self, message: SignKeys) -> tuple[str, ...]:
        """Answer `SignKeys`: return presigned URLs. Signing takes 0.5 ms, so other tasks run between two URLs."""
        urls = []
        for key in message.keys:
            urls.append(await self._store.presigned(key, message.seconds))
            await asyncio.sleep(0)
        return tuple(urls)

    async def _in_order(self, message: ListChunks) -> ChunkPage:
        """Return a page in key order; only the chunks up to the page's end are listed."""
        found: list[ChunkRows] = []
        count, skip = 0, message.skip
        async with aclosing(self._listed(message, message.after)) as pages:
            async for rows in pages:
                passed = min(skip, len(rows))
                skip -= passed
                rows = rows.take(np.arange(passed, len(rows)))
                found.append(rows)
                count += len(rows)
                if count > message.limit:
                    break
        return _cut(ChunkRows.joined(found, len(message.spec.dims)), message.limit)

    async def _by_coords(self, message: ListChunks) -> ChunkPage:
        """Return a page in row-major order of coordinates. All chunks are listed; `SORT_BATCH` bounds the memory."""
        most, rank = message.skip + message.limit + 1, len(message.spec.dims)
        if most > 2 * MAX_LISTED:
            raise BadRequest(
                f"In the order of coordinates, skip + limit must be below {2 * MAX_LISTED}; begin at a page's marker."
            )
        after = row_names(np.array([message.after], np.uint64)) if message.after else None
        unsorted: list[ChunkRows] = []
        count = 0
        async with aclosing(self._listed(message)) as pages:
            async for rows in pages:
                if after is not None:
                    rows = rows.take(np.flatnonzero(row_names(rows.scaled) > after))
                unsorted.append(rows)
                count += len(rows)
                if count > most + SORT_BATCH:
                    unsorted = [_first(unsorted, rank, most)]
                    count = len(unsorted[0])
        rows = _first(unsorted, rank, most)
        return _cut(rows.take(np.arange(min(message.skip, len(rows)), len(rows))), message.limit)

    async def _listed(
        self, message: ListChunks | CountChunks, after: tuple[int, ...] = ()
    ) -> AsyncGenerator[ChunkRows, None]:
        """Yield rows of the message's chunks after chunk `after`, in key order, from a remembered or a new listing."""
        spec, selection = message.spec, message.selection
        grid = Grid(message.extent, spec.dims)
        rows = await self._remembered(message, after)
        first = None if rows is None else rows_after(rows, after)
        if rows is None or first is None:
            async with aclosing(listed_chunks(self._store, spec, grid, selection, after)) as pages:
                async for page in pages:
                    yield page
            return
        for start in range(first, len(rows), SORT_BATCH):
            some = rows.take(np.arange(start, min(start + SORT_BATCH, len(rows))))
            yield _inside(some, selection, grid)

    async def _remembered(
        self, message: ListChunks | CountChunks, after: tuple[int, ...]
    ) -> ChunkRows | None:
        """Return the rows of all chunks, or None if the message names no version or there are too many chunks.

        Only the first page starts a listing. If later pages did too, each of them might list all chunks anew.
        """
        if not message.version:
            return None
        spec, state = message.spec, (message.version, (*message.extent, *message.spec.base))
        key = chunk_prefix(spec.dataset) + REMEMBERED
        most = min(MAX_REMEMBERED, self._cache.budget // (4 * ROW_BYTES))

        async def read() -> ChunkRows | None:
            found: list[ChunkRows] = []
            count = 0
            grid = Grid(message.extent, spec.dims)
            async with aclosing(listed_chunks(self._store, spec, grid, None)) as pages:
                async for rows in pages:
                    found.append(rows)
                    count += len(rows)
                    if count > most:
                        return None
            return ChunkRows.joined(found, len(spec.dims))

        with self._cache.use(key, partial(RememberedListing, key)) as listing:
            return listing.known(state) if after else await listing.rows(state, read)

    async def _described(self, spec: ChunkSpec, extent: tuple[int, ...], rows: ChunkRows) -> ChunkRows:
        """Return `rows` with the contents of footers, from the chunk map or, if the map lacks an etag, from the chunk.

        Chunks deleted since the listing are omitted; the rows of chunks put since then describe the new objects.
        """
        rank, sections, columns = len(spec.dims), len(spec.filters), len(spec.statistic_columns)
        key = map_key(spec.dataset)
        make = partial(CachedChunkMap, key, rank, sections, self._store, columns)
        with self._cache.use(key, make) as chunk_map:
            known = await chunk_map.rows()
            places, names = np.empty(len(rows), np.intp), row_names(known.scaled)
            async for first in with_pauses(range(0, len(rows), FOUND_AT_ONCE), 1):
                some = slice(first, first + FOUND_AT_ONCE)
                places[some] = known.find(
                    based(rows.scaled[some], spec.base), digests(rows.etags[some]), names
                )
            unknown = np.flatnonzero(places < 0)
            table = np.zeros((len(rows), sections, 3), np.uint64)
            defined = np.zeros(len(rows), np.uint64)
            statistics = unknown_statistics(len(rows), columns)
            good = places >= 0
            table[good], defined[good] = known.sections[places[good]], known.defined[places[good]]
            statistics[good] = known.statistics[places[good]]
            described = rows.described(table, defined, statistics)
            if not len(unknown):
                return described
            there, read = await self._footers.read(spec, rows.take(unknown))
            columns_read = digests(read.etags), read.sections, read.defined, read.statistics
            new, counts = (
                ChunkMap(based(read.scaled, spec.base), *columns_read),
                Grid(extent, spec.dims).counts,
            )
            await chunk_map.add(new, counts, partial(self._fences.check, spec), spec.base)
            order = np.concatenate((np.flatnonzero(good), unknown[there]))
            both = ChunkRows.joined((described.take(np.flatnonzero(good)), read), rank)
            return both.take(np.argsort(order, kind="stable"))


def _first(some: list[ChunkRows], rank: int, most: int) -> ChunkRows:
    rows = ChunkRows.joined(some, rank)
    return rows.take(np.argsort(row_names(rows.scaled), kind="stable")[:most])


def _cut(rows: ChunkRows, limit: int) -> ChunkPage:
    if len(rows) <= limit:
        return ChunkPage(rows)
    return ChunkPage(rows.take(np.arange(limit)), tuple(rows.scaled[limit - 1].tolist()))


async def listed_chunks(
    store: ObjectStore, spec: ChunkSpec, grid: Grid, selection: Selection | None, after: tuple[int, ...] = ()
) -> AsyncGenerator[ChunkRows, None]:
    """Yield the stored chunks of a grid that a selection intersects, in key order, one array of rows per listing page.

    Only chunks with keys after that of chunk `after` are listed. Chunks outside the grid's extent, which an unfinished
    shrink leaves, are skipped.
    """
    prefix = chunk_prefix(spec.dataset)
    start = spec.key(after) if after else prefix + ("" if min(spec.base, default=0) < 0 else FIRST_KEY)
    # Close the listing with this generator; otherwise a task of the event loop would do so later.
    async with aclosing(cast("AsyncGenerator[Page, None]", store.list(prefix, start_after=start))) as pages:
        async for page in pages:
            rows = _inside(_rows(page.entries, spec, grid), selection, grid)
            if len(rows):
                yield rows


def _inside(rows: ChunkRows, selection: Selection | None, grid: Grid) -> ChunkRows:
    """Return the rows of the chunks that a selection intersects, or all rows if the selection is None."""
    if selection is None:
        return rows
    return rows.take(selection_intersects(selection, grid, rows.scaled).nonzero()[0])


def _rows(entries: tuple[Entry, ...], spec: ChunkSpec, grid: Grid) -> ChunkRows:
    rank, counts = len(grid.chunk), grid.counts or (1,)
    places, found = [], []
    for place, entry in enumerate(entries):
        scaled = spec.scaled_of(entry.key)
        if (
            scaled is not None
            and len(scaled) == len(counts)
            and min(scaled) >= 0
            and all(map(int.__lt__, scaled, counts))
            and entry.key == spec.key(scaled)  # excludes keys like 00_1, and chunks of other stripes
        ):
            places.append(place)
            found.append(scaled[:rank])
    some = [entries[place] for place in places]
    return ChunkRows.of(found, rank, [entry.size for entry in some], [entry.etag for entry in some])
