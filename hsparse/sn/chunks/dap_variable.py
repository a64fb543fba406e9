"""Datasets as variables of DAP4 with chunks described by DMR++: atomic types, and the filters of plain HDF5."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from math import isfinite, isnan
from typing import Any

import numpy as np

from hsparse.errors import Unsupported
from hsparse.format.filters.definition import Filter
from hsparse.format.filters.pipeline import BY_ID
from hsparse.model.attribute import attribute_value_json
from hsparse.model.datatype import parse_type

Json = dict[str, Any]
DAP_TYPES = {"i": "Int", "u": "UInt", "f": "Float"}
SIZES = {"i": (1, 2, 4, 8), "u": (1, 2, 4, 8), "f": (4, 8)}
NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
"""Characters that an XML 1.0 document cannot contain."""
SPACES = {ord("\t"): "&#9;", ord("\n"): "&#10;", ord("\r"): "&#13;"}
"""White space that XML readers normalize in attributes."""


@dataclass(frozen=True, slots=True)
class DapVariable:
    """A variable: its type in DAP4, and attributes of `chunks` in DMR++. `compression` and `level` may be empty."""

    type: str
    byte_order: str
    fill: str
    compression: str
    level: str

    @classmethod
    def of(cls, dtype: np.dtype[Any], fill: bytes, pipeline: Sequence[Filter]) -> DapVariable:
        """Return the variable of a dense dataset; `fill` has the bytes of one element, none for zero.

        `Unsupported` if DAP4 lacks the type, or DMR++ the pipeline.
        """
        value = np.frombuffer(fill, dtype)[0].item() if fill and dtype.kind in "biuf" else 0
        return cls(
            dap_type(dtype),
            "BE" if dtype.str[0] == ">" else "LE",
            repr(value) if isinstance(value, float) else str(int(value)),
            *_compression(pipeline, dtype.itemsize),
        )


def dap_type(dtype: np.dtype[Any]) -> str:
    """Return DAP4's name of a type; `Unsupported` without one."""
    if dtype.kind == "b":
        return "Int8"
    if dtype.itemsize not in SIZES.get(dtype.kind, ()):
        raise Unsupported(f"DAP4 has no type for elements like {dtype}, or DMR++ no way to refer to them.")
    return f"{DAP_TYPES[dtype.kind]}{8 * dtype.itemsize}"


def dap_attribute(stored: Json) -> tuple[str, list[str]]:
    """Return the type and the values, as text, of a stored attribute of a plain type; arrays are flattened.

    `Unsupported` if DAP4 lacks the type.
    """
    datatype = parse_type(stored["type"])
    values = list(_flat(attribute_value_json(stored)))
    if datatype.item["class"] == "H5T_STRING":
        return "String", [str(value) for value in values]
    kind = dap_type(datatype.dtype)
    return kind, [_number(value) if kind.startswith("Float") else str(int(value)) for value in values]


def is_xml(text: str) -> bool:
    """Say whether an XML document can contain a text."""
    return NOT_XML.search(text) is None


def xml_text(text: str) -> str:
    """Escape text for a document or an attribute; `Unsupported` for characters that XML cannot contain."""
    if not is_xml(text):
        raise Unsupported(f"XML cannot have the text {text[:80]!r}.")
    return escape(text).translate(SPACES)


def _compression(pipeline: Sequence[Filter], size: int) -> tuple[str, str]:
    """Return the names of filters, and the level of the one that has a level."""
    ids = [filter.id for filter in pipeline]
    names = [BY_ID[id].dmrpp for id in ids if id in BY_ID]
    if len(names) < len(ids) or not all(names) or len(set(ids)) < len(ids):
        raise Unsupported(f"DMR++ has no pipeline like that of the HDF5 filters {ids}.")
    levels = [BY_ID[filter.id].dmrpp_level(filter.values, size) for filter in pipeline]
    return " ".join(names), "".join(levels)


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for one in value:
            yield from _flat(one)
    else:
        yield value


def _number(value: float) -> str:
    """Return a float in the form of XML Schema."""
    value = float(value)
    if isfinite(value):
        return repr(value)
    return "NaN" if isnan(value) else "INF" if value > 0 else "-INF"
