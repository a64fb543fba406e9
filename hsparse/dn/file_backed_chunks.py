"""Chunks of file-backed datasets: read by byte ranges of the backing files, assembled, and cached."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.concurrency.gather import gather_all, gather_each
from hsparse.concurrency.memory_budget import MemoryBudget
from hsparse.concurrency.offload import OffloadPool
from hsparse.concurrency.request_trace import count_hits, count_loads
from hsparse.dn.backing_files import BackingFiles
from hsparse.dn.cache import Cache
from hsparse.dn.fences import Fences
from hsparse.errors import BadRequest, Conflict, Corrupt
from hsparse.format.file_backed import (
    ChunkPieces,
    CoalescedRange,
    coalesce_ranges,
    decode_piece,
    max_piece_size,
    place_piece,
    place_start,
)
from hsparse.format.kinds.dense import read_detached
from hsparse.model.file_backed import BackingFile
from hsparse.wire.file_backed_message import ReadFileBacked, ReadPiece

MIB = 1024 * 1024
BATCH = 32 * MIB
"""Bytes of one message's chunks that are assembled at a time."""
WORK_AT_ONCE = 128 * MIB
"""Bytes of chunks, and of ranges read for them, that all messages together may take at a time."""
RANGES_AT_ONCE = 16
DECODE_BATCH = MIB
"""Bytes of pieces that one call in a thread decodes, so that other ranges get threads too."""
PIECE_BYTES = 64
"""The work on one row of `ChunkPieces`, in bytes."""

Array = NDArray[Any]


class FileBackedChunk:
    """A `CacheEntry` with an assembled chunk, or one that a task assembles."""

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

    def doubt(self, kept: Callable[[str], bool]) -> None:
        """Nothing to do: these chunks are never changed."""

    async def settle(self) -> None:
        """Return at once: these chunks are never changed."""

    async def drain(self) -> None:
        if self.loading is not None:
            await asyncio.wait([self.loading])


class FileBackedChunks:
    """File-backed chunks by the pieces that they are assembled of, over the node's cache and files."""

    def __init__(self, files: BackingFiles, cache: Cache, workers: OffloadPool, fences: Fences) -> None:
        self._files = files
        self._cache = cache
        self._workers = workers
        self._fences = fences
        self._working = MemoryBudget(WORK_AT_ONCE)

    async def inspect(self, uri: str) -> BackingFile:
        """Answer `InspectFile`."""
        return await self._files.inspect(uri)

    async def read_piece(self, message: ReadPiece) -> NDArray[np.uint8]:
        """Answer `ReadPiece`."""
        stop = message.offset + message.size
        return np.frombuffer(
            await self._files.read(message.file, message.offset, stop, exact=message.exact), np.uint8
        )

    async def read(self, message: ReadFileBacked) -> tuple[Array | None, ...]:
        """Answer `ReadFileBacked`; chunks are assembled in the order of their first pieces in the files."""
        self._fences.check(message.spec)
        _check(message)
        count = len(message.selections)
        result: list[Array | None] = [None] * count
        order = np.lexsort(message.pieces.firsts(count)[::-1])
        order = order[message.pieces.counts(count)[order] > 0]
        size = math.prod(message.spec.dims) * message.spec.dtype.itemsize
        step = max(1, BATCH // size)
        for first in range(0, len(order), step):
            batch = order[first : first + step]
            values = await self._batch(message, batch, size)
            for place, value in zip(batch.tolist(), values, strict=True):
                result[place] = read_detached(value, message.selections[place].selection)
        return tuple(result)

    async def _batch(self, message: ReadFileBacked, batch: NDArray[np.intp], size: int) -> list[Array]:
        """Return the chunks of some selections, by their numbers; each has `size` bytes."""
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
                    del own, others  # an error has this frame, and would have itself
            return [chunk.value for chunk in chunks if chunk.value is not None]

    def _start(
        self, message: ReadFileBacked, numbers: NDArray[np.intp], chunks: list[FileBackedChunk], size: int
    ) -> asyncio.Task[None]:
        """Load chunks in a task of their own, which goes on when the request that started it is cancelled."""
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
            ranges = await self._workers.run(PIECE_BYTES * len(pieces.chunk), coalesce_ranges, pieces)
            nbytes = size * len(chunks) + sum(found.stop - found.start for found in ranges)
            step = max(
                1,
                DECODE_BATCH // (math.prod(message.piece or message.spec.dims) * message.spec.dtype.itemsize),
            )
            async with self._working.hold(nbytes):
                arrays = await self._workers.run(size * len(chunks), _blank, message, pieces, len(chunks))

                async def read(found: CoalescedRange) -> None:
                    data = await self._files.read(message.files[found.file], found.start, found.stop)
                    batches = [found.rows[at : at + step] for at in range(0, len(found.rows), step)]
                    await gather_all(
                        self._workers.run(
                            size * len(rows), _decode, message, pieces, found, rows, data, arrays
                        )
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
    """Raise `Conflict` for pieces longer than any filter makes them: they would fill the memory."""
    pieces, spec = message.pieces, message.spec
    itemsize = spec.dtype.itemsize
    longest = max_piece_size(message.piece or spec.dims, itemsize, spec.filters[0])
    if len(pieces.size) and int(pieces.size.max()) > longest:
        raise Conflict(
            f"A chunk of {spec.dataset} is said to take {int(pieces.size.max())} bytes in its file; it can take "
            f"at most {longest}."
        )
    if len(pieces.chunk) and int(pieces.chunk.max()) >= len(message.selections):
        raise BadRequest("A piece belongs to none of the chunk selections.")


def _keys(message: ReadFileBacked, batch: NDArray[np.intp]) -> list[str]:
    """Return the cache keys of selections' chunks, with a digest of the pieces that they are assembled of."""
    pieces = message.pieces.of(batch)
    order = np.argsort(pieces.chunk, kind="stable")
    bounds = np.searchsorted(pieces.chunk[order], np.arange(len(batch) + 1)).tolist()
    columns = [
        column[order] for column in (pieces.place, pieces.file, pieces.offset, pieces.size, pieces.mask)
    ]
    # A chunk that was read of a changed file is not for those who may see the file as it was linked alone.
    uris = "\n".join(f"{file.uri}{file.etag}{file.head}" for file in message.files).encode()
    keys = []
    for place, number in enumerate(batch.tolist()):
        rows = slice(bounds[place], bounds[place + 1])
        digest = blake2b(uris, digest_size=12)
        for column in columns:
            digest.update(np.ascontiguousarray(column[rows]).tobytes())
        keys.append(f"{message.spec.key(message.selections[number].scaled)}@{digest.hexdigest()}")
    return keys


def _blank(message: ReadFileBacked, pieces: ChunkPieces, count: int) -> list[Array]:
    """Return new arrays for chunks, with the fill value where pieces are missing."""
    spec = message.spec
    dtype, fill = spec.dtype, spec.fill_value
    whole = math.prod(d // p for d, p in zip(spec.dims, message.piece, strict=True)) if message.piece else 0
    return [
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
    """Decode some of the pieces in a range into their chunks' arrays."""
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
            # The dataset may have been created with other filters or another type than the file has, or the file is
            # damaged. It is no 5xx, which clients would retry.
            raise Conflict(
                f"The file {message.files[found.file].uri!r} has no chunk of {spec.dataset} at byte "
                f"{found.start + start}, {len(stored)} bytes long: {error.message}"
            ) from error
        place_piece(array, pieces.place[row].tolist(), piece)
