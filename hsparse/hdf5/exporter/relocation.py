"""Allocate space in a file that is being written, and convert the addresses in copied elements.

References get the addresses of the objects and heap collections in the new file.
"""

from __future__ import annotations

import os
from threading import Lock

from hsparse.errors import unwritten
from hsparse.format.buffer import Buffer
from hsparse.hdf5.format.file_fields import Addressed, AddressOf, Key
from hsparse.hdf5.format.messages.file_type import FileType, has_addresses
from hsparse.hdf5.format.parse.parsed_elements import parse_elements
from hsparse.hdf5.format.plan.file_plan import ALIGNMENT
from hsparse.hdf5.format.plan.plan_elements import plan_elements
from hsparse.hdf5.format.plan.planned_structures import GlobalHeapPlan
from hsparse.hdf5.format.plan.transcoded_chunk import CHUNK_HEAP
from hsparse.hdf5.importer.file_objects import FileObjects


class Relocation:
    """Converts the references in elements. The key of an object is the address of its header in the source file."""

    def __init__(self, objects: FileObjects) -> None:
        self._objects = objects
        self._addresses = {one.id: address for address, one in objects.by_address.items()}

    def elements(
        self, stored: FileType, data: Buffer, shape: tuple[int, ...], heap: GlobalHeapPlan
    ) -> Addressed:
        """Convert elements, leaving out their addresses, which are filled in later; add vlen values to `heap`."""
        if not has_addresses(stored):
            return Addressed(bytes(data))
        objects = self._objects
        reads = parse_elements(objects.file, stored, memoryview(data), shape, objects.find)
        return plan_elements(stored, objects.source.run(reads), heap, self._key_of)

    def written(
        self, stored: FileType, data: Buffer, shape: tuple[int, ...], area: DataArea, address_of: AddressOf
    ) -> Buffer:
        """Convert elements and fill in all addresses; write vlen values to `area`."""
        if not has_addresses(stored):
            return data
        heap = GlobalHeapPlan(CHUNK_HEAP)
        elements = self.elements(stored, data, shape, heap)
        places: dict[Key, int] = {}

        def find(key: Key) -> int:
            place = places.get(key)
            return address_of(key) if place is None else place

        pieces = list(heap.pieces())
        for piece in pieces:
            places[piece.key] = area.allocate(piece.size)
        for piece in pieces:
            assert piece.make is not None
            area.write(places[piece.key], piece.make(find))
        return elements.filled(find)

    def _key_of(self, name: str) -> Key | None:
        return self._addresses.get(name.rpartition("/")[2])


class DataArea:
    """The space of an open file from address `start` on; addresses count from byte `base`. It is thread-safe."""

    def __init__(self, descriptor: int, start: int, base: int = 0) -> None:
        self._base = base
        self._descriptor = descriptor
        self._lock = Lock()
        self.end = start

    def allocate(self, size: int) -> int:
        """Return the address of `size` newly allocated bytes."""
        with self._lock:
            address = self.end + -self.end % ALIGNMENT
            self.end = address + size
            return address

    def append(self, data: Buffer) -> int:
        """Allocate space, write data to it, and return its address."""
        address = self.allocate(len(data))
        self.write(address, data)
        return address

    def write(self, address: int, data: Buffer) -> None:
        """Write data at `address`; raises `StoreFull` if the disk is full."""
        left = memoryview(data)
        try:
            while len(left):
                count = os.pwrite(self._descriptor, left, self._base + address)
                left, address = left[count:], address + count
        except OSError as error:
            raise unwritten(error, "The file") from error
