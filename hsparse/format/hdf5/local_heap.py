"""Local heaps: the names of an old-style group.

H5.format.html, III.D.
"""

from __future__ import annotations

from dataclasses import dataclass

from hsparse.errors import Corrupt
from hsparse.format.hdf5.reads import Reads
from hsparse.format.hdf5.stored_file import StoredFile, check_signature
from hsparse.format.hdf5.stored_name import name_text


@dataclass(slots=True)
class LocalHeap:
    """A heap's bytes. Names that overlap so much that they are longer together than the heap are refused."""

    data: bytes
    address: int
    left: int

    def text(self, offset: int) -> str:
        """Return the name at `offset`; raises `Corrupt`."""
        end = self.data.find(b"\0", offset)
        self.left -= end + 1 - offset
        if end < 0 or self.left < 0:
            raise Corrupt(f"The local heap at address {self.address} has no name at offset {offset}.")
        return name_text(self.data[offset:end])


def read_local_heap(file: StoredFile, address: int) -> Reads[LocalHeap]:
    """Read the heap at `address`; raises `Corrupt`."""
    size = 8 + 2 * file.widths.length + file.widths.address
    reader = yield from file.read(address, size, "local heap")
    check_signature(reader, b"HEAP")
    reader.take(3, "header")
    length = file.widths.read_length(reader, "size")
    file.widths.read_length(reader, "free list")
    segment = file.widths.read_address(reader, "address of the names")
    if segment is None:
        raise Corrupt(f"The {reader.thing} has no names.")
    names = yield from file.read(segment, length, "local heap's data segment")
    return LocalHeap(bytes(names.data), address, length)
