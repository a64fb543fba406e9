"""Store virtual layout properties that HDF5 lacks in an attribute of an exported file; imports read them back.

The attribute `hsparse_virtual` is a JSON object. It has the properties `missing`, `flags` and `dims` of the layout, but
not those that an import derives from the HDF5 layout.
"""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any

from hsparse.model.dataspace import dims_of
from hsparse.model.datatype import parse_type
from hsparse.model.file_backed import slab_dims
from hsparse.model.layout import SPARSE_DATA, VIRTUAL, chunk_dims, class_elsewhere

NAME = "hsparse_virtual"
Json = dict[str, Any]


def layout_attributes(record: Json) -> Json:
    """Return {name: attribute} for a virtual dataset, or an empty dict if HDF5 can store the whole layout."""
    if class_elsewhere(record) != VIRTUAL:
        return {}
    layout = record["creationProperties"]["layout"]
    kept = {"flags": layout["flags"]} if layout.get("flags") else {}
    kept |= {"missing": "fill"} if layout["missing"] == "fill" else {}
    grid, size = list(chunk_dims(record)), parse_type(record["type"]).guessed_size
    if kept.get("flags") or grid != list(slab_dims(dims_of(record["shape"]) or (), size)):
        kept["dims"] = grid
    if not kept:
        return {}
    text = json.dumps(kept)
    item = {
        "class": "H5T_STRING",
        "charSet": "H5T_CSET_ASCII",
        "strPad": "H5T_STR_NULLPAD",
        "length": len(text),
    }
    return {NAME: {"type": item, "shape": {"class": "H5S_SCALAR"}, "value": text}}


def with_layout(body: Json) -> Json:
    """Move layout properties from an attribute in a dataset's creation request to the request's layout."""
    attributes, properties = dict(body.get("attributes") or {}), body.get("creationProperties") or {}
    shape = body["shape"]
    rank = len((shape.get("dims") or ()) if isinstance(shape, dict) else shape)
    said = _parsed(attributes.get(NAME), rank)
    if said is None:
        return body
    del attributes[NAME]
    body = {**body, "attributes": attributes}
    layout = properties.get("layout") or {}
    if layout.get("class") == VIRTUAL:
        body["creationProperties"] = properties | {"layout": layout | said}
    return body


def _parsed(attribute: Json | None, rank: int) -> Json | None:
    """Return the layout properties in an attribute, or None if they are invalid for a dataset of `rank` dimensions."""
    if attribute is None or attribute.get("encoding") != "base64":
        return None
    try:
        found = json.loads(b64decode(attribute["value"]))
    except ValueError:
        return None
    if not isinstance(found, dict) or not set(found) <= {"missing", "dims", "flags"}:
        return None
    dims = found.get("dims", [1] * rank)
    is_grid = (
        isinstance(dims, list) and len(dims) == rank and all(type(one) is int and one > 0 for one in dims)
    )
    fits = found.get("missing", "fill") == "fill" and found.get("flags", [SPARSE_DATA]) == [SPARSE_DATA]
    return found if is_grid and fits else None
