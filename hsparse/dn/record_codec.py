"""The bytes of a record: JSON, with the `schema` that it needs."""

from __future__ import annotations

import json
import re
from typing import Any

import orjson

from hsparse.dn.record_checksum import (
    add_checksum,
    check_checksum,
    drop_checksum,
    has_checksum,
    remove_checksum,
)
from hsparse.dn.record_form import is_record, misplaced_part, wrong_part
from hsparse.errors import Corrupt
from hsparse.model.schema import parse_schema, schema_of, with_deltas
from hsparse.storage.object_store import Buffer
from hsparse.wire.message import Record

DELTA = "delta"
"""The key of a base record that has the token of its delta; see `hsparse.dn.record_objects`."""
_TOKEN = re.compile("[0-9a-f]{16}")

NOT_FINITE = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}
"""The constants that other servers write into JSON for floats that are not finite, and our names for them."""

OVERHEAD = 1024
"""Bytes of memory of a cached object besides its record."""
SAMPLE = 16 * 1024
"""Bytes of JSON of which the memory is counted; counting them takes as long as parsing them."""
SPEED = 16
"""How many times faster JSON is encoded than `OffloadPool` assumes, for each byte of memory that it takes."""


class RecordCodec:
    """JSON bytes <-> record, for the object of `key`; `Unsupported` for one that a newer hsparse must read.

    A record has its `schema` in the store alone (`hsparse.model.schema`), unless it must not be changed here, and its
    checksum (`hsparse.dn.record_checksum`) always.
    """

    __slots__ = ("_key",)

    def __init__(self, key: str) -> None:
        self._key = key

    def decode(self, data: bytes) -> Record:
        check_checksum(data, self._key)
        try:
            record = parse_json(data)
        except ValueError as error:
            raise Corrupt(f"The object {self._key} is not valid JSON: {error}.") from error
        if not isinstance(record, dict):
            raise Corrupt(f"The object {self._key} is not a JSON object.")
        drop_checksum(record)
        wrong = wrong_part(self._key, record)
        if wrong:
            raise Corrupt(
                f"The object {self._key} has a {wrong!r:.200} that no record has; restore it from a copy."
            )
        misplaced = "" if has_checksum(data) else misplaced_part(self._key, record)
        if misplaced:
            raise Corrupt(
                f"The object {self._key} has no {misplaced!r}, or that of another object; restore it from a copy."
            )
        if "schema" in record:
            self._check(record)
        return record

    def encode(self, value: Record) -> bytes:
        schema = schema_of(value)
        data = orjson.dumps(value if schema is None else {**value, "schema": schema.to_json()})
        return add_checksum(data) if value and is_record(self._key) else data

    def take_delta(self, record: Record) -> str:
        """Remove the token of a decoded base's delta and return it; empty for a record that is one object."""
        if DELTA not in record:
            return ""
        token: Any = record.pop(DELTA)
        if not isinstance(token, str) or not _TOKEN.fullmatch(token):
            raise Corrupt(
                f"The object {self._key} has a {DELTA!r} of an unknown form; restore it from a copy."
            )
        return token

    def name_delta(self, data: bytes, record: Record, token: str) -> bytes:
        """Return the bytes of a base whose delta has this token; `data` are those of the record alone."""
        schema = schema_of(record)
        data = remove_checksum(data)
        if schema is not None:
            data = data.removesuffix(b',"schema":%b}' % orjson.dumps(schema.to_json())) + b"}"
        schema = with_deltas(schema)
        more = orjson.dumps({DELTA: token, "schema": schema.to_json()})[1:]
        return add_checksum(b"%b,%b" % (data[:-1], more))

    def _check(self, record: Record) -> None:
        """Take the schema out of a record if all of it is known; what is left of it forbids changes."""
        name = f"The object {self._key}"
        schema = parse_schema(record["schema"], name)
        schema.check_readable(name)
        if schema.writable:
            del record["schema"]

    def nbytes(self, value: Record, data: Buffer) -> int:
        return OVERHEAD + memory_of_json(bytes(data))

    def work(self, nbytes: int) -> int:
        return nbytes // SPEED  # a change reads a small part of a record; all of it is encoded


def memory_of_json(data: bytes) -> int:
    """Return about how many bytes of memory JSON takes when it is parsed: 0.9 to 1.5 times as many as measured.

    It counts dicts, lists, and texts and numbers in them, of long JSON in a sample; names in dicts are mostly shared.
    """
    if len(data) > SAMPLE:
        step, part = len(data) // 16, SAMPLE // 16
        sample = b"".join(data[start : start + part] for start in range(0, step * 16, step))
        return memory_of_json(sample) * len(data) // len(sample)
    empty, dicts, lists = data.count(b"{}"), data.count(b"{"), data.count(b"[")
    names, commas = data.count(b'":'), data.count(b",")
    texts = max(data.count(b'"') // 2 - names, 0)
    items = max(commas + dicts - empty - names, 0)
    return len(data) + 208 * dicts - 144 * empty + 64 * lists + 24 * names + 50 * texts + 36 * items


def parse_json(data: bytes) -> Any:
    """Return JSON's value, with the floats of `NOT_FINITE`; `ValueError` when it is not JSON."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        if b"NaN" not in data and b"Infinity" not in data:
            raise
        return json.loads(data, parse_constant=NOT_FINITE.__getitem__)
