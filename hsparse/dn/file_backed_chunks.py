"""Chunks of file-backed datasets: read by byte ranges of the backing files, assembled, and cached.

`BackingFiles` reads the byte ranges, and refuses files that were changed after datasets were linked to them.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from hashlib import blake2b
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.bounded_cache import BoundedCache
from hsparse.compute import compute
from hsparse.concurrency.gathering import gather_all, gather_each
from hsparse.concurrency.memory_budget import MemoryBudget
from hsparse.concurrency.request_trace import count_hits, count_loads
from hsparse.concurrency.single_flight import SingleFlight
from hsparse.dn.cache import Cache
from hsparse.errors import BadRequest, Conflict, Corrupt, Moved, NotFound
from hsparse.format.codec_library import crc32
from hsparse.format.file_backed import (
    MAX_GAP,
    ChunkPieces,
    CoalescedRange,
    coalesce_ranges,
    max_piece_size,
    place_piece,
    place_start,
)
from hsparse.format.kinds.dense import read_detached
from hsparse.format.piece_decoding import decode_piece
from hsparse.model.file_backed import NO_HEAD, BackingFile, file_key, file_reference
from hsparse.storage.object_store import ObjectStore, current_etag
from hsparse.wire.chunk_info_message import ReadFileBacked, ReadPiece

HEAD_BYTES = 4096
"""The length of a file's head, whose checksum identifies the file: HDF5's superblock, file size and root group."""
MAX_HEADS = 10_000
"""The most file states whose head checksum is remembered."""


class BackingFiles:
    """The backing files in the node's store, and in the stores of the node's other buckets."""

    def __init__(self, store: ObjectStore, others: Mapping[str, ObjectStore] = MappingProxyType({})) -> None:
        self._store = store
        self._others = others
        self._etags: BoundedCache[tuple[str, str], str] = BoundedCache.of_entries(MAX_HEADS)
        """The last etags of files that were changed after datasets were linked to them."""
        self._heads: BoundedCache[tuple[str, str, str], int] = BoundedCache.of_entries(MAX_HEADS)
        self._inspections: SingleFlight[tuple[str, str], tuple[str, int]] = SingleFlight()

    def _place(self, uri: str) -> tuple[ObjectStore, str]:
        """Return a pair: the store and key of a file. Raise `Forbidden` for a bucket that the node does not have."""
        bucket, key = file_reference(uri, self._store.name)
        other = self._others.get(bucket)
        return (self._store, file_key(uri, self._store.name)) if other is None else (other, key)

    async def inspect(self, uri: str) -> BackingFile:
        """Return a file's current state; raise `NotFound` if it is missing, `BadRequest` if it cannot back a dataset.

        Concurrent calls for one file, for example for several of its datasets, share one request (single flight).
        """
        store, key = self._place(uri)
        etag, head = await self._inspections.run((store.name, key), lambda: self._inspect(store, key))
        return BackingFile(uri, etag, head)

    async def _inspect(self, store: ObjectStore, key: str) -> tuple[str, int]:
        """Return a pair: a file's etag and the checksum of its head."""
        try:
            stored = await store.get_range(key, 0, HEAD_BYTES)
        except NotFound as error:
            raise NotFound(
                f"There is no file {key!r} in {store.name!r}: put it there before linking to it."
            ) from error
        return stored.etag, self._remember(store, key, stored.etag, stored.data)

    async def read(self, file: BackingFile, start: int, stop: int, *, exact: bool = False) -> bytes:
        """Return the bytes from `start` up to `stop`; raise `Conflict` if the file is missing, changed or too short.

        If `file` has no etag, a missing file raises `NotFound`. With `exact`, an etag other than `file.etag` raises
        `Moved`. If a file with `NO_HEAD` had another etag at an earlier read, its etag is checked first.
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
                f"The file {key!r} lacks data of datasets that are linked to it: {error.message}"
            ) from error
        if exact and file.etag != stored.etag:
            raise Moved(f"The file {key!r} was changed; inspect it again.")
        if file.etag not in ("", stored.etag):
            self._etags.keep((store.name, key), stored.etag)
            await self._compare(file, store, key, stored.etag)
        if len(stored.data) != stop - start:
            raise Conflict(
                f"The file {key!r} ends at byte {start + len(stored.data)}, but data of datasets that are linked to "
                f"it ends at {stop}; put the whole file back."
            )
        return stored.data

    async def _compare(self, file: BackingFile, store: ObjectStore, key: str, etag: str) -> None:
        """Raise `Conflict` if the file with this `etag` has another head than when the dataset was created."""
        head = self._heads.get((store.name, key, etag))
        if head is None and file.head != NO_HEAD:
            stored = await store.get_range(key, 0, HEAD_BYTES)
            head = self._remember(store, key, stored.etag, stored.data) if stored.etag == etag else None
        if head != file.head:
            raise _changed(key)

    async def _require_unchanged(self, file: BackingFile, store: ObjectStore, key: str) -> None:
        if await current_etag(store, key) not in (None, file.etag):
            raise _changed(key)
        self._etags.forget((store.name, key))

    def _remember(self, store: ObjectStore, key: str, etag: str, data: bytes) -> int:
        head = crc32(data)
        self._heads.keep((store.name, key, etag), head)
        return head


def _changed(key: str) -> Conflict:
    return Conflict(
        f"The file {key!r} was changed after datasets were linked to it; link to it again, or put the old file back."
    )


MIB = 1024 * 1024
BYTES_AT_ONCE = 32 * MIB
"""How many bytes of one message's chunks are assembled at a time."""
WORK_AT_ONCE = 128 * MIB
"""Memory, in bytes, that all messages share for chunks and for the ranges read for them."""
RANGES_AT_ONCE = 16
DECODE_BATCH = MIB
"""Bytes of pieces that one call in a thread decodes; a small batch leaves threads for other ranges."""
PIECE_BYTES = 64
"""The work on one row of `ChunkPieces`, expressed in bytes for `compute`."""

Array = NDArray[Any]


class FileBackedChunk:
    """A `CacheEntry` with an assembled chunk, or with the task that assembles it."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.value: Array | None = None
        self.loading: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        return self.loading is not None

    @property
    def nbytes(self) -> int:
        return len(self.key) + (0 if self.value is None else self.value.nbytes)

    def invalidate(self, kept: Callable[[str], bool]) -> None:
        """Do nothing: these chunks never change."""

    async def settle(self) -> None:
        """Return at once: these chunks never change."""

    async def drain(self) -> None:
        if self.loading is not None:
            await asyncio.wait([self.loading])


class FileBackedChunks:
    """Reads file-backed chunks, each assembled from pieces of files, over the node's cache and backing files."""

    def __init__(self, files: BackingFiles, cache: Cache) -> None:
        self.files = files
        self._cache = cache
        self._working = MemoryBudget(WORK_AT_ONCE)

    async def read_piece(self, message: ReadPiece) -> NDArray[np.uint8]:
        """Answer `ReadPiece`: return bytes of a backing file."""
        stop = message.offset + message.size
        return np.frombuffer(
            await self.files.read(message.file, message.offset, stop, exact=message.exact), np.uint8
        )

    async def read(self, message: ReadFileBacked) -> tuple[Array | None, ...]:
        """Answer `ReadFileBacked`: return each selection's values, or None for a chunk without pieces (file ranges)."""
        _check(message)
        count = len(message.selections)
        result: list[Array | None] = [None] * count
        order = np.lexsort(message.pieces.firsts(count)[::-1])
        order = order[message.pieces.counts(count)[order] > 0]
        size = math.prod(message.spec.dims) * message.spec.dtype.itemsize
        step = max(1, BYTES_AT_ONCE // size)
        for first in range(0, len(order), step):
            batch = order[first : first + step]
            values = await self._batch(message, batch, size)
            for place, value in zip(batch.tolist(), values, strict=True):
                result[place] = read_detached(value, message.selections[place].selection)
        return tuple(result)

    async def _batch(self, message: ReadFileBacked, batch: NDArray[np.intp], size: int) -> list[Array]:
        """Return the whole chunks, of `size` bytes each, that the selections with the indices `batch` select from."""
        keys = _keys(message, batch)
        with ExitStack() as uses:
            chunks = [uses.enter_context(self._cache.use(key, partial(FileBackedChunk, key))) for key in keys]
            count_hits(sum(chunk.value is not None for chunk in chunks))
            while any(chunk.value is None for chunk in chunks):
                missing = [
                    i for i, chunk in enumerate(chunks) if chunk.value is None and chunk.loading is None
                ]
                # Two selections may be of one chunk, which has one entry in the cache.
                missing = list({id(chunks[i]): i for i in missing}.values())
                others = {chunk.loading for chunk in chunks if chunk.loading is not None}
                own = (
                    self._start(message, batch[missing], [chunks[i] for i in missing], size)
                    if missing
                    else None
                )
                await asyncio.wait(others | ({own} if own else set()))
                try:
                    if own is not None:
                        own.result()
                finally:
                    del own, others  # breaks the cycle task -> error -> traceback -> this frame
            return [chunk.value for chunk in chunks if chunk.value is not None]

    def _start(
        self, message: ReadFileBacked, numbers: NDArray[np.intp], chunks: list[FileBackedChunk], size: int
    ) -> asyncio.Task[None]:
        """Load chunks in a separate task, which continues if the request that started it is cancelled."""
        count_loads(len(chunks))
        task = asyncio.create_task(self._load(message, message.pieces.of(numbers), chunks, size))
        for chunk in chunks:
            chunk.loading = task
        task.add_done_callback(lambda task: task.cancelled() or task.exception())
        return task

    async def _load(
        self, message: ReadFileBacked, pieces: ChunkPieces, chunks: list[FileBackedChunk], size: int
    ) -> None:
        try:
            nbytes = size * len(chunks) + pieces.span(MAX_GAP)
            step = max(
                1,
                DECODE_BATCH // (math.prod(message.piece or message.spec.dims) * message.spec.dtype.itemsize),
            )
            async with self._working.hold(nbytes):
                work = size * len(chunks) + PIECE_BYTES * len(pieces.size)
                ranges, arrays = await compute(work, _prepared, message, pieces, len(chunks))

                async def read(found: CoalescedRange) -> None:
                    data = await self.files.read(message.files[found.file], found.start, found.stop)
                    batches = [found.rows[at : at + step] for at in range(0, len(found.rows), step)]
                    await gather_all(
                        compute(size * len(rows), _decode, message, pieces, found, rows, data, arrays)
                        for rows in batches
                    )

                await gather_each(read, ranges, RANGES_AT_ONCE)
            for chunk, array in zip(chunks, arrays, strict=True):
                array.flags.writeable = False
                chunk.value = array
        finally:
            for chunk in chunks:
                chunk.loading = None


def _check(message: ReadFileBacked) -> None:
    """Raise `Conflict` if a piece is longer than any filter makes it, `BadRequest` if it belongs to no selection."""
    pieces, spec = message.pieces, message.spec
    itemsize = spec.dtype.itemsize
    longest = max_piece_size(message.piece or spec.dims, itemsize, spec.filters[0])
    if len(pieces.size) and int(pieces.size.max()) > longest:
        raise Conflict(
            f"The index of chunks of {spec.dataset} has a chunk of {int(pieces.size.max())} bytes, but a chunk takes "
            f"at most {longest}; check the backing file for damage."
        )
    if len(pieces.chunk) and int(pieces.chunk.max()) >= len(message.selections):
        raise BadRequest("Each piece must belong to one of the chunk selections.")


def _keys(message: ReadFileBacked, batch: NDArray[np.intp]) -> list[str]:
    """Return the cache key of each selection's chunk: the chunk's key and a digest of its files and pieces."""
    pieces = message.pieces.of(batch)
    order = np.argsort(pieces.chunk, kind="stable")
    bounds = np.searchsorted(pieces.chunk[order], np.arange(len(batch) + 1)).tolist()
    columns = [
        column[order] for column in (pieces.place, pieces.file, pieces.offset, pieces.size, pieces.mask)
    ]
    # The digest covers the files' state: a chunk read from a changed file must not be served for the linked state.
    uris = "\n".join(f"{file.uri}{file.etag}{file.head}" for file in message.files).encode()
    keys = []
    for place, number in enumerate(batch.tolist()):
        rows = slice(bounds[place], bounds[place + 1])
        digest = blake2b(uris, digest_size=12)
        for column in columns:
            digest.update(np.ascontiguousarray(column[rows]).tobytes())
        keys.append(f"{message.spec.key(message.selections[number].scaled)}@{digest.hexdigest()}")
    return keys


def _prepared(
    message: ReadFileBacked, pieces: ChunkPieces, count: int
) -> tuple[list[CoalescedRange], list[Array]]:
    """Return a pair: the ranges to read, and an array per chunk, filled with the fill value if pieces are missing."""
    spec = message.spec
    dtype, fill = spec.dtype, spec.fill_value
    whole = math.prod(d // p for d, p in zip(spec.dims, message.piece, strict=True)) if message.piece else 0
    return coalesce_ranges(pieces), [
        np.empty(spec.dims, dtype) if found == whole else np.full(spec.dims, fill, dtype)
        for found in pieces.counts(count).tolist()
    ]


def _decode(
    message: ReadFileBacked,
    pieces: ChunkPieces,
    found: CoalescedRange,
    rows: list[int],
    data: bytes,
    arrays: list[Array],
) -> None:
    """Decode the pieces `rows` of a range into the arrays of their chunks."""
    spec, view = message.spec, memoryview(data)
    dtype = spec.dtype
    for row in rows:
        start = int(pieces.offset[row]) - found.start
        stored = view[start : start + int(pieces.size[row])]
        array = arrays[int(pieces.chunk[row])]
        if not message.piece:
            place_start(array, stored)
            continue
        try:
            piece = decode_piece(stored, message.piece, dtype, spec.filters[0], int(pieces.mask[row]))
        except Corrupt as error:
            # The file is damaged, or has other filters or another type than the dataset. A 5xx would be retried.
            raise Conflict(
                f"The file {message.files[found.file].uri!r} has no chunk of {spec.dataset} at byte "
                f"{found.start + start}, {len(stored)} bytes long: {error.message}"
            ) from error
        place_piece(array, pieces.place[row].tolist(), piece)
