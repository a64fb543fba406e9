"""The chunk index of a dataset: which chunks are stored, their sizes, and the contents of their footers.

The store's listing always says which chunks exist. The chunk map has the footers' contents of chunks by their etags,
so that only the other footers are read. Dense chunks have no footers.

Tests: tests/dn/test_chunk_index.py, tests/dn/test_chunk_listing.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.concurrency.gather import gather_each
from hsparse.concurrency.offload import OffloadPool
from hsparse.dn.cache import Cache
from hsparse.dn.cached_chunk_map import CachedChunkMap
from hsparse.dn.cached_object import CachedObject
from hsparse.dn.fences import Fences
from hsparse.errors import BadRequest, Corrupt, NotFound, Unsupported
from hsparse.format.chunk_map import ChunkMap, digests
from hsparse.format.chunk_rows import ChunkRows, row_names
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.chunk_statistics import unknown_statistics
from hsparse.format.plan.chunk_plan import selection_intersects
from hsparse.format.plan.grid import Grid
from hsparse.format.selections.selection import Selection
from hsparse.format.structured.footer import MAX_FOOTER, Footer, read_footer
from hsparse.model.ids import MAP_FOLDER, chunk_of_key, chunk_prefix, map_key
from hsparse.storage.object_store import Entry, ObjectStore, Stored
from hsparse.wire.chunk_info_message import ChunkPage, CountChunks, FindChunk, ListChunks, SignKeys

FOOTERS_AT_ONCE = 32
MAX_LISTED = 100_000
"""The most rows of one answer."""
SORT_BATCH = 10_000
"""Rows gathered before they are sorted by coordinates: besides them only those of the answer are in memory."""
FIRST_KEY = f"{MAP_FOLDER}~"
"""Sorts after a dataset's keys that are no chunks': its record's and its map's."""


class ChunkIndex:
    """The stored chunks of datasets, over the node's store; maps are in its cache."""

    def __init__(self, store: ObjectStore, cache: Cache, workers: OffloadPool, fences: Fences) -> None:
        self._store = store
        self._cache = cache
        self._workers = workers
        self._fences = fences

    async def list(self, message: ListChunks) -> ChunkPage:
        """Answer `ListChunks`."""
        self._fences.check(message.spec)
        if not 0 < message.limit <= MAX_LISTED:
            raise BadRequest(f"A page of chunks has 1 to {MAX_LISTED} of them, not {message.limit}.")
        page = await (self._by_coords(message) if message.by_coords else self._in_order(message))
        if not message.spec.sparse:
            return page
        return ChunkPage(await self._described(message.spec, message.extent, page.rows), page.marker)

    async def count(self, message: CountChunks) -> int:
        """Answer `CountChunks`."""
        spec = message.spec
        self._fences.check(spec)
        grid = Grid(message.extent, spec.dims)
        count = 0
        async for rows in listed_chunks(self._store, spec, grid, message.selection):
            count += len(rows)
        return count

    async def find(self, message: FindChunk) -> ChunkRows:
        """Answer `FindChunk`: one range read, of the last bytes."""
        spec = message.spec
        self._fences.check(spec)
        key = spec.key(message.scaled)
        rank = len(spec.dims)
        try:
            tail = await self._store.get_range(key, -MAX_FOOTER if spec.sparse else -1)
        except NotFound:
            return ChunkRows.of((), rank, (), ())
        except BadRequest as error:
            raise Corrupt(f"The chunk object {key} is corrupt: it is empty.") from error
        rows = ChunkRows.of((message.scaled,), rank, (tail.size,), (tail.etag,))
        if not spec.sparse:
            return rows
        return rows.described(*footer_columns([read_chunk_footer(key, tail, spec)], spec))

    async def sign(self, message: SignKeys) -> tuple[str, ...]:
        """Answer `SignKeys`. Other tasks run between two URLs: each takes half a millisecond."""
        urls = []
        for key in message.keys:
            urls.append(await self._store.presigned(key, message.seconds))
            await asyncio.sleep(0)
        return tuple(urls)

    # --- order --------------------------------------------------------------------------------------

    async def _in_order(self, message: ListChunks) -> ChunkPage:
        """Return a page in the order of keys: nothing is listed but that page."""
        spec, grid = message.spec, Grid(message.extent, message.spec.dims)
        found: list[ChunkRows] = []
        count, skip = 0, message.skip
        pages = listed_chunks(self._store, spec, grid, message.selection, message.after)
        async with aclosing(pages):
            async for rows in pages:
                passed = min(skip, len(rows))
                skip -= passed
                rows = rows.take(np.arange(passed, len(rows)))
                found.append(rows)
                count += len(rows)
                if count > message.limit:
                    break
        return _cut(ChunkRows.joined(found, len(spec.dims)), message.limit)

    async def _by_coords(self, message: ListChunks) -> ChunkPage:
        """Return a page in row-major order of coordinates. All chunks are listed; see `SORT_BATCH` for the memory."""
        spec, grid = message.spec, Grid(message.extent, message.spec.dims)
        most, rank = message.skip + message.limit + 1, len(spec.dims)
        if most > 2 * MAX_LISTED:
            raise BadRequest(f"An index by coordinates is at most {MAX_LISTED}; begin behind a marker.")
        after = row_names(np.array([message.after], np.uint64)) if message.after else None
        unsorted: list[ChunkRows] = []
        count = 0
        pages = listed_chunks(self._store, spec, grid, message.selection)
        async with aclosing(pages):
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

    # --- footers ---------------------------------------------------------------------------

    async def _described(self, spec: ChunkSpec, extent: tuple[int, ...], rows: ChunkRows) -> ChunkRows:
        """Return rows with the contents of their footers, from the map or, where its etag differs, read.

        A chunk that was deleted meanwhile has no row; one that was put anew has the row of its new state.
        """
        rank, sections, columns = len(spec.dims), len(spec.filters), len(spec.statistic_columns)
        key = map_key(spec.dataset)
        make = partial(CachedChunkMap, key, rank, sections, self._store, self._workers, columns)
        with self._cache.use(key, make) as chunk_map:
            known = await chunk_map.rows()
            places = await self._workers.run(
                known.nbytes, lambda: known.find(rows.scaled, digests(rows.etags))
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
            there, read = await self._read_footers(spec, rows.take(unknown))
            new = ChunkMap(read.scaled, digests(read.etags), read.sections, read.defined, read.statistics)
            counts = Grid(extent, spec.dims).counts
            await chunk_map.add(new, counts, partial(self._fences.check, spec))
            order = np.concatenate((np.flatnonzero(good), unknown[there]))
            both = ChunkRows.joined((described.take(np.flatnonzero(good)), read), rank)
            return both.take(np.argsort(order, kind="stable"))

    async def _read_footers(self, spec: ChunkSpec, rows: ChunkRows) -> tuple[NDArray[np.intp], ChunkRows]:
        """Return the places of the rows whose chunks still exist, and new rows of these.

        Of chunks that are in memory as they were listed, nothing is read.
        """
        keys = [spec.key(scaled) for scaled in rows.scaled.tolist()]

        async def read(listed: tuple[str, str]) -> Stored | None:
            key, etag = listed
            cached: CachedObject[Any] | None = self._cache.peek(key)
            if cached is not None and (tail := cached.tail(etag)) is not None:
                return tail
            try:
                return await self._store.get_range(key, -MAX_FOOTER)
            except NotFound:
                return None
            except BadRequest as error:
                raise Corrupt(f"The chunk object {key} is corrupt: it is empty.") from error

        tails = await gather_each(read, list(zip(keys, rows.etags, strict=True)), FOOTERS_AT_ONCE)
        there = np.array([place for place, tail in enumerate(tails) if tail is not None], np.intp)
        found = [tail for tail in tails if tail is not None]
        footers = [
            read_chunk_footer(keys[place], tail, spec)
            for place, tail in zip(there.tolist(), found, strict=True)
        ]
        now = ChunkRows.of(
            rows.scaled[there].tolist(),
            len(spec.dims),
            [tail.size for tail in found],
            [tail.etag for tail in found],
        )
        return there, now.described(*footer_columns(footers, spec))


def read_chunk_footer(key: str, tail: Stored, spec: ChunkSpec) -> Footer:
    """Return the footer at the end of a chunk's object; `Corrupt` names the object."""
    try:
        footer = read_footer(tail.data, tail.size)
        if len(footer.sections) != len(spec.filters):
            raise Corrupt(f"It has {len(footer.sections)} sections, not {len(spec.filters)}.")
    except Corrupt as error:
        raise Corrupt(f"The chunk object {key} is corrupt: {error.message}") from error
    except Unsupported as error:
        raise Unsupported(f"The chunk object {key} cannot be read: {error.message}") from error
    return footer


def footer_columns(
    footers: list[Footer], spec: ChunkSpec
) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64]]:
    """Return the contents of footers as columns of `ChunkRows`: `sections`, `defined` and `statistics`."""
    sections, columns = len(spec.filters), len(spec.statistic_columns)
    statistics = unknown_statistics(len(footers), columns)
    for words, footer in zip(statistics, footers, strict=True):
        if len(footer.statistics) == words.nbytes:
            words[...] = np.frombuffer(footer.statistics, "<u8").reshape(words.shape)
    table = [[(one.size, one.unfiltered, one.mask) for one in footer.sections] for footer in footers]
    return (
        np.array(table, np.uint64).reshape(len(footers), sections, 3),
        np.array([footer.defined for footer in footers], np.uint64),
        statistics,
    )


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
    """Yield the stored chunks of a grid that a selection intersects, a page of the listing at a time, in order of keys.

    Only keys after that of the chunk `after`. Chunks outside the grid's extent, which an unfinished shrink leaves, are
    not among them.
    """
    prefix = chunk_prefix(spec.dataset)
    start = spec.key(after) if after else prefix + FIRST_KEY
    async for page in store.list(prefix, start_after=start):
        rows = _rows(page.entries, spec, grid)
        if selection is not None:
            rows = rows.take(selection_intersects(selection, grid, rows.scaled).nonzero()[0])
        if len(rows):
            yield rows


def _rows(entries: tuple[Entry, ...], spec: ChunkSpec, grid: Grid) -> ChunkRows:
    rank, counts = len(grid.chunk), grid.counts or (1,)
    places, found = [], []
    for place, entry in enumerate(entries):
        scaled = chunk_of_key(entry.key)
        if (
            scaled is not None
            and len(scaled) == len(counts)
            and all(map(int.__lt__, scaled, counts))
            and entry.key == spec.key(scaled)  # not 00_1, nor another stripe
        ):
            places.append(place)
            found.append(scaled[:rank])
    some = [entries[place] for place in places]
    return ChunkRows.of(found, rank, [entry.size for entry in some], [entry.etag for entry in some])
