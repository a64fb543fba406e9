"""Mappings of virtual datasets, against what h5py wrote, and damaged ones."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import h5py
import pytest

from hsparse.errors import Corrupt, HsparseError, Unsupported
from hsparse.format.codec_library import lookup3
from hsparse.format.selections.selection_encoding import encode_simple
from hsparse.format.selections.serialized_selection import AllElements, Regular
from hsparse.hdf5.format.global_heap import encode_global_heap
from hsparse.hdf5.format.messages.layout_message import VirtualLayoutMessage
from hsparse.hdf5.format.parse.virtual_mapping import (
    VirtualMapping,
    block_name,
    parse_virtual_mappings,
)
from tests.cli.importer.virtual_files import VIRTUAL
from tests.format.hdf5.file_walk import FileBytes, walk

ALL = encode_simple(3)
END = 2**64 - 1


def endless(count: int, block: int, stride: int = 1) -> bytes:
    """Return a hyperslab of version 2, as libhdf5 writes one without end."""
    return struct.pack("<IIBII4Q", 2, 2, 1, 36, 1, 0, stride, count, block)


def block_of(*mappings: bytes, version: int = 0, count: int | None = None) -> bytes:
    content = struct.pack("<BQ", version, len(mappings) if count is None else count) + b"".join(mappings)
    return content + struct.pack("<I", lookup3(content))


def parse(block: bytes) -> tuple[VirtualMapping, ...]:
    """Parse a block that is in a heap of a file."""
    stream = io.BytesIO()
    h5py.File(stream, "w").close()
    whole = stream.getvalue()
    source = FileBytes(whole + encode_global_heap([block]))
    return source.run(parse_virtual_mappings(source.open(), VirtualLayoutMessage(len(whole), 1)))


@pytest.mark.parametrize("topic", VIRTUAL)
def test_names_and_number_are_those_of_h5py(tmp_path: Path, topic: str) -> None:
    VIRTUAL[topic](tmp_path)
    source = FileBytes((tmp_path / "v.h5").read_bytes())
    with h5py.File(tmp_path / "v.h5") as file:
        for path, one in walk(tmp_path / "v.h5").items():
            if one.dataset is None or not isinstance(one.dataset.layout, VirtualLayoutMessage):
                continue
            found = source.run(parse_virtual_mappings(source.open(), one.dataset.layout))
            plist = file[path].id.get_create_plist()
            names = [
                (plist.get_virtual_filename(n), plist.get_virtual_dsetname(n))
                for n in range(plist.get_virtual_count())
            ]
            assert [(mapping.file, mapping.dataset) for mapping in found] == names
            for number, mapping in enumerate(found):
                space = plist.get_virtual_vspace(number)
                if isinstance(mapping.virtual, Regular) and space.is_regular_hyperslab():
                    numbers = zip(*space.get_regular_hyperslab(), strict=True)
                    assert [tuple(map(int, some)) for some in numbers] == [
                        (span.start, span.stride, span.count, span.block) for span in mapping.virtual.spans
                    ]


def test_a_virtual_dataset_that_maps_nothing() -> None:
    source = FileBytes(b"")
    assert source.run(parse_virtual_mappings(None, VirtualLayoutMessage(None, 0))) == ()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("pattern", "number", "name"),
    [
        ("s.h5", 3, "s.h5"),
        ("s%b.h5", 12, "s12.h5"),
        ("%b%%%b", 1, "1%1"),
        ("50%%", 0, "50%"),
        ("50%x", 0, "50%x"),
    ],
)
def test_patterns(pattern: str, number: int, name: str) -> None:
    assert block_name(pattern, number) == name
    mapping = VirtualMapping(pattern, "d", AllElements(), AllElements())
    assert mapping.by_blocks == ("%b" in pattern.replace("%%", ""))


def test_mappings_that_share_names() -> None:
    first, again = b"\0a.h5\0x/y\0", b"\3" + struct.pack("<QQ", 0, 0)
    found = parse(block_of(*(one + ALL * 2 for one in (first, again, b"\4d\0")), version=1))
    assert [(one.file, one.dataset) for one in found] == [("a.h5", "x/y"), ("a.h5", "x/y"), (".", "d")]


@pytest.mark.parametrize(
    ("block", "error", "words"),
    [
        (block_of(version=2), Unsupported, "version 2, which is not known"),
        (
            block_of(b"\1" + struct.pack("<Q", 1) + b"d" * 9 + b"\0" + ALL * 2, version=1),
            Corrupt,
            "mapping 1",
        ),
        (block_of(b"\2" + b"a" * 9 + bytes(9) + ALL * 2, version=1), Corrupt, "mapping 0"),
        (block_of(b"\x08" + b"a" * 9 + b"\0d\0" + ALL * 2, version=1), Corrupt, "flags 8"),
        (block_of()[:-1] + b"x", Corrupt, "checksum"),
        (b"\0" * 5, Corrupt, "5 bytes"),
        (block_of(count=2**40), Corrupt, "mappings"),
        (block_of(b"a" * 60 + b"\0d\0" + ALL + ALL, count=2), Corrupt, "ends inside"),
        (block_of(b"x" * 40), Corrupt, "ends inside a name"),
        (block_of(b"a\0d\0" + endless(END, 2, 5) + ALL), Corrupt, "unlimited"),
        (block_of(b"a\0d\0" + ALL + endless(END, 2, 5)), Corrupt, "unlimited"),
        (block_of(b"a%b\0d\0" + endless(END, 2, 5) * 2), Corrupt, "unlimited"),
        (block_of(b"a%b\0d\0" + ALL + ALL), Corrupt, "by block"),
        (block_of(b"a\0d\0" + endless(0, 2, 5) * 2), Corrupt, "is empty"),
        (block_of(b"a\0d\0" + endless(2, 5, 2) * 2), Corrupt, "overlaps itself"),
        (block_of(b"a\0d\0" + endless(2, END, END) * 2), Corrupt, "blocks of"),
        (block_of(b"a\0d\0" + endless(2**40, 2, 2**40) * 2), Corrupt, "blocks of"),
        (block_of(b"a\0d\0" + struct.pack("<IIBBI", 2, 3, 1, 2, 33) + bytes(400)), Corrupt, "rank 33"),
    ],
)
def test_damaged_mappings(block: bytes, error: type[HsparseError], words: str) -> None:
    with pytest.raises(error, match=words):
        parse(block)
