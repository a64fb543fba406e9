"""The type of what a client creates: smaller than types that are stored already may be, and without unknown keys."""

from __future__ import annotations

import json
from typing import Any

from hsparse.errors import BadRequest, TooLarge
from hsparse.model.dataspace import MAX_RANK
from hsparse.model.datatype import Datatype, check_item, has_gaps, parse_type

MAX_TEXT = 256 * 1024
"""The most characters of a type's JSON."""
MAX_NESTING = 200 - MAX_RANK
"""The most lists in each other that an element may be in JSON; orjson writes 254, with those around the element."""
BASED = frozenset(
    {"H5T_INTEGER", "H5T_FLOAT", "H5T_BITFIELD", "H5T_REFERENCE", "H5T_ENUM", "H5T_VLEN", "H5T_ARRAY"}
)
PLAIN_KEYS = frozenset({"class", "id", "size", "length", "charSet", "strPad", "tag"})
"""Keys of any type that have a number or a text."""


def parse_requested_type(item: Any) -> Datatype:
    """Return the type an HDF5/JSON item describes, as `parse_type` does.

    `TooLarge` for more than `MAX_TEXT`, and `BadRequest` for elements that would be nested too deeply.
    """
    check_item(item)
    item = _known(item)
    try:
        size = len(json.dumps(item))
    except (TypeError, ValueError) as error:
        raise BadRequest(f"The type is not a JSON value: {error}.") from error
    if size > MAX_TEXT:
        raise TooLarge(
            f"The type has {size} characters of JSON; the limit is {MAX_TEXT}: shorten its names, or divide it."
        )
    nesting = _nesting(item)
    if nesting > MAX_NESTING:
        raise BadRequest(
            f"An element would be {nesting} lists in each other; the limit is {MAX_NESTING}: use arrays of fewer "
            "dimensions, or nest less."
        )
    return parse_type(item)


def _known(item: Any) -> Any:
    """Return a checked item without the keys that its class does not have."""
    if not isinstance(item, dict):
        return item
    name = item["class"]
    found = {
        key: value for key, value in item.items() if key in PLAIN_KEYS and not isinstance(value, list | dict)
    }
    if name in BASED:
        found["base"] = _known(item["base"])
    if name == "H5T_ARRAY":
        found["dims"] = item["dims"]
    if name == "H5T_ENUM":
        key = "mapping" if "mapping" in item else "members"
        found[key] = _members(item[key])
    if name == "H5T_COMPOUND":
        keys = ("name", "offset") if has_gaps(item) else ("name",)
        found["fields"] = [
            {key: field[key] for key in keys} | {"type": _known(field["type"])} for field in item["fields"]
        ]
    return found


def _members(names: Any) -> Any:
    if isinstance(names, dict):
        return names
    return [{"name": one["name"], "value": one["value"]} for one in names]


def _nesting(item: Any) -> int:
    """Return how many lists an element is in JSON, in each other."""
    name = item["class"] if isinstance(item, dict) else None
    if name == "H5T_VLEN":
        return 1 + _nesting(item["base"])
    if name == "H5T_ARRAY":
        dims = item["dims"]
        return (len(dims) if isinstance(dims, list | tuple) else 1) + _nesting(item["base"])
    if name == "H5T_COMPOUND":
        return 1 + max(_nesting(field["type"]) for field in item["fields"])
    return 0
