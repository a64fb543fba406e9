"""The bounds of a file while an index is read: no block lies beyond its end, and all together fit into it."""

from __future__ import annotations

from hsparse.errors import Corrupt
from hsparse.format.hdf5.reads import ByteRange

UNDEFINED = 2**64 - 1
"""The address that says: nothing is allocated."""


class FileBounds:
    """A file of `end` bytes from `base` on, where addresses begin, and how much of it blocks may still take.

    Blocks of one index never overlap, so that together they have at most `end` bytes: damaged addresses that lead
    to the same block again and again are found before memory is taken for it.
    """

    def __init__(self, end: int, base: int = 0) -> None:
        self.end = end
        self._base = base
        self._left = end

    def block(self, address: int, size: int, what: str) -> ByteRange:
        """Return the range of a block called `what`; `Corrupt` when the file does not have room for it."""
        if address + size > self.end:
            raise Corrupt(
                f"The {what} at {address} has {size} bytes and ends beyond the file's end at {self.end}."
            )
        self._left -= size
        if self._left < 0:
            raise Corrupt(f"The blocks up to the {what} at {address} overlap.")
        return ByteRange(self._base + address, size)
