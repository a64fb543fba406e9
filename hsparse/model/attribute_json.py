"""The JSON value of a stored attribute: the names of non-finite floats become floats again."""

from __future__ import annotations

import math
from typing import Any

from hsparse.model.dataspace import dims_of
from hsparse.model.datatype import parse_type
from hsparse.model.element import ArrayOfVlen, Compound, Element, Fixed, VlenSequence

Json = dict[str, Any]

NAMES = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}

WITHOUT_FLOATS = frozenset(
    f"H5T_{name}" for name in ("INTEGER", "STRING", "REFERENCE", "ENUM", "OPAQUE", "BITFIELD")
)
WITHOUT_PARTS = WITHOUT_FLOATS | {"H5T_FLOAT"}
"""Type classes whose elements are at most a few numbers or strings in JSON."""


def attribute_value_json(stored: Json, *, ignore_nan: bool = False) -> Any:
    """Return the stored value with names of non-finite floats replaced by floats, or by None if `ignore_nan`."""
    value, item = stored.get("value"), stored["type"]
    if not isinstance(value, str | list) or "encoding" in stored:
        return value
    if isinstance(item, dict) and item.get("class") in WITHOUT_FLOATS:
        return value
    element = parse_type(item).element
    if not has_floats(element):
        return value
    return restore_non_finite(value, element, len(dims_of(stored["shape"]) or ()), ignore_nan=ignore_nan)


def restore_non_finite(value: Any, element: Element, rank: int, *, ignore_nan: bool = False) -> Any:
    """Return `value`, nested in `rank` lists, with names replaced by non-finite floats (None if `ignore_nan`)."""
    if isinstance(element, Fixed) and element.dtype.names is None:
        if element.dtype.base.kind != "f":
            return value
        if isinstance(value, str):
            return None if ignore_nan else NAMES.get(value, value)
        return (
            [restore_non_finite(part, element, 0, ignore_nan=ignore_nan) for part in value]
            if isinstance(value, list)
            else value
        )
    if rank and isinstance(value, list):
        return [restore_non_finite(part, element, rank - 1, ignore_nan=ignore_nan) for part in value]
    parts = _parts(element)
    if parts is None or not isinstance(value, list):
        return value
    if isinstance(parts, tuple):
        return [
            restore_non_finite(part, kind, 0, ignore_nan=ignore_nan)
            for part, kind in zip(value, parts, strict=False)
        ]
    depth = len(element.dims) if isinstance(element, ArrayOfVlen) else 1
    return restore_non_finite(value, parts, depth, ignore_nan=ignore_nan)


def _parts(element: Element) -> Element | tuple[Element, ...] | None:
    """Return a tuple of a compound's fields, the base of an array or sequence, or None for any other element."""
    if isinstance(element, Compound):
        return element.parts
    if isinstance(element, Fixed):
        dtype = element.dtype
        return tuple(Fixed(dtype[name]) for name in dtype.names or ())
    return element.base if isinstance(element, ArrayOfVlen | VlenSequence) else None


def has_floats(element: Element) -> bool:
    """Return whether an element is or contains a float."""
    if isinstance(element, Fixed) and element.dtype.names is None:
        base = element.dtype
        while base.subdtype is not None:
            base = base.subdtype[0]
        return base.kind == "f" if base.names is None else has_floats(Fixed(base))
    parts = _parts(element)
    return (
        any(map(has_floats, parts)) if isinstance(parts, tuple) else parts is not None and has_floats(parts)
    )
