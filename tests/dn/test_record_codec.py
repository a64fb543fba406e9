"""What a record takes in memory: all that may be long in it counts."""

from __future__ import annotations

from typing import Any

import pytest

from hsparse.dn.record_codec import RecordCodec

CODEC = RecordCodec("key")


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
    assert CODEC.nbytes(more) > CODEC.nbytes({}) + 20_000


@pytest.mark.parametrize("layout", [None, 5, "x", [], {"chunks": 5}, {"chunks": None}])
def test_whatever_a_client_keeps_there_is_no_error(layout: Any) -> None:
    record = {"id": "g-1", "creationProperties": {"layout": layout}}
    assert CODEC.nbytes(record) == CODEC.nbytes({})
    assert CODEC.decode(CODEC.encode(record)) == record
