"""The form of a stored record: the JSON type of each field, the checksum, and the `schema`.

The JSON types are checked when a record is decoded, so no reader meets other types. Type items, attribute values and
the contents of creation properties are checked where they are used.

The checksum is the last key of a stored record, in a form that no other JSON writer produces:

    {"id": "g-...", "created": 1.5,
    "crc32":"0a1b2c3d"}

It is the CRC-32, in hex, of all bytes before the comma. HSDS and older versions of hsparse ignore the key. When they
store a changed record, they keep the key but not the newline, so an outdated checksum differs from a wrong checksum.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from typing import Any

import orjson

from hsparse.errors import BadRequest, Corrupt, NotFound
from hsparse.format.codec_library import crc32
from hsparse.model.dataspace import UNLIMITED
from hsparse.model.ids import COLLECTIONS, check_id, storage_key, tree_of_key
from hsparse.model.link import EXTERNAL, HARD, SOFT
from hsparse.model.schema import parse_schema, schema_of, with_deltas
from hsparse.storage.object_store import Buffer
from hsparse.wire.message import Record

Json = Any
NUMBERS = ("created", "lastModified", "deleted")
TEXTS = ("owner",)
IDS = ("id", "root")
OBJECTS = ("acls", "firstName", "secondNames", "creationProperties", "layout", "askedLayout")
RECORDS = frozenset({".group.json", ".dataset.json", ".datatype.json", ".domain.json"})
"""The last parts of the keys of records; only records are checked."""
NEEDED = {
    ".group.json": ("links", "attributes"),
    ".dataset.json": ("type", "shape", "attributes"),
    ".datatype.json": ("type", "attributes"),
}
"""The required fields of an object's record, besides `id` and `root`."""
TARGETS = {HARD: "id", SOFT: "h5path", EXTERNAL: "h5path"}
"""The key of the target in each class of link."""
NO_SHAPE = {"class": ""}
NO_NAME = {"path": "/", "created": None}


def is_record(key: str) -> bool:
    """Return whether the object `key` is a record, whose form is checked."""
    return key.rpartition("/")[2] in RECORDS


def misplaced_part(key: str, record: Record) -> str:
    """Return a field that the record in `key` lacks, or an id field that does not fit the key; "" if there is none.

    hsparse and HSDS have always stored these fields, so a record that lacks one is damaged, even without a checksum.
    """
    name = key.rpartition("/")[2]
    tree = tree_of_key(key)
    if name not in NEEDED or tree is None:
        return ""
    if not _has_key(record.get("id", ""), key):
        return "id"
    if record.get("root") != tree[0]:
        return "root"
    return next((part for part in NEEDED[name] if part not in record), "")


def _has_key(id: str, key: str) -> bool:
    try:
        return storage_key(check_id(id)) == key
    except (BadRequest, NotFound):
        return False


def wrong_part(key: str, record: Record) -> str:
    """Return the path of a field with a wrong type in the record in `key`, or an empty string if there is none."""
    if not is_record(key):
        return ""
    for names, types in ((NUMBERS, (float, int)), (TEXTS, (str,)), (OBJECTS, (dict,))):
        for name in names:
            if name in record and type(record[name]) not in types:
                return name
    return (
        next((name for name in IDS if name in record and not _is_id(record[name])), "")
        or _wrong_type(record, "type")
        or _wrong_shape(record.get("shape", NO_SHAPE), "shape")
        or _wrong_sizes(record.get("layout", {}), "layout")
        or _wrong_layout(record.get("creationProperties", {}).get("layout"))
        or _wrong_member(record.get("acls"), "acls", lambda _: "")
        or _wrong_first_name(record.get("firstName", NO_NAME))
        or _wrong_member(record.get("links"), "links", _wrong_link)
        or _wrong_member(record.get("attributes"), "attributes", _wrong_attribute)
    )


def _wrong_member(members: Json, path: str, check: Callable[[Record], str]) -> str:
    if members is None:
        return ""
    if type(members) is not dict:
        return path
    for name, member in members.items():
        if type(member) is not dict:
            return f"{path}/{name}"
        wrong = check(member)
        if wrong:
            return f"{path}/{name}/{wrong}"
    return ""


def _wrong_first_name(name: Record) -> str:
    path, created = name.get("path"), name.get("created")
    if type(path) is not str or not path.startswith("/"):
        return "firstName/path"
    return "" if created is None or isinstance(created, (float, int)) else "firstName/created"


def _wrong_layout(asked: Json) -> str:
    if asked and type(asked) is not dict:
        return "creationProperties/layout"
    return "creationProperties/layout/class" if asked and type(asked.get("class", "")) is not str else ""


def _wrong_link(link: Record) -> str:
    kind = link.get("class", HARD)
    if type(kind) is not str or kind not in TARGETS:
        return "class"
    target = link.get(TARGETS[kind])
    if not (_is_id(target) if kind == HARD else isinstance(target, str)):
        return TARGETS[kind]
    return "" if isinstance(link.get("created", 0), (float, int)) else "created"


def _wrong_attribute(attribute: Record) -> str:
    if not isinstance(attribute.get("created", 0), (float, int)):
        return "created"
    for name in ("type", "shape"):
        if name not in attribute:
            return name
    return _wrong_type(attribute, "type") or _wrong_shape(attribute["shape"], "shape")


def _is_id(id: Json) -> bool:
    """Return whether a value looks like an id; its other characters are checked where it is used."""
    return type(id) is str and id[1:2] == "-" and id[0] in COLLECTIONS


def _wrong_type(record: Record, path: str) -> str:
    item = record.get(path, "")
    if type(item) is dict and type(item.get("class", "")) is not str:
        return f"{path}/class"
    return path if type(item) not in (str, dict) else ""


def _wrong_shape(shape: Json, path: str) -> str:
    """Return the path of a wrong field of an HDF5/JSON shape: its class or a list of sizes; "" if there is none."""
    if type(shape) is not dict or type(shape.get("class")) is not str:
        return path
    if shape["class"] == "H5S_SIMPLE" and "dims" not in shape:
        return f"{path}/dims"
    return _wrong_sizes(shape, path)


def _wrong_sizes(item: Record, path: str) -> str:
    for name in ("dims", "maxdims"):
        sizes = item.get(name, [])
        if type(sizes) is not list:
            return f"{path}/{name}"
        for size in sizes:
            if (type(size) is not int or size < 0) and not (name == "maxdims" and size == UNLIMITED):
                return f"{path}/{name}"
    return ""


KEY = "crc32"
_BEGIN = b',\n"crc32":"'
_LENGTH = len(_BEGIN) + len('01234567"}')


def add_checksum(data: bytes) -> bytes:
    """Return the JSON of a non-empty object with its checksum added."""
    view = memoryview(data)[:-1]
    return b"".join((view, _end(view)))


def has_checksum(data: bytes) -> bool:
    """Return whether JSON ends with a checksum, right or wrong."""
    return data[-_LENGTH : len(_BEGIN) - _LENGTH] == _BEGIN


def check_checksum(data: bytes, key: str) -> None:
    """Raise `Corrupt` if the JSON in the object `key` ends with a checksum that does not match its bytes."""
    if has_checksum(data) and data[-_LENGTH:] != _end(memoryview(data)[:-_LENGTH]):
        raise Corrupt(f"The object {key} is damaged: its checksum is wrong; restore it from a copy.")


def drop_checksum(record: Record) -> None:
    """Remove the checksum, even an outdated one, from a decoded record."""
    record.pop(KEY, None)


def _end(data: Any) -> bytes:
    return b'%b%08x"}' % (_BEGIN, crc32(data))


DELTA = "delta"
"""The key in a base record whose value is the token of its delta; see `hsparse.dn.record_objects`."""
_TOKEN = re.compile("[0-9a-f]{16}")
_NAMED = re.compile(rb',"delta":"([0-9a-f]{16})","schema":[{][^{}]*[}],\n"crc32":"[0-9a-f]{8}"[}]$')
"""Matches the end of the JSON of a base record; the group is the token of its delta."""

NOT_FINITE = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}
"""The constants that other servers write in JSON for non-finite floats, with hsparse's names for them."""

OBJECT_BYTES = 1024
"""The memory of a cached object besides its record, in bytes."""
SAMPLE_BYTES = 16 * 1024
"""Bytes of the sample from which the memory of long JSON is estimated: counting all of it takes as long as parsing."""


class RecordCodec:
    """Encodes and decodes the record in the object `key`; raises `Unsupported` if the record needs a newer hsparse.

    Stored records have a checksum and, if needed, a `schema` (`hsparse.model.schema`). Decoding removes both, except a
    schema that forbids changes. `here` names optional features of this server that a record may need.
    """

    __slots__ = ("_here", "_key")

    def __init__(self, key: str, here: Collection[str] = ()) -> None:
        self._key = key
        self._here = here

    def decode(self, data: bytes) -> Record:
        check_checksum(data, self._key)
        try:
            record = parse_json(data)
        except ValueError as error:
            raise Corrupt(f"The object {self._key} is not valid JSON: {error}; restore a copy.") from error
        if not isinstance(record, dict):
            raise Corrupt(f"The object {self._key} is not a JSON object; restore it from a copy.")
        drop_checksum(record)
        wrong = wrong_part(self._key, record)
        if wrong:
            raise Corrupt(f"The object {self._key} has an invalid {wrong!r:.200}; restore it from a copy.")
        misplaced = "" if has_checksum(data) else misplaced_part(self._key, record)
        if misplaced:
            raise Corrupt(
                f"The object {self._key} lacks a valid {misplaced!r} of its own; restore the object from a copy."
            )
        if "schema" in record:
            self._check(record)
        return record

    def encode(self, value: Record, token: str = "") -> bytes:
        """Return the bytes to store for a whole record or, given the `token` of its delta, for a base record."""
        schema = with_deltas(schema_of(value)) if token else schema_of(value)
        if schema is not None:
            schema.check_readable(f"The object {self._key}", self._here)
        named = {**value, DELTA: token} if token else value
        data = orjson.dumps(named if schema is None else {**named, "schema": schema.to_json()})
        return add_checksum(data) if value and is_record(self._key) else data

    def take_delta(self, record: Record) -> str:
        """Remove the delta's token from a base record and return it, or return "" if the record has no delta."""
        if DELTA not in record:
            return ""
        token: Any = record.pop(DELTA)
        if not isinstance(token, str) or not _TOKEN.fullmatch(token):
            raise Corrupt(f"The object {self._key} has an invalid {DELTA!r}; restore it from a copy.")
        return token

    def delta_of(self, data: Buffer) -> str:
        """Return the delta's token in the bytes of a base record, or "" if the record has no delta."""
        match = _NAMED.search(data, max(0, len(data) - 4096))
        return "" if match is None else match[1].decode()

    def _check(self, record: Record) -> None:
        """Remove the schema from a record if this server knows all of it; a schema that remains forbids changes."""
        name = f"The object {self._key}"
        schema = parse_schema(record["schema"], name)
        schema.check_readable(name, self._here)
        if schema.writable:
            del record["schema"]

    def nbytes(self, value: Record, data: Buffer) -> int:
        return OBJECT_BYTES + memory_of_json(bytes(data))


def memory_of_json(data: bytes) -> int:
    """Return the approximate memory, in bytes, that JSON takes when parsed: 0.9 to 1.5 times the measured memory."""
    if len(data) > SAMPLE_BYTES:
        step, part = len(data) // 16, SAMPLE_BYTES // 16
        sample = b"".join(data[start : start + part] for start in range(0, step * 16, step))
        return memory_of_json(sample) * len(data) // len(sample)
    empty, dicts, lists = data.count(b"{}"), data.count(b"{"), data.count(b"[")
    names, commas = data.count(b'":'), data.count(b",")
    texts = max(data.count(b'"') // 2 - names, 0)
    items = max(commas + dicts - empty - names, 0)
    return len(data) + 208 * dicts - 144 * empty + 64 * lists + 24 * names + 50 * texts + 36 * items


def parse_json(data: bytes) -> Any:
    """Return the value of JSON, with the floats of `NOT_FINITE`; raise `ValueError` if it is not valid JSON."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        if b"NaN" not in data and b"Infinity" not in data:
            raise
        return json.loads(data, parse_constant=NOT_FINITE.__getitem__)
