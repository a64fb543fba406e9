"""Records as the store keeps them: JSON objects."""

from __future__ import annotations

from typing import Any

import orjson

from hsparse.errors import Corrupt

Record = dict[str, Any]

OVERHEAD = 1024
"""Bytes of memory that an object takes besides its record."""
MEMORY = 8
"""Bytes of memory of a parsed record for each byte of JSON: 2 to 11, as measured; 8 for many small attributes."""


class RecordCodec:
    """JSON bytes <-> record, for the object of `key`."""

    def __init__(self, key: str) -> None:
        self._key = key

    def decode(self, data: bytes) -> Record:
        try:
            record = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise Corrupt(f"The object {self._key} is not valid JSON: {error}.") from error
        if not isinstance(record, dict):
            raise Corrupt(f"The object {self._key} is not a JSON object.")
        return record

    def encode(self, value: Record) -> bytes:
        return orjson.dumps(value)

    def nbytes(self, value: Record, stored: int) -> int:
        return OVERHEAD + MEMORY * stored

    def work(self, nbytes: int) -> int:
        return (
            nbytes // MEMORY
        )  # a change looks at one part of a record, and encodes the rest as fast as JSON goes
