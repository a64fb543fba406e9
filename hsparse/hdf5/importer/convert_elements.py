"""Convert elements of a source dataset to the type of the virtual dataset that maps them, as libhdf5 does."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.errors import Unsupported
from hsparse.hdf5.format.messages.file_type import dims_of_array, names_of_enum
from hsparse.model.element import Fixed, element_of

NUMBERS = ("H5T_INTEGER", "H5T_FLOAT")
Array = NDArray[Any]


def convert_elements(values: Array, source: Any, target: Any) -> Array:
    """Convert values from type `source` to type `target`, both as JSON; raises `Unsupported` if no conversion exists.

    Numbers beyond the range of an integer type become the type's lowest or highest value. Compound fields match by
    name; fields that the source lacks become zero.
    """
    if source == target:
        return values
    kinds = source["class"], target["class"]
    if kinds[0] in NUMBERS and kinds[1] in NUMBERS:
        return _numbers(values, _dtype(target))
    if kinds == ("H5T_STRING", "H5T_STRING"):
        lengths = source["length"], target["length"]
        if "H5T_VARIABLE" not in lengths:
            return _texts(values, source, target)
        if lengths == ("H5T_VARIABLE", "H5T_VARIABLE"):
            return values
    if kinds == ("H5T_ENUM", "H5T_ENUM") and names_of_enum(source) == names_of_enum(target):
        return values.astype(_dtype(target))
    fixed = isinstance(element_of(source), Fixed) and isinstance(element_of(target), Fixed)
    if kinds == ("H5T_COMPOUND", "H5T_COMPOUND") and fixed:
        return _compounds(values, source, target)
    if kinds == ("H5T_ARRAY", "H5T_ARRAY") and fixed and dims_of_array(source) == dims_of_array(target):
        return convert_elements(values, source["base"], target["base"])
    raise Unsupported(
        f"Elements of type {source} cannot be converted to {target}: copy the data to a dataset of one type."
    )


def _dtype(item: Any) -> np.dtype[Any]:
    return element_of(item).dtype


def _numbers(values: Array, dtype: np.dtype[Any]) -> Array:
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            return values.astype(dtype)
    limits = np.iinfo(dtype)
    if values.dtype.kind != "f":
        own = np.iinfo(values.dtype)
        return np.clip(values, max(own.min, limits.min), min(own.max, limits.max)).astype(dtype)
    wide = values.astype(np.float64)
    over, under = wide >= float(limits.max), wide <= float(limits.min)
    with np.errstate(invalid="ignore"):
        found = np.where(over | under, 0, wide).astype(dtype)
    found[over], found[under] = limits.max, limits.min
    return found


def _texts(values: Array, source: Any, target: Any) -> Array:
    size = int(target["length"])
    texts = values.astype(f"S{values.dtype.itemsize}")
    if source["strPad"] == "H5T_STR_NULLTERM":
        texts = _cut_at_zeros(texts)
    elif source["strPad"] == "H5T_STR_SPACEPAD":
        texts = np.strings.rstrip(texts, b" ")
    if target["strPad"] == "H5T_STR_NULLTERM":
        # The target needs a terminating zero, also if the text is truncated.
        texts = texts.astype(f"S{max(1, size - 1)}") if size > 1 else np.zeros_like(texts, "S1")
    return texts.astype(_dtype(target))


def _cut_at_zeros(texts: Array) -> Array:
    """Return the texts, each truncated at its first zero byte."""
    rows = np.ascontiguousarray(texts).view(np.uint8).reshape(*texts.shape, texts.dtype.itemsize)
    ended = np.logical_or.accumulate(rows == 0, axis=-1)
    return np.where(ended, np.uint8(0), rows).view(texts.dtype)[..., 0]


def _compounds(values: Array, source: Any, target: Any) -> Array:
    result = np.zeros(values.shape, _dtype(target))
    known = {field["name"]: field["type"] for field in source["fields"]}
    for field in target["fields"]:
        name = field["name"]
        if name in known:
            result[name] = convert_elements(values[name], _item(known[name]), _item(field["type"]))
    return result


def _item(item: Any) -> Any:
    """Return a type as a JSON object; the name of a predefined type is expanded to an object."""
    if not isinstance(item, str):
        return item
    return {"class": "H5T_FLOAT" if item.startswith("H5T_IEEE") else "H5T_INTEGER", "base": item}
