"""Addresses and numbers of several widths, names, and checksummed blocks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import Corrupt
from hsparse.hdf5.format.file_fields import (
    decode_name,
    encode_name,
    open_block,
    seal_block,
    seal_page,
)


@given(st.binary().filter(lambda data: b"\0" not in data))
def test_any_bytes_come_back(data: bytes) -> None:
    assert encode_name(decode_name(data)) == data


BLOCK = seal_block(b"FAHD", 1, 2, b"some", b"thing")


def test_the_golden_header_has_this_checksum() -> None:
    data = bytes.fromhex("46414844 0102120a 0a00000000000000 df00000000000000 9b54ee2f")
    assert seal_page(data[:-4]) == data
    assert bytes(open_block(data, b"FAHD", 2, "header")) == data[6:-4]


def test_every_changed_byte_is_found() -> None:
    for place in range(len(BLOCK)):
        damaged = bytearray(BLOCK)
        damaged[place] ^= 1
        with pytest.raises(Corrupt, match="The block at 7"):
            open_block(bytes(damaged), b"FAHD", 2, "block at 7")


@pytest.mark.parametrize(
    ("block", "words"),
    [
        (seal_block(b"FADB", 1, 2), "begins with b'FADB', not with b'FAHD'"),
        (seal_block(b"FAHD", 2, 2), "version 2; 0 and 1 exist"),
        (seal_block(b"FAHD", 1, 3), "records of type 3; the dataset's are of type 2"),
    ],
)
def test_another_block_is_corrupt(block: bytes, words: str) -> None:
    with pytest.raises(Corrupt, match=words):
        open_block(block, b"FAHD", 2, "block")
