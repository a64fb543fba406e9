"""Reads lie in the file, and no byte is read twice."""

from __future__ import annotations

import pytest

from hsparse.errors import Corrupt
from hsparse.format.dataspace_message import ByteReader
from hsparse.hdf5.format.file_fields import ByteRange, Widths, check_signature, concurrently
from hsparse.hdf5.format.hdf5_file import FileBounds, Hdf5File
from tests.format.hdf5.file_walk import FileBytes
from tests.format.hdf5.sample_messages import reader

DATA = bytes(range(100)) * 2
FILE = Hdf5File(len(DATA), 50, Widths(), 0, 2)


def length(start: ByteReader) -> int:
    return start.data[0]


def test_addresses_count_from_the_base() -> None:
    source = FileBytes(DATA)
    assert bytes(source.run(FILE.read(3, 2, "thing")).data) == bytes((53, 54))
    assert FILE.check(100, 50, "thing") == (150, 50)
    with pytest.raises(Corrupt, match="The thing at address 100 has 51 bytes; the file ends at 150"):
        FILE.check(100, 51, "thing")


@pytest.mark.parametrize(("guess", "steps"), [(1, 2), (53, 2), (54, 1), (500, 1)])
def test_a_guess_saves_a_step(guess: int, steps: int) -> None:
    source = FileBytes(DATA)
    found = source.run(FILE.read_sized(4, 1, guess, length, "thing"))
    assert bytes(found.data) == DATA[54 : 54 + 54]
    assert source.steps == steps


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


def test_guesses_are_shared() -> None:
    assert FILE.walk("tree").limit_guess(64, 0) == 64
    assert FILE.walk("tree").limit_guess(64, 100) == 2


def test_signatures() -> None:
    check_signature(reader(b"ABCD\0"), b"ABCD")
    with pytest.raises(Corrupt, match="begins with b'ABCX'"):
        check_signature(reader(b"ABCX\0"), b"ABCD")
    with pytest.raises(Corrupt, match="test has version 7; only 0"):
        check_signature(reader(b"ABCD\7"), b"ABCD")


def test_a_block_lies_in_the_file() -> None:
    assert FileBounds(100).block(60, 40, "block") == ByteRange(60, 40)
    assert FileBounds(100, 512).block(60, 40, "block") == ByteRange(572, 40)
    for address, size in ((60, 41), (101, 0), (2**64 - 1, 8)):
        with pytest.raises(Corrupt, match=f"The block at {address} has {size} bytes and ends beyond"):
            FileBounds(100).block(address, size, "block")


def test_blocks_have_no_more_bytes_than_the_file() -> None:
    bounds = FileBounds(100)
    bounds.block(0, 50, "block")
    bounds.block(50, 50, "block")
    with pytest.raises(Corrupt, match="up to the block at 7 overlap"):
        bounds.block(7, 1, "block")
