"""What a record takes in memory: as much as its JSON is long, times what parsed JSON takes."""

from __future__ import annotations

from typing import Any

import pytest

from hsparse.dn.record_codec import RecordCodec
from hsparse.errors import Corrupt

CODEC = RecordCodec("key")


def weight(record: dict[str, Any]) -> int:
    data = CODEC.encode(record)
    assert CODEC.decode(data) == record
    return CODEC.nbytes(record, len(data))


@pytest.mark.parametrize(
    "more",
    [
        {"links": {str(i): {"id": "g-1"} for i in range(100)}},
        {"attributes": {str(i): {"value": 1} for i in range(100)}},
        {"attributes": {"a": {"value": list(range(1000))}}},
        {"creationProperties": {"layout": {"chunks": {str(i): [i, 9] for i in range(100)}}}},
    ],
)
def test_what_is_long_counts(more: dict[str, Any]) -> None:
    assert weight(more) > weight({}) + 8_000


def test_work_is_a_part_of_the_memory() -> None:
    record = {"a": "x" * 80_000}
    assert 20_000 < CODEC.work(weight(record)) < 22_500


def test_floats_that_are_no_json_are_read_by_name() -> None:
    data = b'{"a": {"value": [NaN, Infinity, -Infinity, 1.5]}, "b": "NaN"}'
    assert CODEC.decode(data) == {"a": {"value": ["nan", "inf", "-inf", 1.5]}, "b": "NaN"}


@pytest.mark.parametrize("data", [b"", b"{", b"[1]", b"NaN", b"{'NaN': 1}", b'{"a": "NaN', b"\xff NaN"])
def test_what_is_no_record_is_corrupt(data: bytes) -> None:
    with pytest.raises(Corrupt, match="key"):
        CODEC.decode(data)
