"""The parameters of an HDF5 file from its superblock, and guards against wrong addresses in damaged files.

Addresses in a damaged file may be outside of the file or form a cycle. `StructureWalk` guards structures that are read
one by one: reading a structure twice is an error. `FileBounds` guards the blocks of an index, whose ranges are
requested together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hsparse.errors import Corrupt
from hsparse.format.dataspace_message import ByteReader
from hsparse.hdf5.format.file_fields import ByteRange, Reads, Widths

DEFAULT_K = 32
"""Half the maximum number of entries in a v1 B-tree node of chunks, if the superblock has no such number."""


@dataclass(frozen=True, slots=True)
class Hdf5File:
    """A file of `size` bytes; the first `base` bytes are a user block, and addresses are relative to `base`.

    `root` is the address of the root group's object header. `shared` has, for each heap of shared messages, a bit mask
    of message types and the heap's address. `chunk_k` is half the maximum of entries in a v1 B-tree node of chunks.
    """

    size: int
    base: int
    widths: Widths
    root: int
    version: int
    shared: tuple[tuple[int, int], ...] = ()
    chunk_k: int = DEFAULT_K

    def check(self, address: int, size: int, what: str) -> ByteRange:
        """Return the range of a structure in the file; raises `Corrupt` if it extends beyond the file's end."""
        if size < 0 or address + size > self.size - self.base:
            raise Corrupt(
                f"The {what} at address {address} has {size} bytes, but the file ends at {self.size - self.base}."
            )
        return ByteRange(self.base + address, size)

    def read(self, address: int, size: int, what: str) -> Reads[ByteReader]:
        """Read `size` bytes at `address`; raises `Corrupt` if they extend beyond the file's end."""
        (data,) = yield (self.check(address, size, what),)
        return ByteReader(memoryview(data), subject=f"{what} at address {address}")

    def read_sized(
        self, address: int, least: int, guess: int, whole: Callable[[ByteReader], int], what: str
    ) -> Reads[ByteReader]:
        """Read a structure of unknown size: `whole` computes its size from its first `least` bytes.

        The first read has `guess` bytes; if the structure is larger, a second read follows. Raises `Corrupt` if the
        structure extends beyond the file's end.
        """
        self.check(address, least, what)
        first = max(least, min(guess, self.size - self.base - address))
        start = yield from self.read(address, first, what)
        size = whole(ByteReader(start.data, subject=start.subject))
        if size <= first:
            return ByteReader(start.data[:size], subject=start.subject)
        return (yield from self.read(address, size, what))

    @property
    def bounds(self) -> FileBounds:
        """A new guard for the reading of one B-tree of this file."""
        return FileBounds(self.size - self.base, self.base)

    def walk(self, what: str) -> StructureWalk:
        """Return a new guard for one walk through structures of this file; `what` names the walk in errors."""
        return StructureWalk(self, what, self.size)


@dataclass(slots=True)
class StructureWalk:
    """A guard of one walk: each structure is read at most once, and their total size is at most the file's.

    Checks precede reads, so a damaged file that refers to one address a million times causes no extra reads.
    """

    file: Hdf5File
    what: str
    left: int
    seen: set[int] = field(default_factory=set)

    def read(self, address: int, size: int, what: str) -> Reads[ByteReader]:
        """Read `size` bytes at `address`; raises `Corrupt` if this walk has read that address before."""
        self._add(address, size, what)
        return (yield from self.file.read(address, size, what))

    def read_sized(
        self, address: int, least: int, guess: int, whole: Callable[[ByteReader], int], what: str
    ) -> Reads[ByteReader]:
        """Read as `Hdf5File.read_sized` does; raises `Corrupt` if this walk has read `address` before."""
        self._add(address, least, what)

        def checked(start: ByteReader) -> int:
            size = whole(start)
            self.file.check(address, size, what)
            self._spend(address, size - least)
            return size

        return (yield from self.file.read_sized(address, least, guess, checked, what))

    def limit_guess(self, guess: int, count: int) -> int:
        """Return `guess`, reduced so that `count` concurrent reads take at most the file's size."""
        return min(guess, self.file.size // max(1, count))

    def _add(self, address: int, size: int, what: str) -> None:
        self.file.check(address, size, what)
        if address in self.seen:
            raise Corrupt(f"The {self.what} leads to address {address} twice.")
        self.seen.add(address)
        self._spend(address, size)

    def _spend(self, address: int, size: int) -> None:
        self.left -= size
        if self.left < 0:
            raise Corrupt(
                f"The {self.what} has parts that overlap, the one at address {address} with others."
            )


class FileBounds:
    """A guard of the blocks of one index, in a file with `end` bytes after the base address `base`.

    Blocks of one index never overlap, so their sizes sum to at most `end`. Damaged addresses that refer to the same
    block again and again are therefore detected before memory is allocated.
    """

    def __init__(self, end: int, base: int = 0) -> None:
        self.end = end
        self._base = base
        self._left = end

    def block(self, address: int, size: int, what: str) -> ByteRange:
        """Return the range of a block; raises `Corrupt`, naming `what`, if the file has no space for it."""
        if address + size > self.end:
            raise Corrupt(
                f"The {what} at {address} has {size} bytes and ends beyond the file's end at {self.end}."
            )
        self._left -= size
        if self._left < 0:
            raise Corrupt(f"The {what} at {address} overlaps other blocks of the same index.")
        return ByteRange(self._base + address, size)
