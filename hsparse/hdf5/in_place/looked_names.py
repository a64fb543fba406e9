"""Detect HDF5 files without an HDF5 suffix in a remote place by their first bytes; results are cached by etag."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from itertools import islice

from hsparse.bounded_cache import BoundedCache
from hsparse.concurrency.gathering import gather_each
from hsparse.errors import Conflict, Forbidden, NotFound
from hsparse.hdf5.format.superblock import SIGNATURE
from hsparse.hdf5.in_place.folders import FileState

MOST_LOOKED = 1000
"""Most files without an HDF5 suffix that one listing examines; further files are served by name, but not listed."""
LOOKED_AT_ONCE = 16
MOST_REMEMBERED = 16 * 1024 * 1024


class LookedNames:
    """A cache of whether files are HDF5 files, judged by their first bytes, which `begin(path, state, size)` reads."""

    def __init__(self, begin: Callable[[str, FileState, int], Awaitable[bytes]]) -> None:
        self._begin = begin
        self._known: BoundedCache[str, bool] = BoundedCache(MOST_REMEMBERED)

    async def is_hdf5(self, path: str, state: FileState) -> bool:
        """Return whether a file begins with HDF5's signature; each state of a file is read once."""
        key = f"{path}\0{state.etag}"
        known = self._known.use(key)
        if known is None:
            known = False
            if state.size >= len(SIGNATURE):
                known = await self._begin(path, state, len(SIGNATURE)) == SIGNATURE
            self._known.keep(key, known, 2 * len(key))
        return known

    async def among(self, files: Mapping[str, FileState]) -> dict[str, FileState]:
        """Return the items of `files` that are HDF5 files; examine at most `MOST_LOOKED` files not yet cached."""

        async def look(path: str) -> bool:
            try:
                return await self.is_hdf5(path, files[path])
            except (Conflict, NotFound, Forbidden):
                return False  # a removed or protected file must not fail the listing

        known = {path for path in files if f"{path}\0{files[path].etag}" in self._known}
        paths = [*known, *islice((path for path in files if path not in known), MOST_LOOKED)]
        found = await gather_each(look, paths, LOOKED_AT_ONCE)
        return {path: files[path] for path, is_file in zip(paths, found, strict=True) if is_file}
