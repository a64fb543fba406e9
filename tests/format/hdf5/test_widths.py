"""Addresses and numbers of several widths."""

from __future__ import annotations

import pytest

from hsparse.format.hdf5.widths import Widths, address_bytes, width_of
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
