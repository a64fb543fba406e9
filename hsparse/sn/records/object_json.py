"""Conversion of records to the JSON that clients get, with the keys of both dialects of the API (HSDS 0.9 and 1.0)."""

from __future__ import annotations

from math import prod

from hsparse.model.attribute import attribute_size
from hsparse.model.attribute_json import attribute_value_json
from hsparse.model.dataspace import dims_of, shape_json
from hsparse.model.datatype import type_json
from hsparse.model.ids import collection_of
from hsparse.model.initial_values import fill_value_json
from hsparse.model.layout import CHUNKED, STRUCTURED, chunk_dims, layout_json, stored_layout
from hsparse.model.link import group_link_json
from hsparse.wire.message import Record

OBJECT_CLASSES = {"groups": "group", "datasets": "dataset", "datatypes": "datatype"}


def object_json(
    record: Record, *, links: bool = False, attributes: bool = False, ignore_nan: bool = False
) -> Record:
    """Return the JSON of a group, dataset or committed type; `ignore_nan` is passed to `attribute_value_json`."""
    collection = collection_of(record["id"])
    found: Record = {"id": record["id"], "root": record["root"]}
    if collection == "datasets":
        found["shape"] = shape_json(record["shape"])
        found["type"] = type_json(record["type"])
        found |= _dataset_properties(record, ignore_nan=ignore_nan)
    elif collection == "datatypes":
        found["type"] = type_json(record["type"])
    found["created"] = record["created"]
    found["lastModified"] = record["lastModified"]
    if collection == "groups":
        found["linkCount"] = len(record.get("links") or {})
    found["attributeCount"] = len(record.get("attributes") or {})
    properties = record.get("creationProperties")
    if properties or (properties is not None and collection == "groups"):
        found.setdefault("creationProperties", properties)
    if links and collection == "groups":
        found["links"] = links_json(record)
    if attributes:
        found["attributes"] = attributes_json(record, ignore_nan=ignore_nan)
    return found


def links_json(record: Record) -> Record:
    """Return a dict that maps each title in a group to the JSON of its link."""
    return {title: group_link_json(link) for title, link in (record.get("links") or {}).items()}


def attributes_json(record: Record, *, ignore_nan: bool = False) -> Record:
    """Return a dict that maps each attribute's name to its JSON, including its value."""
    attributes = record.get("attributes") or {}
    found = {}
    for name, stored in attributes.items():
        found[name] = {
            **stored,
            "type": type_json(stored["type"]),
            "value": attribute_value_json(stored, ignore_nan=ignore_nan),
        }
        found[name].pop("lastModified", None)
    return found


def attribute_json(
    name: str, stored: Record, *, data: bool = True, max_size: int = 0, ignore_nan: bool = False
) -> Record:
    """Return an attribute's JSON in a list, without the value if it exceeds `max_size` bytes (0: no limit)."""
    found = {
        "name": name,
        "created": stored.get("created", 0),
        "type": type_json(stored["type"]),
        "shape": stored["shape"],
    }
    if data and not 0 < max_size < attribute_size(stored):
        found["value"] = attribute_value_json(stored, ignore_nan=ignore_nan)
        if "encoding" in stored:
            found["encoding"] = stored["encoding"]
    return found


def _dataset_properties(record: Record, *, ignore_nan: bool) -> Record:
    """Return `creationProperties` with the requested layout (dialect 1.0), and `layout` with the chunk dims (0.9)."""
    properties = {**(record.get("creationProperties") or {}), "layout": layout_json(record)}
    if "fillValue" in properties and not ignore_nan:
        properties["fillValue"] = fill_value_json(record)
    dims = dims_of(record["shape"])
    if dims is None:
        return {"creationProperties": properties}
    layout = stored_layout(record)
    if layout.get("class") != STRUCTURED:
        layout = {"class": CHUNKED, "dims": list(chunk_dims(record)) or [prod(dims)]}
    return {"creationProperties": properties, "layout": layout}
