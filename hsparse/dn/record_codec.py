"""Records as the store keeps them: JSON objects."""

from __future__ import annotations

from typing import Any

import orjson

from hsparse.errors import Corrupt

Record = dict[str, Any]


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

    def nbytes(self, value: Record) -> int:
        links = value.get("links") or {}
        attributes = value.get("attributes") or {}
        own = 1024 + 256 * len(links) + 256 * len(_listed_chunks(value))
        return own + sum(512 + _size(item.get("value")) for item in attributes.values())


def _listed_chunks(value: Record) -> dict[str, Any]:
    """Return the chunks that a linked dataset's layout lists."""
    layout = (value.get("creationProperties") or {}).get("layout")
    listed = layout.get("chunks") if isinstance(layout, dict) else None
    return listed if isinstance(listed, dict) else {}


def _size(value: Any) -> int:
    if isinstance(value, list):
        return 32 * len(value) + (len(value) * _size(value[0]) if value and isinstance(value[0], list) else 0)
    return len(value) if isinstance(value, str) else 32
