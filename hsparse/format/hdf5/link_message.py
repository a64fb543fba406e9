"""The link message: a name in a group, and what it leads to.

H5.format.html, IV.A.2.g (message 0x0006).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TypeAlias

from hsparse.errors import BadRequest, Corrupt
from hsparse.format.dataspace_message import Reader
from hsparse.format.hdf5.stored_name import name_bytes, name_text
from hsparse.format.hdf5.widths import Widths, address_bytes, width_of

HARD, SOFT, FIRST_USER, EXTERNAL = 0, 1, 64, 64
ORDERED, TYPED, CHARSET = 4, 8, 16
"""Flags: which of the optional fields there are. The lowest two bits are the width of the name's length."""
UTF8 = 1
MAX_TARGET = 65_535


@dataclass(frozen=True, slots=True)
class Hard:
    """To the object header at `address`."""

    address: int


@dataclass(frozen=True, slots=True)
class Soft:
    """To a path of this file."""

    path: str


@dataclass(frozen=True, slots=True)
class External:
    """To a path of another file."""

    file: str
    path: str


@dataclass(frozen=True, slots=True)
class UserDefined:
    """A link of a class that its users know, 65 to 255."""

    kind: int
    data: bytes


LinkTarget: TypeAlias = Hard | Soft | External | UserDefined


@dataclass(frozen=True, slots=True)
class StoredLink:
    """A name and its target; `order` is the number it was created as, None where the group does not tell."""

    name: str
    target: LinkTarget
    order: int | None = None


def decode_link(message: Reader, widths: Widths) -> StoredLink:
    """Read a link; raises `Corrupt`."""
    version, flags = message.numbers(2, 1, "link's header")
    if version != 1 or flags & 0xE0:
        raise Corrupt(f"The {message.thing} has a link message of version {version} with flags {flags:#x}.")
    kind = message.number(1, "link's type") if flags & TYPED else HARD
    order = message.number(8, "link's creation order") if flags & ORDERED else None
    if flags & CHARSET and message.number(1, "link's character set") > UTF8:
        raise Corrupt(f"The {message.thing} has a link with an unknown character set.")
    length = message.number(1 << (flags & 3), "length of a link's name")
    name = name_text(message.take(length, "link's name"))
    if not name:
        raise Corrupt(f"The {message.thing} has a link without a name.")
    return StoredLink(name, _target(message, kind, widths), order)


def _target(message: Reader, kind: int, widths: Widths) -> LinkTarget:
    if kind == HARD:
        address = widths.read_address(message, "address of a link's object")
        if address is None:
            raise Corrupt(f"The {message.thing} has a hard link to nowhere.")
        return Hard(address)
    data = message.take(message.number(2, "length of a link's target"), "link's target")
    if kind == SOFT:
        return Soft(name_text(data))
    if kind < FIRST_USER:
        raise Corrupt(f"The {message.thing} has a link of type {kind}; 0, 1 and 64 to 255 exist.")
    if kind != EXTERNAL:
        return UserDefined(kind, bytes(data))
    file, _, path = bytes(data[1:]).partition(b"\0")
    if not data or data[0] or not path.endswith(b"\0"):
        raise Corrupt(f"The {message.thing} has an external link that names no file and path.")
    return External(name_text(file), name_text(path[:-1]))


def encode_link(link: StoredLink) -> bytes:
    """Return the message, names as UTF-8."""
    name = name_bytes(link.name)
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
    if isinstance(target, Hard):
        return HARD, address_bytes(target.address)
    kind = SOFT
    if isinstance(target, Soft):
        data = name_bytes(target.path)
    elif isinstance(target, External):
        kind, data = EXTERNAL, b"\0" + name_bytes(target.file) + b"\0" + name_bytes(target.path) + b"\0"
    else:
        kind, data = target.kind, target.data
    if len(data) > MAX_TARGET:
        raise BadRequest(f"A link's target can have {MAX_TARGET} bytes in a file, not {len(data)}.")
    return kind, struct.pack("<H", len(data)) + data
