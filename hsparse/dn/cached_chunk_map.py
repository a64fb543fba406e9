"""A dataset's chunk map in a data node's cache: loaded once, added to, and put when many rows are new."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from hsparse.concurrency.offload import OffloadPool
from hsparse.errors import Corrupt, HsparseError, NotFound, PreconditionFailed
from hsparse.format.chunk_map import ChunkMap, decode_map, encode_map
from hsparse.storage.object_store import ObjectStore

log = logging.getLogger(__name__)

MIN_NEW_ROWS = 64
"""So many new rows are not worth a put: reading as many footers again costs as much as reading the map."""
ROWS_PER_NEW_ROW = 32
"""A map is put again when at least one row in so many is new."""


class CachedChunkMap:
    """A `CacheEntry` with a chunk map; a row is only used when its chunk still has the row's etag."""

    def __init__(
        self,
        key: str,
        rank: int,
        sections: int,
        store: ObjectStore,
        workers: OffloadPool,
        columns: int = 0,
    ) -> None:
        self.key = key
        self._rank, self._sections, self._columns = rank, sections, columns
        self._store = store
        self._workers = workers
        self._rows: ChunkMap | None = None
        self._etag: str | None = None
        self._new = 0
        self._loading: asyncio.Task[ChunkMap] | None = None
        self._saving: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        return self._loading is not None or self._saving is not None

    @property
    def nbytes(self) -> int:
        return len(self.key) + (0 if self._rows is None else self._rows.nbytes)

    def doubt(self, kept: Callable[[str], bool]) -> None:
        """Nothing to do: each row is compared with its chunk whenever it is used."""

    async def settle(self) -> None:
        """Wait until no put of the map is under way."""
        if self._saving is not None:
            await asyncio.wait([self._saving])

    async def drain(self) -> None:
        while tasks := [task for task in (self._loading, self._saving) if task is not None]:
            await asyncio.wait(tasks)

    async def rows(self) -> ChunkMap:
        """Return the rows; they are read from the store once (single flight)."""
        if self._rows is not None:
            return self._rows
        if self._loading is None:
            self._loading = asyncio.create_task(self._load())
        return await asyncio.shield(self._loading)

    async def add(self, new: ChunkMap, counts: tuple[int, ...], check: Callable[[], None]) -> None:
        """Add rows; put the map, without rows outside the grid's `counts`, when it is worth it.

        `check` raises when nothing may be put any more. A failed put is not a failure of the request: the next
        request puts again.
        """
        while True:
            known = await self.rows()
            merged = await self._workers.run(known.nbytes + new.nbytes, known.merge, new)
            if self._rows is known:  # no other call has added rows meanwhile
                break
        self._rows = merged
        self._new += len(new)
        if self._new > max(MIN_NEW_ROWS, len(self._rows) // ROWS_PER_NEW_ROW) and self._saving is None:
            check()
            self._saving = asyncio.create_task(self._save(counts))
            await asyncio.shield(self._saving)

    async def _load(self) -> ChunkMap:
        rows, etag = ChunkMap.empty(self._rank, self._sections, self._columns), None
        try:
            stored = await self._store.get(self.key)
            etag = stored.etag
            rows = await self._workers.run(
                8 * len(stored.data), decode_map, stored.data, self._rank, self._sections, self._columns
            )
        except NotFound:
            pass
        except Corrupt as error:
            # Its rows can be read again from the chunks; the next put replaces it.
            log.warning("The chunk map %s is read anew: %s", self.key, error.message)
        finally:
            self._loading = None
        self._rows, self._etag = rows, etag
        return rows

    async def _save(self, counts: tuple[int, ...]) -> None:
        assert self._rows is not None
        rows, new = self._rows.inside(counts), self._new
        self._new = 0
        try:
            data = await self._workers.run(rows.nbytes, encode_map, rows)
            if self._etag is None:
                self._etag = await self._store.put_if_absent(self.key, data)
            else:
                self._etag = await self._store.put_if_match(self.key, data, self._etag)
        except PreconditionFailed:
            # Another node has put one: the next request reads it and adds the missing rows.
            self._rows = self._etag = None
        except HsparseError as error:
            self._new += new
            log.warning("The chunk map %s could not be put: %s", self.key, error.message)
        finally:
            self._saving = None
