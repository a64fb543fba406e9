"""Local heaps and global heap collections.

H5.format.html, III.D "Local Heaps": the names of a group with a symbol table. III.E "Global Heap": the bytes of
variable-length elements and of region references; an element has the address of a collection and the number of an
object in it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hsparse.errors import Corrupt
from hsparse.format.dataspace_message import ByteReader
from hsparse.format.hdf5.file_fields import WIDTH_CODES, check_signature, decode_name
from hsparse.format.hdf5.hdf5_file import Hdf5File, Walk
from hsparse.format.hdf5.reads import Reads


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
        return decode_name(self.data[offset:end])


def read_local_heap(file: Hdf5File, address: int) -> Reads[LocalHeap]:
    """Read the heap at `address`; raises `Corrupt`."""
    size = 8 + 2 * file.widths.length + file.widths.address
    reader = yield from file.read(address, size, "local heap")
    check_signature(reader, b"HEAP")
    reader.take(3, "header")
    length = file.widths.read_length(reader, "size")
    file.widths.read_length(reader, "free list")
    segment = file.widths.read_address(reader, "address of the names")
    if segment is None:
        raise Corrupt(f"The {reader.subject} has no names.")
    names = yield from file.read(segment, length, "local heap's data segment")
    return LocalHeap(bytes(names.data), address, length)


MIN_COLLECTION = 4096
"""Bytes of the smallest collection that libhdf5 writes."""
MAX_OBJECTS = 65_535
OBJECT_HEAD = 16
"""Bytes before the first object, and before each object's bytes: multiples of 8, whatever the width of a length."""


@dataclass(frozen=True, slots=True)
class GlobalHeap:
    """A collection's objects by number."""

    address: int
    objects: Mapping[int, memoryview]

    def __getitem__(self, number: int) -> memoryview:
        """Return an object; raises `Corrupt` where there is none."""
        found = self.objects.get(number)
        if found is None:
            raise Corrupt(f"The global heap collection at address {self.address} has no object {number}.")
        return found


def read_global_heap(walk: Walk, address: int, guess: int = MIN_COLLECTION) -> Reads[GlobalHeap]:
    """Read the collection at `address` as a step of `walk`; raises `Corrupt`."""
    length = walk.file.widths.length

    def whole(start: ByteReader) -> int:
        return max(OBJECT_HEAD, int.from_bytes(start.data[8 : 8 + length], "little"))

    reader = yield from walk.read_sized(address, OBJECT_HEAD, guess, whole, "global heap collection")
    check_signature(reader, b"GCOL", 1)
    data, subject = reader.data, reader.subject
    head = struct.Struct(f"<H6x{WIDTH_CODES[length]}").unpack_from
    objects: dict[int, memoryview] = {}
    place = OBJECT_HEAD
    # the rest may be too small for the object that describes free space
    while place + OBJECT_HEAD <= len(data):
        number, size = head(data, place)
        if not number:
            break
        place += OBJECT_HEAD
        if number in objects or size > len(data) - place:
            raise Corrupt(f"The {subject} has two objects {number}, or ends inside the object {number}.")
        objects[number] = data[place : place + size]
        place += size + -size % 8
    return GlobalHeap(address, objects)


def collection_size(sizes: Sequence[int]) -> int:
    """Return the bytes of a collection of objects of these sizes."""
    used = OBJECT_HEAD + sum(OBJECT_HEAD + size + -size % 8 for size in sizes)
    return max(MIN_COLLECTION, used)


def encode_global_heap(objects: Sequence[bytes]) -> bytes:
    """Return a collection whose objects are numbered from 1."""
    size = collection_size([len(data) for data in objects])
    pieces = [struct.pack("<4sB3xQ", b"GCOL", 1, size)]
    for number, data in enumerate(objects, 1):
        pieces += [struct.pack("<HH4xQ", number, 1, len(data)), data, bytes(-len(data) % 8)]
    free = size - sum(map(len, pieces))
    if free >= OBJECT_HEAD:
        pieces.append(struct.pack("<HH4xQ", 0, 0, free))
        free -= OBJECT_HEAD
    return b"".join((*pieces, bytes(free)))
