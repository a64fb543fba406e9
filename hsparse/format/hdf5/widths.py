"""How many bytes a file's addresses and lengths take.

H5.format.html, II: "Size of Offsets" and "Size of Lengths" of the superblock. Files written here have 8 of each.
"""

from __future__ import annotations

from typing import NamedTuple

from hsparse.format.dataspace_message import Reader

UNDEFINED = b"\xff" * 8


class Widths(NamedTuple):
    """Bytes of an address, counted from the file's base address, and of a length."""

    address: int = 8
    length: int = 8

    def read_address(self, reader: Reader, what: str) -> int | None:
        """Return an address, None where it is undefined."""
        address = reader.number(self.address, what)
        return None if address == 2 ** (8 * self.address) - 1 else address

    def read_length(self, reader: Reader, what: str) -> int:
        return reader.number(self.length, what)


def address_bytes(address: int | None) -> bytes:
    """Return the 8 bytes of an address, undefined for None."""
    return UNDEFINED if address is None else address.to_bytes(8, "little")


def width_of(number: int) -> int:
    """Return the fewest bytes that hold a number up to `number`, at least one: HDF5's variable-width fields."""
    return max(1, (number.bit_length() + 7) // 8)
