"""Shared messages: every version that tells an address."""

from __future__ import annotations

import pytest

from hsparse.errors import Corrupt
from hsparse.format.hdf5.shared_message import HeapId, decode_shared, encode_shared
from hsparse.format.hdf5.widths import Widths
from tests.format.hdf5.sample_messages import reader

ADDRESS = (800).to_bytes(8, "little")


@pytest.mark.parametrize(
    "data", [encode_shared(800), b"\2\2" + ADDRESS, b"\1\0" + bytes(6) + bytes(8) + ADDRESS]
)
def test_versions(data: bytes) -> None:
    assert decode_shared(reader(data), Widths()) == 800


def test_a_message_in_the_heap_has_an_id() -> None:
    assert decode_shared(reader(b"\3\1" + b"abcdefgh"), Widths()) == HeapId(b"abcdefgh")


def test_corrupt() -> None:
    with pytest.raises(Corrupt, match="version 4"):
        decode_shared(reader(b"\4\2" + ADDRESS), Widths())
    with pytest.raises(Corrupt, match="nowhere"):
        decode_shared(reader(b"\3\2" + b"\xff" * 8), Widths())
