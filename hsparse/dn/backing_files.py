"""The backing files of file-backed datasets, read by byte ranges; a file that was changed is refused."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from types import MappingProxyType

from hsparse.errors import BadRequest, Conflict, Moved, NotFound
from hsparse.format.checksum import crc32
from hsparse.model.file_backed import NO_HEAD, BackingFile, file_key, file_reference
from hsparse.storage.object_store import ObjectStore, current_etag

HEAD_BYTES = 4096
"""The first bytes, by whose checksum a file is recognised: HDF5's superblock, with the file's size, and root group."""
MAX_HEADS = 10_000
"""The most file states whose head's checksum is remembered."""


class BackingFiles:
    """The backing files in one store, and in those of other buckets that the node has."""

    def __init__(self, store: ObjectStore, others: Mapping[str, ObjectStore] = MappingProxyType({})) -> None:
        self._store = store
        self._others = others
        self._etags: OrderedDict[tuple[str, str], str] = OrderedDict()
        """The last etags of files that were changed after they were linked."""
        self._heads: OrderedDict[tuple[str, str, str], int] = OrderedDict()
        self._inspections: dict[tuple[str, str], asyncio.Task[tuple[str, int]]] = {}

    def _place(self, uri: str) -> tuple[ObjectStore, str]:
        """Return the store of a file and its key; `Forbidden` for a bucket that the node does not have."""
        bucket, key = file_reference(uri, self._store.name)
        other = self._others.get(bucket)
        return (self._store, file_key(uri, self._store.name)) if other is None else (other, key)

    async def inspect(self, uri: str) -> BackingFile:
        """Return a file as it is now; `NotFound` when there is none, `BadRequest` when it cannot back a dataset.

        Concurrent calls for one file, as for its datasets, share one request (single flight).
        """
        store, key = self._place(uri)
        name = store.name, key
        inspection = self._inspections.get(name)
        if inspection is None:
            inspection = self._inspections[name] = asyncio.create_task(self._inspect(store, key))
            inspection.add_done_callback(
                lambda task: self._inspections.pop(name) and (task.cancelled() or task.exception())
            )
        try:
            etag, head = await asyncio.shield(inspection)
        finally:
            del inspection  # an error has this frame, and would have itself
        return BackingFile(uri, etag, head)

    async def _inspect(self, store: ObjectStore, key: str) -> tuple[str, int]:
        """Return a file's etag and the checksum of its head."""
        try:
            stored = await store.get_range(key, 0, HEAD_BYTES)
        except NotFound as error:
            raise NotFound(
                f"There is no file {key!r} in {store.name!r}: put it there before linking to it."
            ) from error
        return stored.etag, self._remember(store, key, stored.etag, stored.data)

    async def read(self, file: BackingFile, start: int, stop: int, *, exact: bool = False) -> bytes:
        """Return bytes `start` up to and without `stop`; `Conflict` names the file that does not have them.

        `NotFound` for a file that is not there and was never seen. With `exact`, `Moved` where the file has another
        etag. A file with `NO_HEAD` that had another etag the last time is not read again for that.
        """
        store, key = self._place(file.uri)
        if file.head == NO_HEAD and self._etags.get((store.name, key), file.etag) != file.etag:
            await self._require_unchanged(file, store, key)
        try:
            stored = await store.get_range(key, start, stop - start)
        except NotFound as error:
            if not file.etag:
                raise NotFound(
                    f"The data is in the file {key!r}, which is not in {store.name!r}: put it there."
                ) from error
            raise Conflict(
                f"The data is in the file {key!r}, which is not in {store.name!r} any more; put it back."
            ) from error
        except BadRequest as error:
            raise Conflict(
                f"The file {key!r} does not have the data it was linked for: {error.message}"
            ) from error
        if exact and file.etag != stored.etag:
            raise Moved(f"The file {key!r} was changed.")
        if file.etag not in ("", stored.etag):
            self._etags[store.name, key] = stored.etag
            if len(self._etags) > MAX_HEADS:
                self._etags.popitem(last=False)
            await self._compare(file, store, key, stored.etag)
        if len(stored.data) != stop - start:
            raise Conflict(
                f"The file {key!r} ends at byte {start + len(stored.data)}; the data it was linked for ends at "
                f"{stop}."
            )
        return stored.data

    async def _compare(self, file: BackingFile, store: ObjectStore, key: str, etag: str) -> None:
        """Raise `Conflict` when the file's state `etag` does not begin as it did when the dataset was created."""
        head = self._heads.get((store.name, key, etag))
        if head is None and file.head != NO_HEAD:
            stored = await store.get_range(key, 0, HEAD_BYTES)
            head = self._remember(store, key, stored.etag, stored.data) if stored.etag == etag else None
        if head != file.head:
            raise _changed(key)

    async def _require_unchanged(self, file: BackingFile, store: ObjectStore, key: str) -> None:
        if await current_etag(store, key) not in (None, file.etag):
            raise _changed(key)
        self._etags.pop((store.name, key), None)

    def _remember(self, store: ObjectStore, key: str, etag: str, data: bytes) -> int:
        head = self._heads[store.name, key, etag] = crc32(data)
        if len(self._heads) > MAX_HEADS:
            self._heads.popitem(last=False)
        return head


def _changed(key: str) -> Conflict:
    return Conflict(
        f"The file {key!r} was changed after datasets were linked to it; link to it again, or put back what it was."
    )
