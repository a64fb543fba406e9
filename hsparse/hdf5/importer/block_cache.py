"""Read small ranges of a remote file through a cache of blocks, so that adjacent ranges need only one request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from threading import Lock

from hsparse.bounded_cache import BoundedCache
from hsparse.hdf5.format.file_fields import ByteRange

BLOCK_BYTES = 1024 * 1024
MAX_BLOCKS = 64
"""`BLOCK_BYTES` is the size of a block in bytes; `MAX_BLOCKS` is the maximum number of cached blocks."""
MAX_CACHED_RANGE_BYTES = 256 * 1024
"""The maximum size in bytes of a range that is read through cached blocks; larger ranges are requested directly."""


class Blocks:
    """A thread-safe cache of the most recently used blocks of any number of files, at most `most` blocks in total."""

    def __init__(self, most: int | None = None) -> None:
        self._lock = Lock()
        self._blocks: BoundedCache[tuple[object, int], Future[bytes]] = BoundedCache.of_entries(
            most or MAX_BLOCKS
        )

    def get(self, file: object, number: int, begin: Callable[[], Future[bytes]]) -> Future[bytes]:
        """Return the future of a block's bytes; call `begin` if the block is not cached, or if its fetch has failed."""
        with self._lock:
            found = self._blocks.use((file, number))
            if found is None or (found.done() and (found.cancelled() or found.exception() is not None)):
                found = begin()
                self._blocks.keep((file, number), found)
            return found

    def add(self, file: object, number: int, data: bytes) -> None:
        """Add the bytes of block `number` of a file, unless the block is cached already."""
        found = Future[bytes]()
        found.set_result(data)
        self.get(file, number, lambda: found)


class BlockCache:
    """Thread-safe reads of a file of `size` bytes through cached blocks; several files may share `blocks`.

    `begin` starts to fetch a range, and returns a future of the bytes of the range.
    """

    def __init__(
        self, size: int, begin: Callable[[ByteRange], Future[bytes]], blocks: Blocks | None = None
    ) -> None:
        self._size = size
        self._begin = begin
        self._blocks = blocks or Blocks()

    def read(self, wanted: Sequence[ByteRange]) -> list[bytes]:
        """Return the bytes of ranges inside the file; all ranges are requested before the first is awaited."""
        parts = list(map(self._parts, wanted))
        return [_joined(one, part) for one, part in zip(wanted, parts, strict=True)]

    def add(self, start: int, data: memoryview) -> None:
        """Add the blocks that are completely contained in `data`, the file's bytes from `start` on."""
        stop = start + len(data)
        for number in range(-(-start // BLOCK_BYTES), -(-self._size // BLOCK_BYTES)):
            first, end = number * BLOCK_BYTES - start, min((number + 1) * BLOCK_BYTES, self._size) - start
            if end > stop - start:
                break
            self._blocks.add(self, number, bytes(data[first:end]))

    def _parts(self, wanted: ByteRange) -> list[Future[bytes]]:
        """Return a list of futures: the bytes of a large range, or of each block that a small range overlaps."""
        if wanted.size > MAX_CACHED_RANGE_BYTES:
            return [self._begin(wanted)]
        stop = wanted.address + wanted.size
        return [
            self._block(number) for number in range(wanted.address // BLOCK_BYTES, -(-stop // BLOCK_BYTES))
        ]

    def _block(self, number: int) -> Future[bytes]:
        start = number * BLOCK_BYTES
        wanted = ByteRange(start, min(BLOCK_BYTES, self._size - start))
        return self._blocks.get(self, number, lambda: self._begin(wanted))


def _joined(wanted: ByteRange, parts: list[Future[bytes]]) -> bytes:
    if wanted.size > MAX_CACHED_RANGE_BYTES:
        return parts[0].result()
    data = b"".join(part.result() for part in parts)
    start = wanted.address % BLOCK_BYTES
    return data[start : start + wanted.size]
