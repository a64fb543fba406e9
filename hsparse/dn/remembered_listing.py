"""The listing of a dataset's chunks in a data node's cache: what was listed in one version of the chunks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import numpy as np

from hsparse.format.chunk_map import ChunkRows

ROW_BYTES = 200
"""About the memory of a listed chunk besides its columns: its etag, a string."""

State = tuple[str, tuple[int, ...]]
"""The version of a dataset's chunks, and the extent in which they were listed."""


class RememberedListing:
    """A `CacheEntry` with the rows of a listing, in order of keys, and the state that they are of."""

    def __init__(self, key: str) -> None:
        self.key = key
        self._state: State | None = None
        self._rows: ChunkRows | None = None
        self._too_many = False
        """Whether a listing had too many rows: no other one is tried, which would list them in vain again."""
        self._listing: asyncio.Task[ChunkRows | None] | None = None

    @property
    def busy(self) -> bool:
        return self._listing is not None

    @property
    def nbytes(self) -> int:
        rows = self._rows
        return len(self.key) + (0 if rows is None else rows.nbytes + ROW_BYTES * len(rows))

    def invalidate(self, kept: Callable[[str], bool]) -> None:
        """Nothing to do: whoever asks names a version, and invalidated chunks get new versions."""

    async def settle(self) -> None:
        """Nothing to do: nothing is changed here."""

    async def drain(self) -> None:
        while self._listing is not None:
            await asyncio.wait([self._listing])

    def known(self, state: State) -> ChunkRows | None:
        """Return the rows of a state if they are those that are remembered."""
        return self._rows if state == self._state else None

    async def rows(self, state: State, read: Callable[[], Awaitable[ChunkRows | None]]) -> ChunkRows | None:
        """Return the rows of a state; `read` lists them, None if they are too many. Who ask at once share a listing.

        A state is named before it is listed: so its rows may be newer, never older.
        """
        if (rows := self.known(state)) is not None or self._too_many:
            return rows
        if self._listing is None or self._state != state:
            self._state, self._rows = state, None
            self._listing = asyncio.create_task(self._read(state, read))
            # Who leaves before it ends does not ask how it went.
            self._listing.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(self._listing)

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
    """Return the place of the first row behind that of the chunk `after`, 0 without one; None if it has no row."""
    if not after:
        return 0
    (places,) = (rows.scaled == np.array(after, np.uint64)).all(axis=1).nonzero()
    return int(places[0]) + 1 if len(places) else None
