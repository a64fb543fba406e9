"""Find the files that unknown root ids stand for, by walking all folders of all places, one walk at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Mapping

from hsparse.bounded_cache import BoundedCache
from hsparse.hdf5.in_place.folders import FileFolder, FileState, joined, walked
from hsparse.model.ids import storage_key
from hsparse.storage.object_store import ObjectStore, current_etag

MOST_UNKNOWN = 10_000
"""Most ids that are remembered because they belong to no file, or to a stored domain."""
UNKNOWN_SECONDS = 10.0
"""Seconds until an id without a file is searched for again, because a file with this id may have appeared."""


class UnknownRoots:
    """Searches `folders` for the files of ids; calls `tell` for each file, which adds the file's id to `known`."""

    def __init__(
        self,
        store: ObjectStore,
        folders: Mapping[str, FileFolder],
        known: Container[str],
        tell: Callable[[str, str, FileState], str],
    ) -> None:
        self._store, self._folders, self._known, self._tell = store, folders, known, tell
        self._unknown: BoundedCache[str, float] = BoundedCache.of_entries(MOST_UNKNOWN)
        """Maps each id to the time, on the event loop's clock, before which it is not searched for again."""
        self._walking = asyncio.Lock()
        self._begun = self._ended = 0
        """Number of the walk that began last, and of the walk that last covered all places."""

    async def look_for(self, root: str) -> None:
        """Walk the places until a file has the id `root`, which another process or an earlier run has issued.

        A call during a walk waits for the walk's end and, unless the id was found, walks again, because a file may
        have appeared in a folder after the walk passed. A walk is cancelled with the request that started it.
        """
        clock = asyncio.get_running_loop().time
        if self._unknown.get(root, 0.0) > clock():
            return
        if await current_etag(self._store, storage_key(root)) is not None:
            self._unknown.keep(
                root, float("inf")
            )  # a stored domain whose random id begins with the mark of files
            return
        asked = self._begun
        async with self._walking:
            if root not in self._known and self._ended <= asked:
                await self._walk(root)
        if root not in self._known:
            self._unknown.keep(root, clock() + UNKNOWN_SECONDS)

    async def _walk(self, root: str) -> None:
        self._begun += 1
        number = self._begun
        for name, folder in self._folders.items():
            folders = walked(folder, "")
            while (found := await asyncio.to_thread(next, folders, None)) is not None:
                path, content = found
                for file, state in content.files.items():
                    self._tell(name, joined(path, file), state)
                if root in self._known:
                    return
        self._ended = number
