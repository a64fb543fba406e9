"""Records as clients see them: what is kept for our own use left out, both dialects' keys in."""

from __future__ import annotations

from math import prod
from typing import Any

from hsparse.model.attribute import attribute_size, shown_floats
from hsparse.model.dataspace import dims_of, shown_shape
from hsparse.model.layout import CHUNKED, STRUCTURED, chunk_dims, shown_layout
from hsparse.model.link import bare_link
from hsparse.model.objid import collection_of
from hsparse.model.shown_type import shown_type
from hsparse.wire.message import Record

CLASSES = {"groups": "group", "datasets": "dataset", "datatypes": "datatype"}


def shown_object(
    record: Record, *, links: bool = False, attributes: bool = False, ignore_nan: bool = False
) -> Record:
    """Return a group, dataset or committed type as answers show it; `ignore_nan` as for `shown_value`."""
    collection = collection_of(record["id"])
    shown: Record = {"id": record["id"], "root": record["root"]}
    if collection == "datasets":
        shown["shape"] = shown_shape(record["shape"])
        shown["type"] = shown_type(record["type"])
        shown |= _dataset_properties(record)
    elif collection == "datatypes":
        shown["type"] = shown_type(record["type"])
    shown["created"] = record["created"]
    shown["lastModified"] = record["lastModified"]
    if collection == "groups":
        shown["linkCount"] = len(record.get("links") or {})
    shown["attributeCount"] = len(record.get("attributes") or {})
    properties = record.get("creationProperties")
    if properties or (properties is not None and collection == "groups"):
        shown.setdefault("creationProperties", properties)
    if links and collection == "groups":
        shown["links"] = shown_links(record)
    if attributes:
        shown["attributes"] = shown_attributes(record, ignore_nan=ignore_nan)
    return shown


def shown_links(record: Record) -> Record:
    """Return a group's links by title."""
    return {title: bare_link(link) for title, link in (record.get("links") or {}).items()}


def shown_attributes(record: Record, *, ignore_nan: bool = False) -> Record:
    """Return an object's attributes by name, with their values."""
    attributes = record.get("attributes") or {}
    shown = {}
    for name, stored in attributes.items():
        shown[name] = {
            **stored,
            "type": shown_type(stored["type"]),
            "value": shown_value(stored, ignore_nan=ignore_nan),
        }
        shown[name].pop("lastModified", None)
    return shown


def shown_attribute(
    name: str, stored: Record, *, data: bool = True, max_size: int = 0, ignore_nan: bool = False
) -> Record:
    """Return an attribute as lists show it; with `max_size` (bytes) without values that are larger."""
    shown = {
        "name": name,
        "created": stored.get("created", 0),
        "type": shown_type(stored["type"]),
        "shape": stored["shape"],
    }
    if data and not 0 < max_size < attribute_size(stored):
        shown["value"] = shown_value(stored, ignore_nan=ignore_nan)
        if "encoding" in stored:
            shown["encoding"] = stored["encoding"]
    return shown


def shown_value(stored: Record, *, ignore_nan: bool = False) -> Any:
    """Return an attribute's value; floats that are not finite are floats or, with `ignore_nan`, None."""
    return shown_floats(stored, ignore_nan=ignore_nan)


def _dataset_properties(record: Record) -> Record:
    """Return creation properties with the layout asked for (1.0), and the chunk grid beside them (0.9)."""
    properties = {**(record.get("creationProperties") or {}), "layout": shown_layout(record)}
    dims = dims_of(record["shape"])
    if dims is None:
        return {"creationProperties": properties}
    layout = record.get("layout") or properties["layout"]
    if layout.get("class") != STRUCTURED:
        layout = {"class": CHUNKED, "dims": list(chunk_dims(record)) or [prod(dims)]}
    return {"creationProperties": properties, "layout": layout}
