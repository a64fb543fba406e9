"""Reference counts, against libhdf5's."""

from __future__ import annotations

import pytest

from hsparse.errors import Corrupt
from hsparse.format.hdf5.reference_count import decode_reference_count, encode_reference_count
from tests.format.hdf5.sample_messages import messages, reader


def test_bytes_of_libhdf5_round_trip() -> None:
    found = messages(0x16)
    assert found
    for data in found:
        count = decode_reference_count(reader(data))
        assert count > 1
        assert encode_reference_count(count) == data


def test_corrupt() -> None:
    with pytest.raises(Corrupt, match="version 1"):
        decode_reference_count(reader(b"\1\0\0\0\0"))
