"""Bytes as HDF5's shuffle filter leaves them, read without undoing it: numbers are put together from their bytes.

Undoing shuffle and then copying columns out of records moves each byte twice, with strides that no processor is fast
at. Byte j of a record of a power of two bytes is in one plane or, where the filter's element has several records, in
one for each of them; a record of several elements has its bytes in a plane at a stride.
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
    """`size` bytes of data that was shuffled, maybe with more bytes behind them, as elements of `element` bytes."""

    data: Buffer
    element: int
    size: int

    @property
    def _bytes(self) -> NDArray[np.uint8]:
        return np.frombuffer(self.data, np.uint8)

    @property
    def _length(self) -> int:
        """The bytes of a plane; what does not fill an element follows the last one as it was."""
        return len(self.data) // self.element

    def joined(self) -> bytes:
        """Return all bytes in their order."""
        whole = self._bytes[: self.element * self._length].reshape(self.element, self._length)
        behind = self._bytes[self.element * self._length :]
        return (whole.T.tobytes() + behind.tobytes())[: self.size]

    def head(self, size: int) -> bytes:
        """Return the first `size` bytes, or all there are."""
        count = -(-size // self.element)
        if count > self._length:
            return self.joined()[:size]
        head = bytearray(count * self.element)
        for byte in range(self.element):
            begin = byte * self._length
            head[byte :: self.element] = self.data[begin : begin + count]
        return bytes(head[: min(size, self.size)])

    def column(self, start: int, step: int, count: int, width: int, narrow: int) -> NDArray[Any] | None:
        """Return `count` little-endian numbers of `width` bytes, at `start` and every `step` bytes from there.

        They come as numbers of `narrow` bytes; None if one of them has more, or if neither a filter's element is a
        number of steps nor a step one of elements.
        """
        if self.element % step and step % self.element:
            return None
        phases, stride = max(1, self.element // step), max(1, step // self.element)
        bounds = [self._bounds(start + at * step, stride, width) for at in range(phases)]
        # Those behind the planes, and maybe some before, come byte by byte.
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
        """Return one number, a byte at a time."""
        number = 0
        for place in reversed(range(start, start + width)):
            element, byte = divmod(place, self.element)
            in_planes = element < self._length
            number = number << 8 | self.data[byte * self._length + element if in_planes else place]
        return number

    def _bounds(self, start: int, stride: int, width: int) -> int:
        """Return how many numbers have all bytes in planes, if there is one in each `stride` elements."""
        firsts = (place // self.element for place in range(start, start + width))
        return min(-((first - self._length) // stride) for first in firsts)

    def _in_planes(self, start: int, step: int, count: int, width: int, narrow: int) -> NDArray[Any] | None:
        """Return a column all of whose bytes are in planes, with as many numbers in each element; None as `column`."""
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
        """Return the bytes at `place` of `count` elements, `stride` apart."""
        begin = place % self.element * self._length + place // self.element
        return self._bytes[begin : begin + count * stride : stride]


def has_bits(plane: NDArray[np.uint8]) -> bool:
    """Say whether bytes are not all zero; five times as fast as for numbers."""
    return bool(np.count_nonzero(plane))


def join_planes(planes: list[NDArray[np.uint8]]) -> NDArray[Any]:
    """Return the numbers, of 1, 2, 4 or 8 bytes, whose lowest bytes are in the first plane, and so on.

    Halves are joined, so that most steps are about narrow numbers; that of one byte is the plane itself.
    """
    if len(planes) == 1:
        return planes[0]
    half = len(planes) // 2
    numbers = join_high_planes(planes)
    if any(map(has_bits, planes[:half])):
        numbers |= join_planes(planes[:half])
    return numbers


def join_high_planes(planes: list[NDArray[np.uint8]]) -> NDArray[Any]:
    """Return the numbers, of 2, 4 or 8 bytes, as if all bytes in the first half of the planes were zero."""
    half = len(planes) // 2
    numbers = join_planes(planes[half:]).astype(KINDS[len(planes)])
    numbers <<= 8 * half
    return numbers
