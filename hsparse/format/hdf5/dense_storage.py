"""Where an object's many links or attributes are: the link info and attribute info messages.

H5.format.html, IV.A.2.c (message 0x0002) and IV.A.2.v (message 0x0015).
"""

from __future__ import annotations

from dataclasses import dataclass

from hsparse.errors import Corrupt
from hsparse.format.dataspace_message import Reader
from hsparse.format.hdf5.widths import Widths, address_bytes

TRACKED, INDEXED = 1, 2
LINK_INFO, ATTRIBUTE_INFO = 8, 2
"""Bytes of the highest creation order in either message."""


@dataclass(frozen=True, slots=True)
class DenseStorage:
    """Addresses of the fractal heap and of the B-trees by name and by creation order; None where there is none.

    `next_order` is the number that the next link or attribute gets, None when order is not tracked.
    """

    heap: int | None = None
    names: int | None = None
    orders: int | None = None
    next_order: int | None = None
    indexed: bool = False


def decode_dense(message: Reader, widths: Widths, order_width: int) -> DenseStorage:
    """Read one of the messages, told apart by `order_width`; raises `Corrupt`."""
    version, flags = message.numbers(2, 1, "info message's header")
    if version or flags & ~(TRACKED | INDEXED):
        raise Corrupt(f"The {message.thing} has an info message of version {version} with flags {flags}.")
    next_order = message.number(order_width, "highest creation order") if flags & TRACKED else None
    heap = widths.read_address(message, "address of the heap")
    names = widths.read_address(message, "address of the index by name")
    indexed = bool(flags & INDEXED)
    orders = widths.read_address(message, "address of the index by creation order") if indexed else None
    return DenseStorage(heap, names, orders, next_order, indexed)


def encode_dense(storage: DenseStorage, order_width: int) -> bytes:
    """Return the link info or attribute info message."""
    tracked = storage.next_order is not None
    flags = (TRACKED if tracked else 0) | (INDEXED if storage.indexed else 0)
    order = b"" if storage.next_order is None else storage.next_order.to_bytes(order_width, "little")
    orders = address_bytes(storage.orders) if storage.indexed else b""
    return bytes((0, flags)) + order + address_bytes(storage.heap) + address_bytes(storage.names) + orders
