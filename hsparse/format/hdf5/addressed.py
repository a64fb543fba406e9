"""Bytes with addresses that are not known yet.

A file is planned by sizes. The size of a structure is known from its parts; its addresses, 8 bytes each, are
filled in when its bytes are requested.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import NamedTuple, TypeAlias

Key: TypeAlias = Hashable
"""The key of a structure or an object while a file is planned."""
AddressOf: TypeAlias = Callable[[Key], int]


class Addressed(NamedTuple):
    """`data` with zeros at `places`: (offset, key) of each address that belongs there."""

    data: bytes
    places: tuple[tuple[int, Key], ...] = ()

    @classmethod
    def join(cls, parts: Iterable[Addressed]) -> Addressed:
        """Return parts one after the other."""
        pieces, places, end = [], [], 0
        for data, inside in parts:
            places += [(end + offset, key) for offset, key in inside]
            pieces.append(data)
            end += len(data)
        return cls(b"".join(pieces), tuple(places))

    def filled(self, address_of: AddressOf) -> bytes:
        """Return the bytes with all addresses."""
        if not self.places:
            return self.data
        result = bytearray(self.data)
        for offset, key in self.places:
            result[offset : offset + 8] = address_of(key).to_bytes(8, "little")
        return bytes(result)


def address_to(key: Key | None) -> Addressed:
    """Return the 8 bytes of an address, undefined for None."""
    return Addressed(b"\xff" * 8) if key is None else Addressed(bytes(8), ((0, key),))
