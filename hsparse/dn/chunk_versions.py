"""The versions of datasets' chunks: a client that has the map of an unchanged dataset need not be sent it again.

Tests: tests/dn/test_chunk_versions.py, tests/sn/chunks/test_map_etag.py.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from hsparse.clock import Clock
from hsparse.concurrency.admission import Admission
from hsparse.dn.traced_store import StoreRequests, TracedStore
from hsparse.model.ids import chunk_prefix, chunk_prefix_of_key
from hsparse.storage.object_store import Buffer, Entry, ObjectStore

MAX_DATASETS = 100_000
"""The most datasets whose last change is remembered, those that changed last."""


class ChunkVersions:
    """Numbers the changes of chunks that this node makes. A version is of one run of the node."""

    def __init__(self, clock: Clock, limit: int = MAX_DATASETS) -> None:
        self._clock = clock
        self.begin_again()
        self._limit = limit
        self._count = 0
        self._forgotten = 0
        """The newest change of the datasets that are not remembered: it stands for all of them, so none is missed."""
        self._last: OrderedDict[str, int] = OrderedDict()

    def note(self, key: str) -> None:
        """Note that the chunk object of a key was changed; to be called before that is acknowledged."""
        folder = chunk_prefix_of_key(key)
        self._count += 1
        self._last[folder] = self._count
        self._last.move_to_end(folder)
        if len(self._last) > self._limit:
            _, self._forgotten = self._last.popitem(last=False)

    def begin_again(self) -> None:
        """Give all chunks new versions: others may have changed any of them."""
        self._run = self._clock.token(8).hex()

    def of(self, dataset: str) -> str:
        """Answer `GetChunkVersion`."""
        return f"{self._run}-{self._last.get(chunk_prefix(dataset), self._forgotten)}"


class VersionedStore(TracedStore):
    """A traced store that notes each put and delete, also one that failed: it may have been carried out."""

    def __init__(
        self,
        store: ObjectStore,
        versions: ChunkVersions,
        requests: StoreRequests | None = None,
        places: Admission | None = None,
    ) -> None:
        super().__init__(store, requests, places)
        self._versions = versions

    async def put(self, key: str, data: Buffer) -> str:
        try:
            return await super().put(key, data)
        finally:
            self._versions.note(key)

    async def put_if_absent(self, key: str, data: Buffer) -> str:
        try:
            return await super().put_if_absent(key, data)
        finally:
            self._versions.note(key)

    async def put_if_match(self, key: str, data: Buffer, etag: str) -> str:
        try:
            return await super().put_if_match(key, data, etag)
        finally:
            self._versions.note(key)

    async def delete(self, key: str) -> None:
        try:
            await super().delete(key)
        finally:
            self._versions.note(key)

    async def delete_if_match(self, key: str, etag: str) -> None:
        try:
            await super().delete_if_match(key, etag)
        finally:
            self._versions.note(key)

    async def delete_all(self, entries: Sequence[Entry]) -> list[bool]:
        try:
            return await super().delete_all(entries)
        finally:
            for entry in entries:
                self._versions.note(entry.key)
