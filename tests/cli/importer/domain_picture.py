"""All that a domain shows over REST, with paths for ids: two domains that hold the same have the same picture."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from hsparse.client.connection import Connection
from hsparse.format.chunk_spec import chunk_spec
from hsparse.format.filters.definition import Filter
from hsparse.format.selections.selection_json import parse_selection_json
from hsparse.hdf5.format.messages.file_type import (
    FileType,
    file_type,
    has_addresses,
    has_references,
    names_of_enum,
)
from hsparse.model.dataspace import dims_of, max_dims_of
from hsparse.model.datatype import parse_type

COLLECTIONS = {"g": "groups", "d": "datasets", "t": "datatypes"}
SPELLED = re.compile(r"(?:(?:groups|datasets|datatypes)/)?[gdt]?-?[0-9a-f]{8}(?:-[0-9a-f]+)+")
"""An id, with its collection in references, without its first letter in those to regions."""
KEPT = ("fillValue", "CreateOrder")
SPARSE = "H5D_SPARSE_DATA"
Picture = dict[str, Any]


@dataclass(frozen=True)
class Difference:
    """What is otherwise after a round trip: the object's path, what of it, and that before and after."""

    path: str
    what: str
    before: Any
    after: Any


def picture_of(connection: Connection) -> Picture:
    """Return each object by its path, the first of its paths that a walk by names meets."""
    root = connection.json("GET", "/")["root"]
    paths, ahead, links = {root: "/"}, [root], {}
    while ahead:
        id = ahead.pop()
        if id[0] != "g":
            continue
        links[id] = connection.json("GET", f"/groups/{id}/links", CreateOrder=1)["links"]
        below = sorted((link["title"], link["id"]) for link in links[id] if "id" in link)
        for title, child in below:
            if child not in paths:
                paths[child] = f"{paths[id].rstrip('/')}/{title}"
                ahead.append(child)
    short = {id.partition("-")[2]: path for id, path in paths.items()}

    def named(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: named(part) for key, part in value.items()}
        if isinstance(value, list):
            return [named(part) for part in value]
        if isinstance(value, str) and SPELLED.fullmatch(value):
            return f"-> {short.get(value.partition('-')[2], short.get(value, 'nowhere'))}"
        return value

    found = {}
    for id, path in paths.items():
        seen = _object(connection, id)
        if id in links:
            ordered = seen["properties"].get("CreateOrder")
            listed = [_link(link) for link in links[id]]
            seen["links"] = listed if ordered else sorted(listed, key=str)
        found[path] = named(seen)
    return found


def _link(link: Any) -> Any:
    return [
        link["title"],
        {key: link[key] for key in ("class", "id", "h5path", "file", "h5domain") if key in link},
    ]


def _type(item: Any) -> Any:
    """Return a type in one of the ways in which it can be told, and the committed one that it is of."""
    id = item.get("id") if isinstance(item, dict) else None
    plain = _spelled(file_type(parse_type(item).item))
    return plain if id is None else {**plain, "id": id}


def _spelled(stored: FileType) -> dict[str, Any]:
    item = {key: stored.item[key] for key in sorted(stored.item) if key not in ("base", "fields", "id")}
    parts = [_spelled(part) for part in stored.parts]
    if item["class"] == "H5T_ENUM":
        item = {"class": "H5T_ENUM", "names": names_of_enum(stored.item)}
    elif item["class"] == "H5T_COMPOUND":
        item["names"] = [one["name"] for one in stored.item["fields"]]
    elif not parts:
        item["base"] = stored.item.get("base")
    return {**item, "parts": parts}


def _object(connection: Connection, id: str) -> dict[str, Any]:
    url = f"/{COLLECTIONS[id[0]]}/{id}"
    record = connection.json("GET", url)
    properties = record.get("creationProperties") or {}
    seen: dict[str, Any] = {"properties": {key: properties[key] for key in KEPT if properties.get(key)}}
    listed = connection.json("GET", f"{url}/attributes", IncludeData=1, CreateOrder=1)["attributes"]
    seen["attribute names"] = [one["name"] for one in listed]
    if not properties.get("CreateOrder"):
        seen["attribute names"].sort()
    for one in listed:
        shown = {"type": _type(one["type"]), "shape": one["shape"], "value": one.get("value")}
        seen[f"attribute {one['name']}"] = shown
    if "type" in record:
        seen["type"] = _type(record["type"])
    if id[0] == "d":
        seen["shape"] = [dims_of(record["shape"]), max_dims_of(record["shape"])]
        datatype = parse_type(record["type"])
        stored = file_type(datatype.item)
        seen["has places"] = has_addresses(stored)
        seen["has references on heaps"] = datatype.is_vlen and has_references(stored)
        seen["layout"] = properties.get("layout")
        seen["grid"] = record.get("layout")
        if record["shape"]["class"] != "H5S_NULL":
            seen["pipelines"] = [list(map(_filter, some)) for some in chunk_spec(record).filters]
            seen["value"] = connection.json("GET", f"{url}/value")["value"]
            if SPARSE in ((seen["grid"] or {}).get("flags") or ()):
                seen["defined"] = _defined(connection, url, dims_of(record["shape"]) or ())
    return seen


def _filter(one: Filter) -> tuple[int, tuple[int, ...]]:
    return one.id, one.values


def _defined(connection: Connection, url: str, dims: tuple[int, ...]) -> list[list[int]]:
    """Return which elements are defined, in row-major order."""
    told = connection.json("GET", f"{url}/defined")
    selection = parse_selection_json(told.get("selection", told), dims)
    return sorted(selection.coords().tolist())


def differences(before: Picture, after: Picture) -> list[Difference]:
    """Return all differences, part by part of each object."""
    found = [
        Difference(path, "object", path in before, path in after)
        for path in sorted(before.keys() ^ after.keys())
    ]
    for path in sorted(before.keys() & after.keys()):
        one, other = before[path], after[path]
        for what in sorted(one.keys() | other.keys()):
            if what != "properties":
                pairs = [(what, one.get(what), other.get(what))]
            else:
                pairs = [(key, one[what].get(key), other[what].get(key)) for key in KEPT]
            found += [Difference(path, key, old, new) for key, old, new in pairs if not _same(old, new)]
    return found


def _same(one: Any, other: Any) -> bool:
    return repr(one) == repr(other)
