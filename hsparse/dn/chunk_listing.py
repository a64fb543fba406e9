"""The chunks of a dataset that the store has, as its listing tells: coordinates, sizes and etags."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from hsparse.format.chunk_rows import ChunkRows
from hsparse.format.grid import Grid
from hsparse.format.plan import met
from hsparse.format.selection import Selection
from hsparse.model.objid import MAP_FOLDER, chunk_key, chunk_of_key, chunk_prefix
from hsparse.storage.object_store import Entry, ObjectStore

FIRST_KEY = f"{MAP_FOLDER}~"
"""Behind the keys of a dataset that are no chunks': its record's and its map's."""


async def listed_chunks(
    store: ObjectStore, dataset: str, grid: Grid, selection: Selection | None, after: tuple[int, ...] = ()
) -> AsyncGenerator[ChunkRows, None]:
    """Yield the stored chunks of a grid that a selection meets, a page of the listing at a time, in order of keys.

    Only those behind the key of the chunk `after`; chunks outside the grid's extent, left by a shrink that is not
    finished, are none.
    """
    prefix = chunk_prefix(dataset)
    start = chunk_key(dataset, after) if after else prefix + FIRST_KEY
    async for page in store.list(prefix, start_after=start):
        rows = _rows(page.entries, prefix, grid)
        if selection is not None:
            rows = rows.take(met(selection, grid, rows.scaled).nonzero()[0])
        if len(rows):
            yield rows


def _rows(entries: tuple[Entry, ...], prefix: str, grid: Grid) -> ChunkRows:
    rank, counts = len(grid.chunk), grid.counts or (1,)
    places, found = [], []
    for place, entry in enumerate(entries):
        scaled = chunk_of_key(entry.key) if "/" not in entry.key[len(prefix) :] else None
        if (
            scaled is not None
            and len(scaled) == len(counts)
            and all(map(int.__lt__, scaled, counts))
            and entry.key == prefix + "_".join(map(str, scaled))  # not 00_1
        ):
            places.append(place)
            found.append(scaled[:rank])
    some = [entries[place] for place in places]
    return ChunkRows.of(found, rank, [entry.size for entry in some], [entry.etag for entry in some])
