"""Global heap collections, which hold the bytes of vlen elements and region references (H5.format.html, III.E).

An element has the address of a collection and the number of an object in the collection.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hsparse.bounded_cache import remember
from hsparse.errors import Corrupt
from hsparse.format.dataspace_message import ByteReader
from hsparse.hdf5.format.file_fields import (
    WIDTH_CODES,
    Reads,
    check_signature,
)
from hsparse.hdf5.format.hdf5_file import StructureWalk

KEPT_BYTES = 8 * 1024 * 1024
"""The maximum memory in bytes of the cache of collections and their object tables."""

MIN_COLLECTION = 4096
"""The size in bytes of the smallest collection that libhdf5 writes."""

OBJECT_BYTES = 200
"""The estimated memory in bytes of one entry of an object table."""
MAX_OBJECTS = 65_535
OBJECT_HEAD = 16
"""The size in bytes of a collection's header and of each object's header, including padding."""


@dataclass(frozen=True, slots=True)
class GlobalHeap:
    """A global heap collection; `places` maps each object's number to its (offset, size) in `data`."""

    address: int
    data: memoryview
    places: Mapping[int, tuple[int, int]]

    def __getitem__(self, number: int) -> memoryview:
        """Return the object with this number; raises `Corrupt` if the collection has no such object."""
        found = self.places.get(number)
        if found is None:
            raise Corrupt(f"The global heap collection at address {self.address} has no object {number}.")
        place, size = found
        return self.data[place : place + size]


def read_global_heap(walk: StructureWalk, address: int, guess: int = MIN_COLLECTION) -> Reads[GlobalHeap]:
    """Read the collection at `address`, guarded by `walk`; `guess` is its likely size in bytes. Raises `Corrupt`."""
    length = walk.file.widths.length

    def whole(start: ByteReader) -> int:
        return max(OBJECT_HEAD, int.from_bytes(start.data[8 : 8 + length], "little"))

    reader = yield from walk.read_sized(address, OBJECT_HEAD, guess, whole, "global heap collection")
    check_signature(reader, b"GCOL", 1)
    data = reader.data
    try:
        # cached, because many attributes have their values in one collection
        places = _objects_of(bytes(data), length)
    except ValueError as error:
        raise Corrupt(f"The {reader.subject} {error}.") from error
    return GlobalHeap(address, data, places)


@remember(KEPT_BYTES, lambda found, data, _: len(data) + OBJECT_BYTES * len(found))
def _objects_of(data: bytes, length: int) -> dict[int, tuple[int, int]]:
    """Return a dict of object number to (offset, size) in a collection; raises `ValueError` if it is damaged."""
    head = struct.Struct(f"<H6x{WIDTH_CODES[length]}").unpack_from
    found: dict[int, tuple[int, int]] = {}
    place = OBJECT_HEAD
    # the last bytes may be too few for the header of the free space object
    while place + OBJECT_HEAD <= len(data):
        number, size = head(data, place)
        if not number:
            break
        place += OBJECT_HEAD
        if number in found or size > len(data) - place:
            raise ValueError(f"has two objects {number}, or ends inside the object {number}")
        found[number] = place, size
        place += size + -size % 8
    return found


def collection_size(sizes: Sequence[int]) -> int:
    """Return the size in bytes of a collection that holds objects of these sizes."""
    used = OBJECT_HEAD + sum(OBJECT_HEAD + size + -size % 8 for size in sizes)
    return max(MIN_COLLECTION, used)


def encode_global_heap(objects: Sequence[bytes]) -> bytes:
    """Encode a collection of these objects, which are numbered from 1."""
    size = collection_size([len(data) for data in objects])
    pieces = [struct.pack("<4sB3xQ", b"GCOL", 1, size)]
    for number, data in enumerate(objects, 1):
        pieces += [struct.pack("<HH4xQ", number, 1, len(data)), data, bytes(-len(data) % 8)]
    free = size - sum(map(len, pieces))
    if free >= OBJECT_HEAD:
        pieces.append(struct.pack("<HH4xQ", 0, 0, free))
        free -= OBJECT_HEAD
    return b"".join((*pieces, bytes(free)))
