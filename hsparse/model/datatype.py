"""HDF5/JSON type items: checked, as numpy dtypes, and as answers have them.

The type of what a client creates: smaller than types that are stored already may be, and without unknown keys.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from hsparse.errors import BadRequest, TooLarge
from hsparse.model.dataspace import MAX_RANK
from hsparse.model.element import Element, Fixed, element_of
from hsparse.model.json_values import item_count
from hsparse.model.short_text import TextCache, short_repr, shorten

MAX_DEPTH = 32
MAX_PARTS = 10_000
MAX_ITEM_SIZE = 2**31 - 1
MAX_EMPTY_SIZE = 2**20
"""Bytes that an element of a variable-length type may take with nothing in it: arrays of many such parts do."""
CACHED_TEXT = 2 * 1024 * 1024
"""Characters of JSON whose types are remembered; a type takes some ten times as many bytes, an enum more."""
FEW_PARTS = 64
SHORT_TEXT = 1024
"""Items and characters in the JSON of a type that is looked up as a whole before it is checked."""
VLEN_GUESSED_SIZE = 128
"""Bytes a variable-length element is taken to have where a size must be guessed, as in HSDS."""


@dataclass(frozen=True, slots=True)
class Datatype:
    """A type item in its stored form (not to be modified), and what its elements are made of.

    Of a boolean enum (`FALSE`, `TRUE` over an 8-bit integer) the dtype is numpy's bool.
    """

    item: Any
    element: Element

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy type; variable-length parts and region references are objects in it."""
        return self.element.dtype

    @property
    def element_dtype(self) -> np.dtype[Any]:
        """The numpy type of an element as one thing: numpy would make an array's dimensions those of the data."""
        dtype = self.element.dtype
        return dtype if dtype.subdtype is None else np.dtype(f"V{dtype.itemsize}")

    @property
    def is_vlen(self) -> bool:
        """Say whether an element, or a part of one, has no fixed size."""
        return not isinstance(self.element, Fixed)

    @property
    def item_size(self) -> int | None:
        """Return the bytes of one element as HDF5 stores it, None when they vary."""
        return None if self.is_vlen else self.dtype.itemsize

    @property
    def guessed_size(self) -> int:
        """Return the bytes of one element, a guess when they vary."""
        return self.item_size or max(VLEN_GUESSED_SIZE, self.element.min_size)


def parse_type(item: Any) -> Datatype:
    """Return the type an HDF5/JSON item describes; `BadRequest` says what is wrong with it.

    A predefined name gets the form in which it is stored: `{"class": "H5T_INTEGER", "base": name}`. Names
    inside compound, array and variable-length types stay as they are.
    """
    if type(item) is dict and len(item) == 2:  # most datasets': a request asks for its type many times
        name, base = item.get("class"), item.get("base")
        if type(name) is str and type(base) is str:
            return _parse_named(name, base)
    return _parse_any(item)


@lru_cache(maxsize=256)
def _parse_named(name: str, base: str) -> Datatype:
    return _parse_any({"class": name, "base": base})


def _parse_any(item: Any) -> Datatype:
    check_item(item)
    try:
        text = json.dumps(item, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise BadRequest(f"The type is not a JSON value: {error}.") from error
    return _PARSED(text)


def _parse(text: str) -> Datatype:
    item = json.loads(text)
    try:
        element = element_of(item)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        reason = str(error.args[0]) if error.args else type(error).__name__
        raise BadRequest(f"The type {shorten(text)} is not valid: {shorten(reason)}.") from error
    most = MAX_ITEM_SIZE if isinstance(element, Fixed) else MAX_EMPTY_SIZE
    if not 0 < element.min_size <= most:
        raise BadRequest(
            f"An element of type {shorten(text)} would have at least {element.min_size} bytes, not 1 to {most}."
        )
    if isinstance(item, str):
        kind = "H5T_BITFIELD" if item.startswith("H5T_STD_B") else "H5T_INTEGER"
        item = {"class": "H5T_FLOAT" if element.dtype.kind == "f" else kind, "base": item}
    return Datatype(item, element)


_PARSED = TextCache(_parse, CACHED_TEXT, CACHED_TEXT // 8)


def check_item(item: Any) -> None:
    """Raise `BadRequest` for what is too large or too deep, or does not have the form of a type."""
    _check(item, 0, [0])


def _check(item: Any, depth: int, parts: list[int]) -> None:
    """Refuse items that are too large or too deep, and items that do not have the form of a type."""
    parts[0] += 1
    if depth > MAX_DEPTH:
        raise BadRequest(f"The type is nested more than {MAX_DEPTH} deep.")
    if parts[0] > MAX_PARTS:
        raise BadRequest(f"The type has more than {MAX_PARTS} parts.")
    if isinstance(item, str):
        if not item.startswith("H5T_"):
            raise BadRequest(f"{short_repr(item)} is not the name of a predefined type.")
        return
    if not isinstance(item, dict):
        raise BadRequest(f"A type must be a name or an object, not {short_repr(item)}.")
    name = item.get("class")
    check = _CHECKS.get(name) if isinstance(name, str) else None
    if check is None:
        raise BadRequest(f"The type class {short_repr(name)} is not one of {', '.join(_CHECKS)}.")
    check(item, depth, parts)


def _check_plain(item: dict[str, Any], depth: int, parts: list[int]) -> None:
    base = item.get("base")
    if not isinstance(base, str) or not base.startswith(("H5T_STD_", "H5T_IEEE_")):
        raise BadRequest(f"A type of class {item['class']} needs the name of a predefined type as base.")


def _check_string(item: dict[str, Any], depth: int, parts: list[int]) -> None:
    length = item.get("length")
    if length != "H5T_VARIABLE" and not _is_positive(length):
        raise BadRequest(
            f"A string's length must be a positive integer or H5T_VARIABLE, not {short_repr(length)}."
        )


def _check_opaque(item: dict[str, Any], depth: int, parts: list[int]) -> None:
    if not _is_positive(item.get("size")):
        raise BadRequest(
            f"An opaque type's size must be a positive integer, not {short_repr(item.get('size'))}."
        )


def _check_based(item: dict[str, Any], depth: int, parts: list[int]) -> None:
    _check(item.get("base"), depth + 1, parts)


def _check_array(item: dict[str, Any], depth: int, parts: list[int]) -> None:
    dims = item.get("dims")
    dims = [dims] if _is_int(dims) else dims
    if not isinstance(dims, list | tuple) or not dims or not all(_is_positive(dim) for dim in dims):
        raise BadRequest(
            f"An array type's dims must be positive integers, not {short_repr(item.get('dims'))}."
        )
    _check_based(item, depth, parts)


def _check_enum(item: dict[str, Any], depth: int, parts: list[int]) -> None:
    _check_based(item, depth, parts)
    mapping = item.get("mapping", item.get("members"))
    if isinstance(mapping, list):
        values = [
            member.get("value") if isinstance(member, dict) and "name" in member else None
            for member in mapping
        ]
    elif isinstance(mapping, dict):
        values = list(mapping.values())
    else:
        raise BadRequest("An enum's mapping must give a value for each name.")
    if not all(_is_int(value) for value in values):
        raise BadRequest("An enum's mapping must have an integer for each name.")


def _check_compound(item: dict[str, Any], depth: int, parts: list[int]) -> None:
    fields = item.get("fields")
    if not isinstance(fields, list) or not fields:
        raise BadRequest("A compound type needs a list of fields.")
    for field in fields:
        if not isinstance(field, dict) or not isinstance(field.get("name"), str) or not field["name"]:
            raise BadRequest(f"A field needs a name and a type; {short_repr(field)} has not both.")
        _check(field.get("type"), depth + 1, parts)
    if has_gaps(item) and not (
        _is_positive(item["size"])
        and all(_is_int(field["offset"]) and 0 <= field["offset"] < item["size"] for field in fields)
    ):
        raise BadRequest(
            "A compound's size must be a positive integer, its fields' offsets integers below it."
        )


def has_gaps(item: dict[str, Any]) -> bool:
    """Say whether a compound's item has its `size` and each field's `offset`, as files have them.

    Elements have no gaps anywhere else: they travel and are stored without.
    """
    return "size" in item and all("offset" in field for field in item["fields"])


_CHECKS: dict[str, Callable[[dict[str, Any], int, list[int]], None]] = {
    "H5T_INTEGER": _check_plain,
    "H5T_FLOAT": _check_plain,
    "H5T_STRING": _check_string,
    "H5T_BITFIELD": _check_plain,
    "H5T_OPAQUE": _check_opaque,
    "H5T_REFERENCE": _check_plain,
    "H5T_ENUM": _check_enum,
    "H5T_VLEN": _check_based,
    "H5T_ARRAY": _check_array,
    "H5T_COMPOUND": _check_compound,
}


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_positive(value: Any) -> bool:
    return _is_int(value) and value > 0


def type_json(item: Any) -> Any:
    """Return a type's JSON with an enum's names both as `mapping` (0.9: an object, which H5Web needs) and as
    `members` (1.0: a list), at any depth; the same object when it holds no enum."""
    if not isinstance(item, dict):
        return item
    answer = item
    if item.get("class") == "H5T_ENUM":
        answer = item | _names(item.get("mapping", item.get("members")))
    if (base := item.get("base")) is not None and (inner := type_json(base)) is not base:
        answer = answer | {"base": inner}
    if isinstance(fields := item.get("fields"), list):
        types = [type_json(field["type"]) for field in fields]
        if any(one is not field["type"] for one, field in zip(types, fields, strict=True)):
            pairs = zip(types, fields, strict=True)
            answer = answer | {"fields": [field | {"type": one} for one, field in pairs]}
    return answer


def _names(names: Any) -> dict[str, Any]:
    if isinstance(names, list):
        names = {member["name"]: member["value"] for member in names}
    return {"mapping": names, "members": [{"name": name, "value": value} for name, value in names.items()]}


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
    if item_count(item, FEW_PARTS) > FEW_PARTS:
        return _checked(item)
    try:
        text = json.dumps(item)
    except (TypeError, ValueError) as error:
        raise BadRequest(f"The type is not a JSON value: {error}.") from error
    return _requested(text) if len(text) <= SHORT_TEXT else _checked(item)


@lru_cache(maxsize=1024)
def _requested(text: str) -> Datatype:
    return _checked(json.loads(text))


def _checked(item: Any) -> Datatype:
    """Return the type of a request's item, which may be anything."""
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
