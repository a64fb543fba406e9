"""The form of a stored record: of which JSON type each part is, so that no reader meets anything else.

Items of types, values of attributes and what a creation property says are read, and refused, where they are used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hsparse.errors import BadRequest, NotFound
from hsparse.model.dataspace import UNLIMITED
from hsparse.model.ids import COLLECTIONS, check_id, storage_key, tree_of_key
from hsparse.model.link import EXTERNAL, HARD, SOFT
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
