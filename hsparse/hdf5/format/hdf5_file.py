"""An HDF5 file as its superblock describes it, and the guards that keep reads inside of it.

`Walk` guards structures that are read one by one: none is read twice. `FileBounds` guards blocks of an index whose
ranges are requested together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hsparse.errors import Corrupt
from hsparse.format.dataspace_message import ByteReader
from hsparse.hdf5.format.file_fields import ByteRange, Reads, Widths

DEFAULT_K = 32
"""Half the entries of a node of chunks in a version 1 B-tree, unless the superblock says otherwise."""


@dataclass(frozen=True, slots=True)
class Hdf5File:
    """A file of `size` bytes, the first `base` of them a user block; addresses count from `base`.

    `root` is the address of the root group's object header. `shared` are the heaps of shared messages: the types
    of messages in it, a bit each, and its address. `chunk_k` is half the entries of a node of chunks in v1 B-trees.
    """

    size: int
    base: int
    widths: Widths
    root: int
    version: int
    shared: tuple[tuple[int, int], ...] = ()
    chunk_k: int = DEFAULT_K

    def check(self, address: int, size: int, what: str) -> ByteRange:
        """Return where in the file a structure is; raises `Corrupt` where it is not wholly in it."""
        if size < 0 or address + size > self.size - self.base:
            raise Corrupt(
                f"The {what} at address {address} has {size} bytes; the file ends at {self.size - self.base}."
            )
        return ByteRange(self.base + address, size)

    def read(self, address: int, size: int, what: str) -> Reads[ByteReader]:
        """Read `size` bytes at `address`; raises `Corrupt` where they are not in the file."""
        (data,) = yield (self.check(address, size, what),)
        return ByteReader(memoryview(data), subject=f"{what} at address {address}")

    def read_sized(
        self, address: int, least: int, guess: int, whole: Callable[[ByteReader], int], what: str
    ) -> Reads[ByteReader]:
        """Read a structure whose first `least` bytes tell its size to `whole`; `guess` saves a step where it fits.

        Raises `Corrupt` where it is not in the file.
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
        """The file's bounds, for one walk through blocks that do not overlap."""
        return FileBounds(self.size - self.base, self.base)

    def walk(self, what: str) -> Walk:
        """Return the guard of one walk through structures of this file."""
        return Walk(self, what, self.size)


@dataclass(slots=True)
class Walk:
    """The structures that one walk reads: none twice, and together not larger than the file.

    It refuses before anything is read, so that a file which leads to one place a million times costs nothing.
    """

    file: Hdf5File
    what: str
    left: int
    seen: set[int] = field(default_factory=set)

    def read(self, address: int, size: int, what: str) -> Reads[ByteReader]:
        """Read as the file does; raises `Corrupt` where the walk has been before."""
        self._add(address, size, what)
        return (yield from self.file.read(address, size, what))

    def read_sized(
        self, address: int, least: int, guess: int, whole: Callable[[ByteReader], int], what: str
    ) -> Reads[ByteReader]:
        """Read as the file does; raises `Corrupt` where the walk has been before."""
        self._add(address, least, what)

        def checked(start: ByteReader) -> int:
            size = whole(start)
            self.file.check(address, size, what)
            self._spend(address, size - least)
            return size

        return (yield from self.file.read_sized(address, least, guess, checked, what))

    def limit_guess(self, guess: int, count: int) -> int:
        """Return a guess that `count` structures may have at once, so that all take no more than the file."""
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
