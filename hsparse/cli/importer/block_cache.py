"""Small ranges of a file far away, taken from blocks: what is close together comes in one request."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from threading import Lock

from hsparse.format.hdf5.reads import ByteRange

BLOCK = 1024 * 1024
BLOCKS = 64
"""Blocks of so many bytes, and how many of them, that small ranges are taken from."""
SMALL = 256 * 1024
"""Bytes of a range that is read from blocks: of what is read in the order of the file, four share a request."""


class BlockCache:
    """The blocks of a file of `size` bytes that were used last, for any number of threads.

    `begin` starts to get a range, and returns what will have its bytes; or gets it, one at a time.
    """

    def __init__(self, size: int, begin: Callable[[ByteRange], Future[bytes]]) -> None:
        self._size = size
        self._begin = begin
        self._lock = Lock()
        self._blocks: OrderedDict[int, Future[bytes]] = OrderedDict()

    def read(self, wanted: Sequence[ByteRange]) -> list[bytes]:
        """Return the bytes of ranges that are in the file; all are under way before the first one is waited for."""
        parts = list(map(self._parts, wanted))
        return [_joined(one, part) for one, part in zip(wanted, parts, strict=True)]

    def _parts(self, wanted: ByteRange) -> list[Future[bytes]]:
        """Return what a range is made of: its bytes or, where it is small, the blocks that have them."""
        if wanted.size > SMALL:
            return [self._begin(wanted)]
        stop = wanted.address + wanted.size
        return [self._block(number) for number in range(wanted.address // BLOCK, -(-stop // BLOCK))]

    def _block(self, number: int) -> Future[bytes]:
        with self._lock:
            found = self._blocks.get(number)
            if found is None:
                start = number * BLOCK
                found = self._begin(ByteRange(start, min(BLOCK, self._size - start)))
                self._blocks[number] = found
                if len(self._blocks) > BLOCKS:
                    self._blocks.popitem(last=False)
            self._blocks.move_to_end(number)
            return found


def _joined(wanted: ByteRange, parts: list[Future[bytes]]) -> bytes:
    if wanted.size > SMALL:
        return parts[0].result()
    data = b"".join(part.result() for part in parts)
    start = wanted.address % BLOCK
    return data[start : start + wanted.size]
