"""Modification times, against libhdf5's."""

from __future__ import annotations

import pytest

from hsparse.errors import Corrupt
from hsparse.format.hdf5.modification_time import decode_old_time, decode_time, encode_time
from tests.format.hdf5.sample_messages import reader


def test_round_trip() -> None:
    assert encode_time(1_700_000_000) == bytes.fromhex("01000000 00f15365")
    assert decode_time(reader(encode_time(1_700_000_000))) == 1_700_000_000


def test_the_old_message_has_digits() -> None:
    assert decode_old_time(reader(b"20231114221320\0\0")) == 1_700_000_000


def test_corrupt() -> None:
    with pytest.raises(Corrupt, match="version 2"):
        decode_time(reader(b"\2" + bytes(7)))
    with pytest.raises(Corrupt, match="'20231399"):
        decode_old_time(reader(b"20231399221320\0\0"))
