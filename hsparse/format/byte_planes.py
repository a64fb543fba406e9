"""Byte planes, the output of HDF5's shuffle filter, and columns of numbers that are read without unshuffling.

The unshuffled data is a table of records, for example of points with one coordinate per dimension. Unshuffling it and
then copying columns out of the records would move each byte twice, with slow strided accesses. Plane j has byte j of
every filter element (the unit of the shuffle). If a filter element spans several records, byte j of the records is in
several planes; if a record spans several filter elements, its byte j is in one plane at a stride.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.format.buffer import Buffer

KINDS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


@dataclass(frozen=True)
class BytePlanes:
    """Byte-shuffled data of `element`-byte elements; after unshuffling, the bytes from `size` on are padding."""

    data: Buffer
    element: int
    size: int

    @property
    def _bytes(self) -> NDArray[np.uint8]:
        return np.frombuffer(self.data, np.uint8)

    @property
    def _length(self) -> int:
        """The bytes of one plane; trailing bytes that do not fill an element follow the last plane in their order."""
        return len(self.data) // self.element

    def joined(self) -> bytes:
        """Return all unshuffled bytes."""
        whole = self._bytes[: self.element * self._length].reshape(self.element, self._length)
        behind = self._bytes[self.element * self._length :]
        return (whole.T.tobytes() + behind.tobytes())[: self.size]

    def head(self, size: int) -> bytes:
        """Return the first `size` unshuffled bytes, or all unshuffled bytes if there are fewer."""
        count = -(-size // self.element)
        if count > self._length:
            return self.joined()[:size]
        head = bytearray(count * self.element)
        for byte in range(self.element):
            begin = byte * self._length
            head[byte :: self.element] = self.data[begin : begin + count]
        return bytes(head[: min(size, self.size)])

    def column(self, start: int, step: int, count: int, width: int, narrow: int) -> NDArray[Any] | None:
        """Return `count` little-endian unsigned numbers of `width` bytes, found every `step` bytes from `start`.

        The result has numbers of `narrow` bytes. It is None if a number does not fit, or if neither of the filter
        element and `step` is a multiple of the other.
        """
        if self.element % step and step % self.element:
            return None
        phases, stride = max(1, self.element // step), max(1, step // self.element)
        bounds = [self._bounds(start + at * step, stride, width) for at in range(phases)]
        # Numbers that reach beyond the planes, and a few before them to fill a whole element, are read byte by byte.
        inside = max(0, min(count, *(at + length * phases for at, length in enumerate(bounds))))
        inside -= inside % phases
        column = self._in_planes(start, step, inside, width, narrow)
        if column is None:
            return None
        last = [self._number(start + at * step, width) for at in range(inside, count)]
        if last and max(last) >> 8 * narrow:
            return None
        return np.concatenate((column, np.array(last, column.dtype))) if last else column

    def _number(self, start: int, width: int) -> int:
        """Return the number of `width` bytes at `start`, read byte by byte."""
        number = 0
        for place in reversed(range(start, start + width)):
            element, byte = divmod(place, self.element)
            in_planes = element < self._length
            number = number << 8 | self.data[byte * self._length + element if in_planes else place]
        return number

    def _bounds(self, start: int, stride: int, width: int) -> int:
        """Return how many of the numbers that begin at `start`, `stride` elements apart, lie completely in planes."""
        firsts = (place // self.element for place in range(start, start + width))
        return min(-((first - self._length) // stride) for first in firsts)

    def _in_planes(self, start: int, step: int, count: int, width: int, narrow: int) -> NDArray[Any] | None:
        """Return a column that lies completely in planes, or None if a number has more than `narrow` bytes."""
        phases, stride = max(1, self.element // step), max(1, step // self.element)
        planes = [
            [self._plane(start + at * step + byte, count // phases, stride) for at in range(phases)]
            for byte in range(width)
        ]
        if any(has_bits(plane) for some in planes[narrow:] for plane in some):
            return None
        if phases == 1:
            column = join_planes([plane for (plane,) in planes[:narrow]])
            return column.copy() if narrow == 1 else column  # a view would keep all planes in memory
        bytes_of = np.empty((count // phases, phases, narrow), np.uint8)
        for byte, some in enumerate(planes[:narrow]):
            for at, plane in enumerate(some):
                bytes_of[:, at, byte] = plane
        return bytes_of.reshape(-1).view(f"<u{narrow}")

    def _plane(self, place: int, count: int, stride: int) -> NDArray[np.uint8]:
        """Return `count` unshuffled bytes, `stride` elements apart, beginning at the byte with index `place`."""
        begin = place % self.element * self._length + place // self.element
        return self._bytes[begin : begin + count * stride : stride]


def has_bits(plane: NDArray[np.uint8]) -> bool:
    """Return whether any byte is not zero. Counting bytes is five times as fast as comparing wider numbers."""
    return bool(np.count_nonzero(plane))


def join_planes(planes: list[NDArray[np.uint8]]) -> NDArray[Any]:
    """Return the numbers whose bytes, lowest first, are in 1, 2, 4 or 8 `planes`; a single plane is returned itself.

    The halves of the planes are joined recursively, so that most steps process narrow numbers.
    """
    if len(planes) == 1:
        return planes[0]
    half = len(planes) // 2
    numbers = join_high_planes(planes)
    if any(map(has_bits, planes[:half])):
        numbers |= join_planes(planes[:half])
    return numbers


def join_high_planes(planes: list[NDArray[np.uint8]]) -> NDArray[Any]:
    """Return the numbers of `join_planes` for 2, 4 or 8 planes, but with zeros in the lower half of their bytes."""
    half = len(planes) // 2
    numbers = join_planes(planes[half:]).astype(KINDS[len(planes)])
    numbers <<= 8 * half
    return numbers
