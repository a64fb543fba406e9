"""The symbol table message: where an old-style group's B-tree and its names are.

H5.format.html, IV.A.2.r (message 0x0011).
"""

from __future__ import annotations

from typing import NamedTuple

from hsparse.errors import Corrupt
from hsparse.format.dataspace_message import Reader
from hsparse.format.hdf5.widths import Widths, address_bytes


class SymbolTable(NamedTuple):
    """Addresses of the version 1 B-tree and of the local heap."""

    btree: int
    heap: int


def decode_symbol_table(message: Reader, widths: Widths) -> SymbolTable:
    """Read the message; raises `Corrupt`."""
    btree = widths.read_address(message, "address of the B-tree")
    heap = widths.read_address(message, "address of the local heap")
    if btree is None or heap is None:
        raise Corrupt(f"The {message.thing} has a symbol table without a B-tree or heap.")
    return SymbolTable(btree, heap)


def encode_symbol_table(table: SymbolTable) -> bytes:
    """Return the message."""
    return address_bytes(table.btree) + address_bytes(table.heap)
