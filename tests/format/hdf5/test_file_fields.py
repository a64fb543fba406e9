"""Addresses and numbers of several widths, names, and checksummed blocks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import BadRequest, Corrupt
from hsparse.hdf5.format.file_fields import (
    Widths,
    address_bytes,
    decode_name,
    encode_name,
    open_block,
    open_page,
    seal_block,
    seal_page,
    width_of,
)
from tests.format.hdf5.sample_messages import reader


@pytest.mark.parametrize("width", [2, 4, 8])
def test_addresses(width: int) -> None:
    message = reader((96).to_bytes(width, "little") + b"\xff" * width + b"\5\0")
    widths = Widths(width, 2)
    assert widths.read_address(message, "address") == 96
    assert widths.read_address(message, "address") is None
    assert widths.read_length(message, "length") == 5


def test_written_addresses() -> None:
    assert address_bytes(0x0102) == b"\2\1" + bytes(6)
    assert address_bytes(None) == b"\xff" * 8


@pytest.mark.parametrize(
    ("number", "width"), [(0, 1), (1, 1), (255, 1), (256, 2), (65535, 2), (65536, 3), (2**64 - 1, 8)]
)
def test_fewest_bytes(number: int, width: int) -> None:
    assert width_of(number) == width


@given(st.binary().filter(lambda data: b"\0" not in data))
def test_any_bytes_come_back(data: bytes) -> None:
    assert encode_name(decode_name(data)) == data


def test_a_name_that_would_end_early() -> None:
    with pytest.raises(BadRequest, match="has a zero character, which ends"):
        encode_name("a\0b")


BLOCK = seal_block(b"FAHD", 1, 2, b"some", b"thing")


def test_the_golden_header_has_this_checksum() -> None:
    data = bytes.fromhex("46414844 0102120a 0a00000000000000 df00000000000000 9b54ee2f")
    assert seal_page(data[:-4]) == data
    assert bytes(open_block(data, b"FAHD", 2, "header")) == data[6:-4]


def test_what_was_sealed_is_opened() -> None:
    assert bytes(open_block(BLOCK, b"FAHD", 2, "block")) == b"something"
    assert bytes(open_page(seal_page(b"a", b"b"), "page")) == b"ab"
    assert bytes(open_block(seal_block(b"FAHD", 0, 2), b"FAHD", 2, "block")) == b""


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
