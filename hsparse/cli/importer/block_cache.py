"""Small ranges of a file far away, taken from blocks: what is close together comes in one request."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock

from hsparse.format.hdf5.reads import ByteRange

BLOCK = 1024 * 1024
BLOCKS = 64
"""Blocks of so many bytes, and how many of them, that small ranges are taken from."""
SMALL = 64 * 1024


class BlockCache:
    """The blocks of a file of `size` bytes that were used last; `fetch` gets one. For any number of threads."""

    def __init__(self, size: int, fetch: Callable[[ByteRange], bytes]) -> None:
        self._size = size
        self._fetch = fetch
        self._lock = Lock()
        self._blocks: OrderedDict[int, bytes] = OrderedDict()

    def read(self, wanted: ByteRange) -> bytes:
        """Return the bytes of a range that is in the file."""
        if not wanted.size:
            return b""
        first = wanted.address // BLOCK
        last = (wanted.address + wanted.size - 1) // BLOCK
        data = b"".join(map(self._block, range(first, last + 1)))
        start = wanted.address - first * BLOCK
        return data[start : start + wanted.size]

    def _block(self, number: int) -> bytes:
        with self._lock:
            found = self._blocks.get(number)
            if found is None:
                start = number * BLOCK
                found = self._fetch(ByteRange(start, min(BLOCK, self._size - start)))
                self._blocks[number] = found
                if len(self._blocks) > BLOCKS:
                    self._blocks.popitem(last=False)
            self._blocks.move_to_end(number)
            return found
