"""Records as the store has them, also as other servers put them there."""

from __future__ import annotations

import pytest

from hsparse.dn.record_codec import RecordCodec
from hsparse.errors import Corrupt

CODEC = RecordCodec("db/x/.group.json")


def test_records_come_back() -> None:
    record = {"id": "x", "attributes": {"é": {"value": [1.5, "nan", None, 2**53]}}}
    assert CODEC.decode(CODEC.encode(record)) == record


def test_floats_that_are_no_json_are_read_by_name() -> None:
    data = b'{"a": {"value": [NaN, Infinity, -Infinity, 1.5]}, "b": "NaN"}'
    assert CODEC.decode(data) == {"a": {"value": ["nan", "inf", "-inf", 1.5]}, "b": "NaN"}


@pytest.mark.parametrize("data", [b"", b"{", b"[1]", b"NaN", b"{'NaN': 1}", b'{"a": "NaN', b"\xff NaN"])
def test_what_is_no_record_is_corrupt(data: bytes) -> None:
    with pytest.raises(Corrupt, match=r"db/x/\.group\.json"):
        CODEC.decode(data)
