"""The objects of chunks as they are stored, for clients that decode them: checked once, then served from the cache."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from hsparse.concurrency.gather import gather_each
from hsparse.concurrency.offload import OffloadPool
from hsparse.dn.cache import Cache
from hsparse.dn.chunk_versions import ChunkVersions
from hsparse.dn.fences import Fences
from hsparse.errors import BadRequest, Corrupt, NotFound
from hsparse.format.structured.footer import MAX_FOOTER, Footer, unseal
from hsparse.model.ids import chunk_key
from hsparse.storage.object_store import ObjectStore
from hsparse.wire.chunk_info_message import ReadObjectBytes

AT_ONCE = 16
"""Objects of one message that are read at the same time."""
CHECK_SPEED = 64
"""How many times as fast as decoding a checksum is: only large objects are worth a thread."""
SUFFIX = ".bytes"
"""What follows a chunk's key in the key of its bytes in the cache."""


class CachedBytes:
    """A `CacheEntry` with the bytes of an object of the etag `etag`, read when the dataset's chunks had `version`."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.etag = self.version = ""
        self.data = b""

    @property
    def busy(self) -> bool:
        return False

    @property
    def nbytes(self) -> int:
        return len(self.key) + len(self.data)

    def doubt(self, kept: Callable[[str], bool]) -> None:
        """Read the object again, unless this node owned the chunk all the time: another one may have changed it."""
        if not kept(self.key.removesuffix(SUFFIX)):
            self.version = ""

    async def settle(self) -> None:
        """Return at once: nothing is changed here."""

    async def drain(self) -> None:
        """Return at once."""


class ChunkBytes:
    """Objects of chunks by their etags, over the node's store and cache.

    An object is served from the cache until this node changes a chunk of the dataset: what was replaced or erased is
    not to be had by its old etag.
    """

    def __init__(
        self, store: ObjectStore, cache: Cache, workers: OffloadPool, fences: Fences, versions: ChunkVersions
    ) -> None:
        self._store = store
        self._versions = versions
        self._cache = cache
        self._workers = workers
        self._fences = fences

    async def read(self, message: ReadObjectBytes) -> tuple[NDArray[np.uint8] | None, ...]:
        """Answer `ReadObjectBytes`: at most one get for each chunk."""
        spec = message.spec
        self._fences.check(spec)
        version = self._versions.of(spec.dataset)

        async def read(item: tuple[list[int], str, int]) -> NDArray[np.uint8] | None:
            scaled, etag, size = item
            key = chunk_key(spec.dataset, tuple(scaled))
            name = key + SUFFIX
            known = self._cache.get(name)
            if known is not None and (known.etag, known.version) == (etag, version):
                return np.frombuffer(known.data, np.uint8)
            data = await self._load(key, etag, size, spec.sparse)
            if data is None:
                return None
            with self._cache.use(name, lambda: CachedBytes(name)) as cached:
                cached.etag, cached.version, cached.data = etag, version, data
            return np.frombuffer(data, np.uint8)

        rows = zip(message.scaled.tolist(), message.etags, message.sizes.tolist(), strict=True)
        return tuple(await gather_each(read, rows, AT_ONCE))

    async def _load(self, key: str, etag: str, size: int, structured: bool) -> bytes | None:
        """Return an object of at most `size` bytes and a footer; None unless it has the etag."""
        try:
            stored = await self._store.get_range(key, 0, size + (MAX_FOOTER if structured else 0))
        except (NotFound, BadRequest):  # it is gone, or empty
            return None
        if stored.etag != etag or stored.size != len(stored.data):
            return None
        if structured:
            await check_sealed(self._workers, key, stored.data)
        return stored.data


async def check_sealed(workers: OffloadPool, key: str, data: bytes) -> tuple[memoryview, Footer]:
    """Return the content and the footer of a structured chunk; `Corrupt` if a byte is wrong, with the object's key."""
    try:
        return await workers.run(len(data) // CHECK_SPEED, unseal, data)
    except Corrupt as error:
        raise Corrupt(f"The chunk object {key} is corrupt: {error.message}") from error
