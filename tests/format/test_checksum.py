"""Checksums: known values, and the sums HDF5 defines computed the slow way."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.format.codec_library import crc32, fletcher32, fletcher32_swapped, lookup3


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"", 0xDEADBEEF),
        (b"Four score and seven years ago", 0x17770551),
    ],
)
def test_lookup3_gives_its_authors_values(data: bytes, value: int) -> None:
    assert lookup3(data) == value


def test_lookup3_of_section_0_of_a_file_that_libhdf5_wrote() -> None:
    image = bytes.fromhex(
        "01000818000000" + "0101010000000000" + "0500000000000000" * 2
        + "02000000010000000000000010000000" + "01000000010000000100000003000000"
    )  # fmt: skip
    assert lookup3(image).to_bytes(4, "little").hex() == "9bf20893"


@given(st.binary(min_size=1, max_size=3000))
def test_fletcher32_sums_big_endian_words(data: bytes) -> None:
    padded = data + b"\0" * (len(data) % 2)
    first = second = 0
    for place in range(0, len(padded), 2):
        first += int.from_bytes(padded[place : place + 2], "big")
        second += first
    # In ones' complement 0xffff and 0 are the same number; the filter keeps 0xffff where the sum is not 0.
    first, second = ((value - 1) % 0xFFFF + 1 if value else 0 for value in (first, second))
    assert fletcher32(data) == second << 16 | first


@given(st.integers(0, 2**32 - 1))
def test_swapping_twice_changes_nothing(value: int) -> None:
    assert fletcher32_swapped(fletcher32_swapped(value)) == value


def test_swapping_exchanges_the_bytes_of_each_half() -> None:
    assert fletcher32_swapped(0x11223344) == 0x22114433


@given(st.binary(max_size=300))
def test_crc32_is_zlibs_and_takes_any_buffer(data: bytes) -> None:
    assert crc32(data) == crc32(memoryview(data)) == crc32(bytearray(data)) == zlib.crc32(data)
