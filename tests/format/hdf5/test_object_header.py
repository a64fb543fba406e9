"""Object headers made by hand: continuations, gaps, messages that must be known. libhdf5's: `test_stored_object`."""

from __future__ import annotations

import struct

import pytest

from hsparse.errors import Corrupt, Unsupported
from hsparse.hdf5.format.file_fields import Widths, seal_page
from hsparse.hdf5.format.hdf5_file import Hdf5File
from hsparse.hdf5.format.object_header import ObjectHeader, read_object_header
from tests.format.hdf5.file_walk import FileBytes


def read(data: bytes, address: int = 0) -> ObjectHeader:
    return FileBytes(data).run(read_object_header(Hdf5File(len(data), 0, Widths(), 0, 2), address))


def old(kind: int, data: bytes, flags: int = 0) -> bytes:
    return struct.pack("<HHB3x", kind, len(data), flags) + data


def new(kind: int, data: bytes, flags: int = 0) -> bytes:
    return struct.pack("<BHB", kind, len(data), flags) + data


def old_header(body: bytes) -> bytes:
    return struct.pack("<BxHIII", 1, 3, 7, len(body), 0) + body


def new_header(body: bytes) -> bytes:
    return seal_page(b"OHDR\2\0" + bytes((len(body),)) + body)


def found(header: ObjectHeader) -> list[tuple[int, bytes]]:
    return [(message.kind, bytes(message.data)) for message in header.messages]


def test_continuations_of_version_1() -> None:
    first = old_header(old(0x10, struct.pack("<QQ", 200, 32)) + old(1, b"eight_by"))
    data = first.ljust(200, b"\0") + old(0x10, struct.pack("<QQ", 300, 16)) + bytes(8)
    header = read(data.ljust(300, b"\0") + old(5, b"the_last"))
    assert found(header) == [(1, b"eight_by"), (5, b"the_last")]
    assert (header.version, header.references) == (1, 7)


def test_continuations_of_version_2() -> None:
    block = seal_page(b"OCHK" + new(3, b"more") + bytes(3))
    data = new_header(new(0x10, struct.pack("<QQ", 100, len(block))) + new(0, b"gap") + new(1, b"first"))
    assert found(read(data.ljust(100, b"\0") + block)) == [(1, b"first"), (3, b"more")]


def test_a_header_that_continues_in_itself() -> None:
    data = old_header(old(0x10, struct.pack("<QQ", 0, 40)))
    with pytest.raises(Corrupt, match="object header at address 0 leads to address 0 twice"):
        read(data)
    data = old_header(old(0x10, struct.pack("<QQ", 48, 24)) + bytes(8))
    with pytest.raises(Corrupt, match="address 48 twice"):
        read(data + old(0x10, struct.pack("<QQ", 48, 24)))


def test_a_message_that_must_be_known() -> None:
    with pytest.raises(Unsupported, match="message of the unknown type 0x30"):
        read(new_header(new(0x30, b"", 0x80)))
    assert found(read(new_header(new(0x30, b"", 0x08)))) == [(0x30, b"")]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\2" + bytes(20), "begins with 2"),
        (b"OHDR\3" + bytes(20), "checksum|version 3"),
        (old_header(old(1, b"eight_by"))[:-1], "the file ends at"),
        (old_header(old(1, b"eight_by")[:-4]), "ends inside its message of type 0x01"),
        (old_header(old(0x10, struct.pack("<QQ", 10**6, 100))), "continuation at address 1000000"),
        (old_header(old(0x10, b"\xff" * 16)), "continues at address None"),
        (new_header(new(1, b"x"))[:-1] + b"x", "has checksum"),
        (b"OHDR", "the file ends at"),
    ],
)
def test_corrupt(data: bytes, words: str) -> None:
    with pytest.raises(Corrupt, match=words):
        read(data)
