"""Records as the store keeps them: JSON objects."""

from __future__ import annotations

import json
from typing import Any

import orjson

from hsparse.errors import Corrupt

Record = dict[str, Any]

NOT_FINITE = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}
"""What other servers write into JSON for floats that it has no number for, and the names that records have."""

OVERHEAD = 1024
"""Bytes of memory that an object takes besides its record."""
MEMORY = 8
"""Bytes of memory of a parsed record for each byte of JSON: 2 to 11, as measured; 8 for many small attributes."""
SPEED = 4
"""How many times faster JSON is encoded than `Workers` reckons with."""


class RecordCodec:
    """JSON bytes <-> record, for the object of `key`."""

    def __init__(self, key: str) -> None:
        self._key = key

    def decode(self, data: bytes) -> Record:
        try:
            record = _parse(data)
        except ValueError as error:
            raise Corrupt(f"The object {self._key} is not valid JSON: {error}.") from error
        if not isinstance(record, dict):
            raise Corrupt(f"The object {self._key} is not a JSON object.")
        return record

    def encode(self, value: Record) -> bytes:
        return orjson.dumps(value)

    def nbytes(self, value: Record, stored: int) -> int:
        return OVERHEAD + MEMORY * stored

    def work(self, nbytes: int) -> int:
        return nbytes // (MEMORY * SPEED)  # a change looks at one part of a record, and the rest is encoded


def _parse(data: bytes) -> Any:
    """Return JSON's value; `ValueError` when it is none, but for the floats of `NOT_FINITE`."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        if b"NaN" not in data and b"Infinity" not in data:
            raise
        return json.loads(data, parse_constant=NOT_FINITE.__getitem__)
