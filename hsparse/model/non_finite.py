"""Floats that JSON has no number for: kept in records by their names, `"nan"`, `"inf"` and `"-inf"`."""

from __future__ import annotations

import math
from typing import Any

from hsparse.model.element import ArrayOfVlen, Compound, Element, Fixed, VlenSequence

NAMES = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def name_non_finite(value: Any) -> Any:
    """Return a JSON value with the floats that JSON has no number for replaced by their names."""
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, list | tuple):
        return [name_non_finite(part) for part in value]
    return value


def restore_non_finite(value: Any, element: Element, rank: int, *, ignore_nan: bool = False) -> Any:
    """Return a stored value, `rank` lists deep, its floats being floats again; with `ignore_nan` None instead."""
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
    """Return a compound's fields, the base of an array or sequence, or None."""
    if isinstance(element, Compound):
        return element.parts
    if isinstance(element, Fixed):
        dtype = element.dtype
        return tuple(Fixed(dtype[name]) for name in dtype.names or ())
    return element.base if isinstance(element, ArrayOfVlen | VlenSequence) else None


def has_floats(element: Element) -> bool:
    """Say whether floats are among an element's parts."""
    if isinstance(element, Fixed) and element.dtype.names is None:
        base = element.dtype
        while base.subdtype is not None:
            base = base.subdtype[0]
        return base.kind == "f" if base.names is None else has_floats(Fixed(base))
    parts = _parts(element)
    return (
        any(map(has_floats, parts)) if isinstance(parts, tuple) else parts is not None and has_floats(parts)
    )
