"""Reads lie in the file, and no byte is read twice."""

from __future__ import annotations

import pytest

from hsparse.errors import Corrupt
from hsparse.format.dataspace_message import ByteReader
from hsparse.hdf5.format.file_fields import ByteRange, Widths, concurrently
from hsparse.hdf5.format.hdf5_file import FileBounds, Hdf5File
from tests.format.hdf5.file_walk import FileBytes

DATA = bytes(range(100)) * 2
FILE = Hdf5File(len(DATA), 50, Widths(), 0, 2)


def length(start: ByteReader) -> int:
    return start.data[0]


def test_no_place_is_walked_twice() -> None:
    source = FileBytes(DATA)
    walk = FILE.walk("tree")
    with pytest.raises(Corrupt, match="The tree leads to address 8 twice"):
        source.run(concurrently(walk.read(8, 1, "node") for _ in range(10**6)))
    assert not source.steps


def test_structures_do_not_overlap() -> None:
    source = FileBytes(DATA)
    walk = FILE.walk("tree")
    with pytest.raises(Corrupt, match="parts that overlap, the one at address 2"):
        source.run(concurrently(walk.read(address, 90, "node") for address in range(10)))
    assert not source.steps
    walk = FILE.walk("tree")
    with pytest.raises(Corrupt, match="parts that overlap"):
        source.run(concurrently(walk.read_sized(address, 1, 1, length, "node") for address in range(20)))
    assert source.bytes_read < 2 * len(DATA)


def test_a_block_lies_in_the_file() -> None:
    assert FileBounds(100).block(60, 40, "block") == ByteRange(60, 40)
    assert FileBounds(100, 512).block(60, 40, "block") == ByteRange(572, 40)
    for address, size in ((60, 41), (101, 0), (2**64 - 1, 8)):
        with pytest.raises(Corrupt, match=f"The block at {address} has {size} bytes and ends beyond"):
            FileBounds(100).block(address, size, "block")
