"""How sizes, times, types and shapes are printed for people."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hsparse.client.connection import Json

UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
TEXT_TYPE = "H5T_STRING"
ANY_LENGTH = "H5T_VARIABLE"


def size_text(nbytes: int, *, human: bool) -> str:
    """Return a number of bytes, with `human` in the largest unit of which there is at least one."""
    if not human:
        return str(nbytes)
    value, unit = float(nbytes), 0
    while value >= 1024 and unit + 1 < len(UNITS):
        value, unit = value / 1024, unit + 1
    return f"{value:.1f} {UNITS[unit]}" if unit else f"{nbytes} B"


def time_text(seconds: float) -> str:
    """Return a time, given in seconds since the Unix epoch, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def shape_text(shape: Json) -> str:
    """Return a dataspace as h5ls shows it: `{3, 10/Inf}` may grow without bound in its second dimension."""
    dims, limits = shape.get("dims"), shape.get("maxdims")
    if shape["class"] != "H5S_SIMPLE" or dims is None:
        return "{null}" if shape["class"] == "H5S_NULL" else "{scalar}"
    extents = [
        str(size) if limit == size else f"{size}/{'Inf' if limit in (0, 'H5S_UNLIMITED') else limit}"
        for size, limit in zip(dims, limits or dims, strict=True)
    ]
    return f"{{{', '.join(extents)}}}"


def type_text(item: Any) -> str:
    """Return a type in short: a predefined name, or a class with what it is made of."""
    if not isinstance(item, dict):
        return str(item)
    kind, base = item["class"], item.get("base")
    if kind == "H5T_COMPOUND":
        fields = [f"{one['name']}: {type_text(one['type'])}" for one in item["fields"]]
        return f"{{{', '.join(fields)}}}"
    if kind == TEXT_TYPE:
        length = item.get("length")
        return "string" if length == ANY_LENGTH else f"string({length})"
    if kind == "H5T_ARRAY":
        return f"{type_text(base)}{item.get('dims')}"
    if kind == "H5T_OPAQUE":
        return f"opaque({item.get('size')})"
    word = {"H5T_VLEN": "vlen", "H5T_ENUM": "enum", "H5T_REFERENCE": "reference"}.get(kind)
    if word is not None:
        return f"{word}({type_text(base)})"
    return type_text(base) if base is not None else str(kind)


def filters_text(filters: list[Any]) -> str:
    """Return filters in the order of the pipeline, with their level, and the section of a chunk that one is for."""
    return ", ".join(map(_filter_text, filters))


def _filter_text(one: Any) -> str:
    if not isinstance(one, dict):
        return str(one)
    name = one.get("name") or str(one.get("class", one.get("id"))).removeprefix("H5Z_FILTER_").lower()
    level = one.get("level")
    section = one.get("section")
    return (
        name
        + (f"={level}" if level is not None else "")
        + (f" ({section.removeprefix('H5_SECTION_').lower()})" if isinstance(section, str) else "")
    )
