"""Translate the ids in an object's JSON that is read in another tree: of a snapshot, a clone or a domain.

Ids are the plain values of the keys `id`, `root`, `type` and `chunk_table`, and the targets of references. Quotes
within texts are escaped in stored JSON, so keys are found without parsing. Attribute values are parsed only if a type
has references.
"""

from __future__ import annotations

import re
from typing import Any, TypeAlias

import orjson

from hsparse.dn.record_form import add_checksum, has_checksum, parse_json
from hsparse.model.ids import ID_DOMAIN, moved_id

Json: TypeAlias = Any
CHECKSUM_LENGTH = len(b',\n"crc32":"01234567"}')
_REFERENCE = "H5T_REFERENCE"
_COLLECTION = re.compile("(?:groups/|datasets/|datatypes/)?")


def moved(data: bytes, root: str, to: str) -> bytes:
    """Return an object's JSON with its ids translated from the tree of the root group `root` to the tree of `to`."""
    if has_checksum(data):
        return add_checksum(_moved(data[:-CHECKSUM_LENGTH] + b"}", root, to))
    return _moved(bytes(data), root, to)


def _moved(data: bytes, root: str, to: str) -> bytes:
    half = root[ID_DOMAIN]
    keys = rb'("(?:id|root|type|chunk_table)"\s*:\s*")'
    data = re.sub(keys + re.escape(root).encode() + b'"', rb"\g<1>" + to.encode() + b'"', data)
    ids = keys + rb"([gdt]-)" + half.encode() + rb"(-[0-9a-f]{4}-[0-9a-f]{6}-[0-9a-f]{6}\")"
    data = re.sub(ids, rb"\g<1>\g<2>" + to[ID_DOMAIN].encode() + rb"\g<3>", data)
    if _REFERENCE.encode() not in data or half.encode() not in data:
        return data
    record = parse_json(data)
    _move_references(record, root, to)
    return orjson.dumps(record)


def _move_references(record: Json, root: str, to: str) -> None:
    """Translate the references in the attributes and the fill value of a record or a delta, in place."""
    attributes = record.get("attributes") or {}
    if "base" in record:  # a delta
        attributes = attributes.get("put") or {}
        record = (record.get("fields") or {}).get("put") or {}
    properties = record.get("creationProperties") or {}
    if "fillValue" in properties and "type" in record:
        properties["fillValue"] = _moved_value(record["type"], properties["fillValue"], root, to)
    for attribute in attributes.values():
        if "value" in attribute:
            attribute["value"] = _moved_value(attribute["type"], attribute["value"], root, to)


def _moved_value(kind: Json, value: Json, root: str, to: str) -> Json:
    """Return a value of the type `kind`, or nested lists of such values, with its references translated."""
    if not isinstance(kind, dict):
        return value
    match kind.get("class"):
        case "H5T_REFERENCE":
            return _moved_reference(value, root, to)
        case "H5T_VLEN" | "H5T_ARRAY":
            return _moved_value(kind.get("base"), value, root, to)
        case "H5T_COMPOUND":
            fields = _types(kind)
            if not isinstance(value, list):
                return value
            if _is_element(value, fields):
                return [_moved_value(*one, root, to) for one in zip(fields, value, strict=True)]
            return [_moved_value(kind, one, root, to) for one in value]
    return value


def _is_element(value: list[Json], fields: list[Json]) -> bool:
    """Return whether a list is one element of a compound type rather than a list of elements.

    A field whose type is not nested decides: in an element, the field's value is not a list.
    """
    if len(value) != len(fields):
        return False
    nests = ("H5T_VLEN", "H5T_ARRAY", "H5T_COMPOUND")
    plain = [
        at for at, one in enumerate(fields) if not isinstance(one, dict) or one.get("class") not in nests
    ]
    if plain:
        return not isinstance(value[plain[0]], list)
    return all(
        isinstance(item, list) and (one.get("class") != "H5T_COMPOUND" or _is_element(item, _types(one)))
        for item, one in zip(value, fields, strict=True)
    )


def _types(kind: Json) -> list[Json]:
    return [field.get("type") for field in kind.get("fields", ())]


def _moved_reference(value: Json, root: str, to: str) -> Json:
    if isinstance(value, list):
        return [_moved_reference(one, root, to) for one in value]
    if not isinstance(value, str):
        return value
    match = _COLLECTION.match(value)
    assert match is not None
    id = value[match.end() :]
    return match[0] + moved_id(id, root, to) if id[ID_DOMAIN] == root[ID_DOMAIN] else value
