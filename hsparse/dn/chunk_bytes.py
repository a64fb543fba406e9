"""Stored bytes of chunks: whole objects for clients that decode them, footers, and encoded chunks.

`ChunkBytes` checks an object once and then serves it from the cache. `ChunkFooters` returns footers as columns.
`DirectChunks` reads and writes encoded chunks, as H5Dread_chunk and H5Dwrite_chunk and their structured forms do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.compute import compute
from hsparse.concurrency.gathering import gather_each
from hsparse.concurrency.memory_budget import MemoryBudget
from hsparse.dn.cache import Cache
from hsparse.dn.cached_object import Base, CachedObject, Encoded
from hsparse.dn.chunks import ChunkObjects
from hsparse.dn.membership.member_ownership import Accepted
from hsparse.dn.traced_store import ChunkVersions
from hsparse.errors import BadRequest, Corrupt, NotFound, Unsupported
from hsparse.format.chunk_rows import ChunkRows
from hsparse.format.chunk_spec import ChunkSpec, unknown_statistics
from hsparse.format.kinds.chunk_kind import open_direct_chunk
from hsparse.format.kinds.registry import kind_of
from hsparse.format.plan.grid import Grid
from hsparse.format.structured.container import MAX_FOOTER, Footer, read_footer, unseal
from hsparse.storage.object_store import ObjectStore, Stored
from hsparse.wire.chunk_info_message import DirectChunk, ReadDirect, ReadObjectBytes, WriteDirect

AT_ONCE = 16
"""The most objects of one message that are read concurrently."""
SUFFIX = ".bytes"
"""The bytes of a chunk are cached under the key of its object followed by this suffix."""


class CachedBytes:
    """A `CacheEntry` with the bytes of the object that has `etag`, read when the dataset's chunks had `version`."""

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

    def invalidate(self, kept: Callable[[str], bool]) -> None:
        """Read the object again unless this node owned the chunk throughout: another node may have changed it."""
        if not kept(self.key.removesuffix(SUFFIX)):
            self.version = ""

    async def settle(self) -> None:
        """Return at once: the entry has no changes."""

    async def drain(self) -> None:
        """Return at once: the entry does no work."""


class ChunkBytes:
    """Reads whole objects of chunks from the node's cache or store, if they have the expected etags.

    A cached object is served until this node changes a chunk of the dataset, because replaced or erased bytes must not
    be readable by their old etag.
    """

    def __init__(self, store: ObjectStore, cache: Cache, versions: ChunkVersions) -> None:
        self._store = store
        self._versions = versions
        self._cache = cache

    async def read(self, message: ReadObjectBytes) -> tuple[NDArray[np.uint8] | None, ...]:
        """Answer `ReadObjectBytes`: return each object's bytes, or None if its etag or size differs; one get each."""
        spec = message.spec
        version = self._versions.of(spec.dataset)

        async def read(item: tuple[list[int], str, int]) -> NDArray[np.uint8] | None:
            scaled, etag, size = item
            key = spec.key(scaled)
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
        """Return an object's bytes, or None if it is missing, has another etag, or exceeds `size` and a footer."""
        try:
            stored = await self._store.get_range(key, 0, size + (MAX_FOOTER if structured else 0))
        except (NotFound, BadRequest):  # the object is gone or empty
            return None
        if stored.etag != etag or stored.size != len(stored.data):
            return None
        if structured:
            check_sealed(key, stored.data)
        return stored.data


def check_sealed(key: str, data: bytes) -> tuple[memoryview, Footer]:
    """Verify a structured chunk and return a pair: its content and footer. `Corrupt` names the object's key.

    Verifying 64 MB takes 3 ms.
    """
    try:
        return unseal(data)
    except Corrupt as error:
        raise Corrupt(f"The chunk object {key} is corrupt: {error.message}") from error


FOOTERS_AT_ONCE = 32


class ChunkFooters:
    """Reads the footers of chunks from cached objects or from the store."""

    def __init__(self, store: ObjectStore, cache: Cache) -> None:
        self._store = store
        self._cache = cache

    async def read(self, spec: ChunkSpec, rows: ChunkRows) -> tuple[NDArray[np.intp], ChunkRows]:
        """Return a pair: the indices of the `rows` whose chunks still exist, and new rows that describe their footers.

        The footer of a chunk that is in memory with the listed etag is not read from the store.
        """
        keys = [spec.key(scaled) for scaled in rows.scaled.tolist()]

        async def read(listed: tuple[str, str]) -> Stored | None:
            key, etag = listed
            cached: CachedObject[Any] | None = self._cache.peek(key)
            if cached is not None and (tail := cached.tail(etag)) is not None:
                return tail
            return await read_tail(self._store, key, MAX_FOOTER)

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


async def read_tail(store: ObjectStore, key: str, length: int) -> Stored | None:
    """Return the last `length` bytes of a chunk's object, or None if it is missing; raise `Corrupt` if it is empty."""
    try:
        return await store.get_range(key, -length)
    except NotFound:
        return None
    except BadRequest as error:
        raise Corrupt(f"The chunk object {key} is corrupt: it is empty; restore it from a copy.") from error


def read_chunk_footer(key: str, tail: Stored, spec: ChunkSpec) -> Footer:
    """Return the footer at the end of a chunk's object; raise `Corrupt` or `Unsupported` naming the object."""
    try:
        footer = read_footer(tail.data, tail.size)
        if len(footer.sections) != len(spec.filters):
            raise Corrupt(f"it has {len(footer.sections)} sections, but its dataset has {len(spec.filters)}.")
    except Corrupt as error:
        raise Corrupt(f"The chunk object {key} is corrupt: {error.message}") from error
    except Unsupported as error:
        raise Unsupported(f"The chunk object {key} cannot be read: {error.message}") from error
    return footer


def footer_columns(
    footers: Sequence[Footer], spec: ChunkSpec
) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64]]:
    """Return a triple with the contents of footers: the columns `sections`, `defined`, `statistics` of `ChunkRows`."""
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


class DirectChunks:
    """Reads encoded chunks from the node's store, and writes encoded chunks through its cached objects."""

    def __init__(self, store: ObjectStore, objects: ChunkObjects, pending: MemoryBudget) -> None:
        self._store = store
        self._objects = objects
        self._pending = pending

    async def read(self, message: ReadDirect) -> DirectChunk | None:
        """Answer `ReadDirect`: return a chunk's encoded bytes and row, or None; structured chunks are verified."""
        spec = message.spec
        key = spec.key(message.scaled)
        try:
            stored = await self._store.get(key)
        except NotFound:
            return None
        row = ChunkRows.of((message.scaled,), len(spec.dims), (stored.size,), (stored.etag,))
        if not spec.sparse:
            return DirectChunk(np.frombuffer(stored.data, np.uint8), row)
        content, footer = check_sealed(key, stored.data)
        row = row.described(*footer_columns([footer], spec))
        return DirectChunk(np.frombuffer(content, np.uint8), row)

    async def write(self, message: WriteDirect, accepted: Accepted | None = None) -> None:
        """Answer `WriteDirect`: check the encoded bytes, then put them like any write of a whole chunk."""
        kind, scaled = kind_of(message.spec), message.scaled
        grid = Grid(message.extent, kind.spec.dims)
        if not grid.holds(scaled):
            raise BadRequest(f"The chunk {list(scaled)} is outside the grid of {list(grid.counts)} chunks.")
        await self._objects.begin(kind.spec)
        self._objects.fences.check(kind.spec)
        nbytes = 2 * len(message.data) + kind.direct_bound(message.sections)
        self._objects.reservation(kind.spec, scaled).check(nbytes)
        async with self._pending.hold(nbytes):
            given = await compute(
                nbytes,
                open_direct_chunk,
                kind,
                message.data.tobytes(),
                message.sections,
                scaled,
                grid.clipped(scaled),
            )
            value = given.chunk if given.data is None else Encoded(given.chunk, given.data)
            weight = nbytes if given.data is None else 0  # encoded bytes need no more work
            await self._objects.apply(
                kind, scaled, lambda _: (value, None), weight, Base.IGNORED, accepted, nbytes
            )
