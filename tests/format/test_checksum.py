"""Checksums: known values, and the sums HDF5 defines computed the slow way."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.format.codec_library import fletcher32_swapped, lookup3


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


@given(st.integers(0, 2**32 - 1))
def test_swapping_twice_changes_nothing(value: int) -> None:
    assert fletcher32_swapped(fletcher32_swapped(value)) == value


def test_swapping_exchanges_the_bytes_of_each_half() -> None:
    assert fletcher32_swapped(0x11223344) == 0x22114433
