"""The messages of a group: links, and the locations of dense link and attribute storage.

H5.format.html, IV.A.2.g (link, message 0x0006), IV.A.2.k (group info, 0x000A), IV.A.2.r (symbol table, 0x0011), and
two messages with the same fields: IV.A.2.c (link info, 0x0002) and IV.A.2.v (attribute info, 0x0015).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from hsparse.errors import BadRequest, Corrupt
from hsparse.format.dataspace_message import ByteReader
from hsparse.hdf5.format.file_fields import Widths, address_bytes, decode_name, encode_name, width_of

DEFAULT_GROUP_INFO = bytes(2)
"""The group info message of a group with HDF5's default limits and estimates."""
HARD, SOFT, FIRST_USER, EXTERNAL = 0, 1, 64, 64
ORDERED, TYPED, CHARSET = 4, 8, 16
"""Flags of optional fields. The lowest two flag bits encode the width of the name's length: 1, 2, 4 or 8 bytes."""
UTF8 = 1
MAX_TARGET = 65_535


@dataclass(frozen=True, slots=True)
class StoredHardLink:
    """A hard link to the object header at `address`."""

    address: int


@dataclass(frozen=True, slots=True)
class StoredSoftLink:
    """A soft link to a path in the same file."""

    path: str


@dataclass(frozen=True, slots=True)
class StoredExternalLink:
    """An external link to a path in another file."""

    file: str
    path: str


@dataclass(frozen=True, slots=True)
class UserDefinedLink:
    """A link of a user-defined class `kind`, 65 to 255."""

    kind: int
    data: bytes


LinkTarget: TypeAlias = StoredHardLink | StoredSoftLink | StoredExternalLink | UserDefinedLink


@dataclass(frozen=True, slots=True)
class LinkMessage:
    """The name and target of a link. `order` is its creation order, or None if the group does not track the order."""

    name: str
    target: LinkTarget
    order: int | None = None


def decode_link(message: ByteReader, widths: Widths) -> LinkMessage:
    """Decode a link message; raises `Corrupt`."""
    version, flags = message.numbers(2, 1, "link's header")
    if version != 1 or flags & 0xE0:
        raise Corrupt(f"The {message.subject} has a link message of version {version} with flags {flags:#x}.")
    kind = message.number(1, "link's type") if flags & TYPED else HARD
    order = message.number(8, "link's creation order") if flags & ORDERED else None
    if flags & CHARSET and message.number(1, "link's character set") > UTF8:
        raise Corrupt(f"The {message.subject} has a link with an unknown character set.")
    length = message.number(1 << (flags & 3), "length of a link's name")
    name = decode_name(message.take(length, "link's name"))
    if not name:
        raise Corrupt(f"The {message.subject} has a link without a name.")
    return LinkMessage(name, _target(message, kind, widths), order)


def _target(message: ByteReader, kind: int, widths: Widths) -> LinkTarget:
    if kind == HARD:
        address = widths.read_address(message, "address of a link's object")
        if address is None:
            raise Corrupt(f"The {message.subject} has a hard link to nowhere.")
        return StoredHardLink(address)
    data = message.take(message.number(2, "length of a link's target"), "link's target")
    if kind == SOFT:
        return StoredSoftLink(decode_name(data))
    if kind < FIRST_USER:
        raise Corrupt(f"The {message.subject} has a link of type {kind}; only 0, 1 and 64 to 255 are known.")
    if kind != EXTERNAL:
        return UserDefinedLink(kind, bytes(data))
    file, _, path = bytes(data[1:]).partition(b"\0")
    if not data or data[0] or not path.endswith(b"\0"):
        raise Corrupt(f"The {message.subject} has an external link that names no file and path.")
    return StoredExternalLink(decode_name(file), decode_name(path[:-1]))


def encode_link(link: LinkMessage) -> bytes:
    """Encode a link message, with names in UTF-8; raises `BadRequest` if the target is too long."""
    name = encode_name(link.name)
    width = {1: 0, 2: 1, 3: 2, 4: 2}[width_of(len(name))]
    ascii_ = name.isascii()
    kind, target = _encode_target(link.target)
    flags = width | (TYPED if kind != HARD else 0) | (0 if ascii_ else CHARSET)
    flags |= ORDERED if link.order is not None else 0
    pieces = [bytes((1, flags)), b"" if kind == HARD else bytes((kind,))]
    pieces.append(b"" if link.order is None else struct.pack("<Q", link.order))
    pieces.append(b"" if ascii_ else bytes((UTF8,)))
    pieces += [len(name).to_bytes(1 << width, "little"), name, target]
    return b"".join(pieces)


def _encode_target(target: LinkTarget) -> tuple[int, bytes]:
    if isinstance(target, StoredHardLink):
        return HARD, address_bytes(target.address)
    kind = SOFT
    if isinstance(target, StoredSoftLink):
        data = encode_name(target.path)
    elif isinstance(target, StoredExternalLink):
        kind, data = EXTERNAL, b"\0" + encode_name(target.file) + b"\0" + encode_name(target.path) + b"\0"
    else:
        kind, data = target.kind, target.data
    if len(data) > MAX_TARGET:
        raise BadRequest(f"A link's target can have at most {MAX_TARGET} bytes in a file, not {len(data)}.")
    return kind, struct.pack("<H", len(data)) + data


TRACKED, INDEXED = 1, 2
LINK_NAMES, LINK_ORDERS, ATTRIBUTE_NAMES, ATTRIBUTE_ORDERS = 5, 6, 8, 9
"""Record types of the version 2 B-trees of dense storage."""
LINK_ID_SIZE, ATTRIBUTE_ID_SIZE = 7, 8
"""The sizes in bytes of a link's and an attribute's heap id."""
HASH_SIZE = 4
"""The size in bytes of a name's hash."""
LINK_ORDER_WIDTH, ATTRIBUTE_ORDER_WIDTH = 8, 2
"""The widths, in bytes, of the highest creation order in the link info and attribute info messages."""


@dataclass(frozen=True, slots=True)
class DenseStorage:
    """The addresses of dense storage: its fractal heap, and its B-trees by name and by creation order; None if absent.

    `next_order` is the creation order of the next link or attribute, or None if the order is not tracked.
    """

    heap: int | None = None
    names: int | None = None
    orders: int | None = None
    next_order: int | None = None
    indexed: bool = False


def decode_dense_storage(message: ByteReader, widths: Widths, order_width: int) -> DenseStorage:
    """Decode a link info or attribute info message with a creation order of `order_width` bytes; raises `Corrupt`."""
    version, flags = message.numbers(2, 1, "info message's header")
    if version or flags & ~(TRACKED | INDEXED):
        raise Corrupt(f"The {message.subject} has an info message of version {version} with flags {flags}.")
    next_order = message.number(order_width, "highest creation order") if flags & TRACKED else None
    heap = widths.read_address(message, "address of the heap")
    names = widths.read_address(message, "address of the index by name")
    indexed = bool(flags & INDEXED)
    orders = widths.read_address(message, "address of the index by creation order") if indexed else None
    return DenseStorage(heap, names, orders, next_order, indexed)


def encode_dense_storage(storage: DenseStorage, order_width: int) -> bytes:
    """Encode a link info or attribute info message with a creation order of `order_width` bytes."""
    tracked = storage.next_order is not None
    flags = (TRACKED if tracked else 0) | (INDEXED if storage.indexed else 0)
    order = b"" if storage.next_order is None else storage.next_order.to_bytes(order_width, "little")
    orders = address_bytes(storage.orders) if storage.indexed else b""
    return bytes((0, flags)) + order + address_bytes(storage.heap) + address_bytes(storage.names) + orders


class SymbolTable(NamedTuple):
    """The addresses of a symbol table's version 1 B-tree and local heap."""

    btree: int
    heap: int


def decode_symbol_table(message: ByteReader, widths: Widths) -> SymbolTable:
    """Decode a symbol table message; raises `Corrupt`."""
    btree = widths.read_address(message, "address of the B-tree")
    heap = widths.read_address(message, "address of the local heap")
    if btree is None or heap is None:
        raise Corrupt(f"The {message.subject} has a symbol table without a B-tree or heap.")
    return SymbolTable(btree, heap)
