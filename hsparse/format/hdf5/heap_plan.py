"""Global heap collections of a file that is planned.

H5.format.html, III.E. Objects are put together in collections of about 64 KiB, so that each is made at once; one
that is larger has a collection of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from hsparse.format.hdf5.addressed import Addressed, AddressOf, Key
from hsparse.format.hdf5.file_plan import Piece
from hsparse.format.hdf5.global_heap import HEAD, MAX_OBJECTS, collection_size, encode_global_heap

FULL = 65_536
"""Bytes from which on a collection gets no more objects."""


class HeapPlan:
    """Objects of variable length, in collections; `name` tells one plan's collections from another's."""

    def __init__(self, name: Key = "heap") -> None:
        self._name = name
        self._collections: list[list[Addressed]] = []
        self._used = FULL

    def add(self, data: Addressed) -> tuple[Key, int]:
        """Keep an object; return its collection's key and its number there."""
        if self._used >= FULL or len(self._collections[-1]) == MAX_OBJECTS:
            self._collections.append([])
            self._used = 0
        self._collections[-1].append(data)
        self._used += HEAD + len(data.data)
        return (self._name, len(self._collections) - 1), len(self._collections[-1])

    def pieces(self) -> Iterator[Piece]:
        """Yield a piece for each collection."""
        for number, objects in enumerate(self._collections):
            size = collection_size([len(one.data) for one in objects])
            yield Piece((self._name, number), size, partial(_make, objects))


def _make(objects: Sequence[Addressed], address_of: AddressOf) -> bytes:
    return encode_global_heap([one.filled(address_of) for one in objects])
