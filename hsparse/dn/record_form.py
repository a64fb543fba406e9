"""The form of a stored record: of which JSON type each part is, so that no reader meets anything else.

Items of types, values of attributes and what a creation property says are read, and refused, where they are used.

The checksum of a stored record: its last key, in a form in which no other writer of JSON puts it.

    {"id": "g-...", "created": 1.5,
    "crc32":"0a1b2c3d"}

It is the CRC-32, in hex, of all bytes before the comma. HSDS and older versions of hsparse ignore the key. They keep
it when they store a changed record, but without the newline: so an outdated checksum is told from a wrong one.

The bytes of a record: JSON, with the `schema` that it needs.
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
"""The last parts of the keys of records; of other objects nothing is checked."""
NEEDED = {
    ".group.json": ("links", "attributes"),
    ".dataset.json": ("type", "shape", "attributes"),
    ".datatype.json": ("type", "attributes"),
}
"""What the record of an object has besides `id` and `root`."""
TARGETS = {HARD: "id", SOFT: "h5path", EXTERNAL: "h5path"}
"""Where each class of link has its target."""
NO_SHAPE = {"class": ""}
NO_NAME = {"path": "/", "created": None}


def is_record(key: str) -> bool:
    """Say whether the object `key` is a record, of which the form is checked."""
    return key.rpartition("/")[2] in RECORDS


def misplaced_part(key: str, record: Record) -> str:
    """Return a part that the record in `key` lacks, or an id in it that does not fit the key; empty if there is none.

    hsparse and HSDS have always stored these parts. So a record without a checksum that lacks one is damaged.
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
    """Return the path of a part of the record in `key` that is of a wrong type; empty if there is none."""
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
    """Say whether a text may be an id; those that cannot be are refused where they are used."""
    return type(id) is str and id[1:2] == "-" and id[0] in COLLECTIONS


def _wrong_type(record: Record, path: str) -> str:
    item = record.get(path, "")
    if type(item) is dict and type(item.get("class", "")) is not str:
        return f"{path}/class"
    return path if type(item) not in (str, dict) else ""


def _wrong_shape(shape: Json, path: str) -> str:
    """Check a shape item, as HDF5/JSON has it: its class, and lists of sizes."""
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
    """Return the JSON of an object, of at least one key, with its checksum."""
    view = memoryview(data)[:-1]
    return b"".join((view, _end(view)))


def has_checksum(data: bytes) -> bool:
    """Say whether JSON ends with a checksum, right or wrong."""
    return data[-_LENGTH : len(_BEGIN) - _LENGTH] == _BEGIN


def check_checksum(data: bytes, key: str) -> None:
    """Raise `Corrupt` if the JSON in the object `key` has a checksum, and another than its bytes have."""
    if has_checksum(data) and data[-_LENGTH:] != _end(memoryview(data)[:-_LENGTH]):
        raise Corrupt(f"The object {key} is damaged: its checksum is wrong; restore it from a copy.")


def drop_checksum(record: Record) -> None:
    """Remove the key from decoded JSON, an outdated checksum's too."""
    record.pop(KEY, None)


def _end(data: Any) -> bytes:
    return b'%b%08x"}' % (_BEGIN, crc32(data))


DELTA = "delta"
"""The key of a base record that has the token of its delta; see `hsparse.dn.record_objects`."""
_TOKEN = re.compile("[0-9a-f]{16}")
_NAMED = re.compile(rb',"delta":"([0-9a-f]{16})","schema":[{][^{}]*[}],\n"crc32":"[0-9a-f]{8}"[}]$')
"""The end of a base."""

NOT_FINITE = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}
"""The constants that other servers write into JSON for floats that are not finite, and our names for them."""

OVERHEAD = 1024
"""Bytes of memory of a cached object besides its record."""
SAMPLE = 16 * 1024
"""Bytes of JSON of which the memory is counted; counting them takes as long as parsing them."""


class RecordCodec:
    """JSON bytes <-> record, for the object of `key`; `Unsupported` for one that a newer hsparse must read.

    A record has its `schema` in the store alone (`hsparse.model.schema`), unless it must not be changed here, and its
    checksum (`hsparse.dn.record_form`) always. It may need the features of `here`, that are this server's alone.
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

    def encode(self, value: Record, token: str = "") -> bytes:
        """Return the bytes of a record that is one object or, with the token of its delta, those of its base."""
        schema = with_deltas(schema_of(value)) if token else schema_of(value)
        if schema is not None:
            schema.check_readable(f"The object {self._key}", self._here)
        named = {**value, DELTA: token} if token else value
        data = orjson.dumps(named if schema is None else {**named, "schema": schema.to_json()})
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

    def delta_of(self, data: Buffer) -> str:
        """Return the token of a base's delta, before it is decoded; empty for a record that is one object."""
        match = _NAMED.search(data, max(0, len(data) - 4096))
        return "" if match is None else match[1].decode()

    def _check(self, record: Record) -> None:
        """Take the schema out of a record if all of it is known; what is left of it forbids changes."""
        name = f"The object {self._key}"
        schema = parse_schema(record["schema"], name)
        schema.check_readable(name, self._here)
        if schema.writable:
            del record["schema"]

    def nbytes(self, value: Record, data: Buffer) -> int:
        return OVERHEAD + memory_of_json(bytes(data))


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
