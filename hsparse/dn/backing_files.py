"""Files that datasets are linked to, read by ranges of bytes; a file that is not what it was is refused."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from hsparse.errors import BadRequest, Conflict, Moved, NotFound
from hsparse.format.checksum import crc32
from hsparse.model.file_backed import BackingFile, file_key
from hsparse.storage.object_store import ObjectStore

HEAD_BYTES = 4096
"""What a file is known again by: of HDF5 files these have its superblock, with its size, and its root group."""
LIMIT = 10_000
"""How many files' states are remembered as looked at."""


class BackingFiles:
    """The files of one store."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._heads: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._looks: dict[str, asyncio.Task[tuple[str, int]]] = {}

    async def inspect(self, uri: str) -> BackingFile:
        """Return a file as it is now; `NotFound` when there is none, `BadRequest` when it cannot be linked to.

        All who ask at once, as for the datasets of one file, share one look.
        """
        key = file_key(uri, self._store.name)
        look = self._looks.get(key)
        if look is None:
            look = self._looks[key] = asyncio.create_task(self._look(key))
            look.add_done_callback(
                lambda look: self._looks.pop(key) and (look.cancelled() or look.exception())
            )
        etag, head = await asyncio.shield(look)
        return BackingFile(uri, etag, head)

    async def _look(self, key: str) -> tuple[str, int]:
        """Return a file's etag and the checksum of its head."""
        try:
            stored = await self._store.get_range(key, 0, HEAD_BYTES)
        except NotFound as error:
            raise NotFound(
                f"There is no file {key!r} in {self._store.name!r}: put it there before linking to it."
            ) from error
        return stored.etag, self._remember(key, stored.etag, stored.data)

    async def read(self, file: BackingFile, start: int, stop: int, *, exact: bool = False) -> bytes:
        """Return bytes `start` up to and without `stop`; `Conflict` names the file that does not have them.

        With `exact`, `Moved` where the file has another etag.
        """
        key = file_key(file.uri, self._store.name)
        try:
            stored = await self._store.get_range(key, start, stop - start)
        except NotFound as error:
            raise Conflict(
                f"The data is in the file {key!r}, which is not in {self._store.name!r} any more; put it back."
            ) from error
        except BadRequest as error:
            raise Conflict(
                f"The file {key!r} does not have the data it was linked for: {error.message}"
            ) from error
        if exact and file.etag != stored.etag:
            raise Moved(f"The file {key!r} was changed.")
        if file.etag not in ("", stored.etag):
            await self._compare(file, key, stored.etag)
        if len(stored.data) != stop - start:
            raise Conflict(
                f"The file {key!r} ends at byte {start + len(stored.data)}; the data it was linked for ends at "
                f"{stop}."
            )
        return stored.data

    async def _compare(self, file: BackingFile, key: str, etag: str) -> None:
        """Raise `Conflict` when the file's state `etag` does not begin as the file did when it was linked to."""
        head = self._heads.get((key, etag))
        if head is None:
            stored = await self._store.get_range(key, 0, HEAD_BYTES)
            head = self._remember(key, stored.etag, stored.data) if stored.etag == etag else None
        if head != file.head:
            raise Conflict(
                f"The file {key!r} was changed after datasets were linked to it; link to it again, "
                "or put back what it was."
            )

    def _remember(self, key: str, etag: str, data: bytes) -> int:
        head = self._heads[key, etag] = crc32(data)
        if len(self._heads) > LIMIT:
            self._heads.popitem(last=False)
        return head
