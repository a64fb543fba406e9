"""HDF5/JSON type items: validation, conversion to numpy dtypes, and the form sent in responses.

Types in requests are checked more strictly than stored types: they have a size limit, and unknown keys are removed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from hsparse.bounded_cache import remember
from hsparse.errors import BadRequest, TooLarge
from hsparse.model.dataspace import MAX_RANK
from hsparse.model.element import Element, Fixed, element_bytes, element_of
from hsparse.model.json_values import item_count
from hsparse.model.short_text import short_repr, shorten

MAX_DEPTH = 32
MAX_PARTS = 10_000
MAX_ITEM_SIZE = 2**31 - 1
MAX_EMPTY_SIZE = 2**20
"""The most bytes of an empty variable-length element; large arrays of variable-length parts would exceed it."""
CACHE_BYTES = 32 * 1024 * 1024
"""Bytes of memory for cached types."""
ITEM_BYTES = 10
"""Estimated bytes of memory that a type item takes per character of its JSON."""
FEW_PARTS = 64
SHORT_TEXT = 1024
"""Requested types with at most `FEW_PARTS` JSON items and `SHORT_TEXT` characters are cached by their JSON text."""
VLEN_GUESSED_SIZE = 128
"""The assumed bytes of a variable-length element wherever a size must be estimated, as in HSDS."""


@dataclass(frozen=True, slots=True)
class Datatype:
    """A type item in its stored form (never modify it), and the structure of its elements.

    A boolean enum (`FALSE` and `TRUE` over an 8-bit integer) has the dtype `bool`.
    """

    item: Any
    element: Element

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy dtype, in which variable-length parts and region references have the dtype object."""
        return self.element.dtype

    @property
    def element_dtype(self) -> np.dtype[Any]:
        """The dtype of a whole element; an array type becomes opaque, so that numpy does not append its dimensions."""
        dtype = self.element.dtype
        return dtype if dtype.subdtype is None else np.dtype(f"V{dtype.itemsize}")

    @property
    def is_vlen(self) -> bool:
        """Whether an element, or a part of it, is of variable length or a region reference."""
        return not isinstance(self.element, Fixed)

    @property
    def item_size(self) -> int | None:
        """Return the size of one element in bytes, or None if `is_vlen`."""
        return None if self.is_vlen else self.dtype.itemsize

    @property
    def guessed_size(self) -> int:
        """Return the size of one element in bytes, an estimate of at least `VLEN_GUESSED_SIZE` if `is_vlen`."""
        return self.item_size or max(VLEN_GUESSED_SIZE, self.element.min_size)


def parse_type(item: Any) -> Datatype:
    """Return the type that an HDF5/JSON item describes; raise `BadRequest` if the item is not valid.

    The name of a predefined type is expanded to its stored form, such as `{"class": "H5T_INTEGER", "base": name}`.
    Names inside compound, array and variable-length types are not expanded.
    """
    if type(item) is dict and len(item) == 2:  # the form of most types, which requests parse repeatedly
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
    return _parse(text)


def _weigh(datatype: Datatype, text: str) -> int:
    return ITEM_BYTES * len(text) + element_bytes(datatype.element)


@remember(CACHE_BYTES, _weigh)
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
            f"An element of type {shorten(text)} needs {element.min_size} bytes or more; the limits are 1 and {most}."
        )
    if isinstance(item, str):
        kind = "H5T_BITFIELD" if item.startswith("H5T_STD_B") else "H5T_INTEGER"
        item = {"class": "H5T_FLOAT" if element.dtype.kind == "f" else kind, "base": item}
    return Datatype(item, element)


def check_item(item: Any) -> None:
    """Raise `BadRequest` if `item` has too many parts, is nested too deeply, or does not have the form of a type."""
    _check(item, 0, [0])


def _check(item: Any, depth: int, parts: list[int]) -> None:
    """Check one item at nesting `depth`, as `check_item` does; `parts[0]` counts the items seen so far."""
    parts[0] += 1
    if depth > MAX_DEPTH:
        raise BadRequest(f"The type is nested more than {MAX_DEPTH} levels deep.")
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
            raise BadRequest(f"A field needs a name and a type; {short_repr(field)} does not have both.")
        _check(field.get("type"), depth + 1, parts)
    if has_gaps(item) and not (
        _is_positive(item["size"])
        and all(_is_int(field["offset"]) and 0 <= field["offset"] < item["size"] for field in fields)
    ):
        raise BadRequest(
            "A compound's size must be a positive integer, and its fields' offsets must be below the size."
        )


def has_gaps(item: dict[str, Any]) -> bool:
    """Return whether a compound's item has a `size`, and each of its fields has an `offset`, as in HDF5 files.

    The fields may then be separated by gaps in the file. Elements are transferred and stored without the gaps.
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
    """Return a type's JSON with the names of all enums, at any depth, both as `mapping` (HSDS 0.9: an object, which
    H5Web needs) and as `members` (HSDS 1.0: a list). Without any enum, return `item` itself."""
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
"""The most characters in the JSON of a requested type."""
MAX_NESTING = 200 - MAX_RANK
"""The deepest nesting of lists in an element's JSON; orjson writes 254 levels, including the dataspace's."""
BASED = frozenset(
    {"H5T_INTEGER", "H5T_FLOAT", "H5T_BITFIELD", "H5T_REFERENCE", "H5T_ENUM", "H5T_VLEN", "H5T_ARRAY"}
)
PLAIN_KEYS = frozenset({"class", "id", "size", "length", "charSet", "strPad", "tag"})
"""Keys of type items whose value is a number or a string, kept for every type class."""


def parse_requested_type(item: Any) -> Datatype:
    """Return the type that an item in a request describes, without unknown keys; see `parse_type`.

    Raises `TooLarge` beyond `MAX_TEXT` characters, and `BadRequest` if elements would be nested beyond `MAX_NESTING`.
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
    """Return the type of an item in a request, which may be any JSON value; see `parse_requested_type`."""
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
            f"An element would have lists nested {nesting} deep; the limit is {MAX_NESTING}: use arrays of fewer "
            "dimensions, or nest less."
        )
    return parse_type(item)


def _known(item: Any) -> Any:
    """Return a checked item without the keys that its type class does not define."""
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
    """Return how deeply lists are nested in the JSON of an element."""
    name = item["class"] if isinstance(item, dict) else None
    if name == "H5T_VLEN":
        return 1 + _nesting(item["base"])
    if name == "H5T_ARRAY":
        dims = item["dims"]
        return (len(dims) if isinstance(dims, list | tuple) else 1) + _nesting(item["base"])
    if name == "H5T_COMPOUND":
        return 1 + max(_nesting(field["type"]) for field in item["fields"])
    return 0
