"""The bounds of a file."""

from __future__ import annotations

import pytest

from hsparse.errors import Corrupt
from hsparse.format.hdf5.file_bounds import UNDEFINED, FileBounds
from hsparse.format.hdf5.reads import ByteRange


def test_a_block_lies_in_the_file() -> None:
    assert FileBounds(100).block(60, 40, "block") == ByteRange(60, 40)
    assert FileBounds(100, 512).block(60, 40, "block") == ByteRange(572, 40)
    for address, size in ((60, 41), (101, 0), (UNDEFINED, 8)):
        with pytest.raises(Corrupt, match=f"The block at {address} has {size} bytes and ends beyond"):
            FileBounds(100).block(address, size, "block")


def test_blocks_have_no_more_bytes_than_the_file() -> None:
    bounds = FileBounds(100)
    bounds.block(0, 50, "block")
    bounds.block(50, 50, "block")
    with pytest.raises(Corrupt, match="up to the block at 7 overlap"):
        bounds.block(7, 1, "block")
