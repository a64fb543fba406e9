"""What HDF5 has no place for in the layout of a virtual dataset: an attribute of its file, which an import takes back.

`hsparse_virtual` has a JSON object with those of `missing` ("fill"), `dims` and `flags` that the layout has.
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
    """Return the attribute of a virtual dataset that stays one; none for others, and where HDF5's layout says all."""
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
    """Return the body that creates a dataset with what the attribute says of its layout; the attribute is left out."""
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
    """Return what an attribute says, None if it is none of a dataset of `rank` dimensions."""
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
