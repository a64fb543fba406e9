"""Attributes: conversion from requests to the stored form, and from the stored form to values.

The stored form is `{"type": item, "shape": dataspace, "value": JSON value}`. `value` is kept as the client wrote it;
null means that no value was given (elements are zero or empty). Values that JSON cannot hold (bytes that are not UTF-8)
are one base64 string of all elements' bytes, and the key `"encoding": "base64"` says so. Non-finite floats are stored
as `"nan"`, `"inf"` and `"-inf"`.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from hsparse.errors import BadRequest, TooLarge
from hsparse.model.attribute_json import WITHOUT_PARTS, Json
from hsparse.model.dataspace import dims_of, num_elements, parse_shape
from hsparse.model.datatype import Datatype, parse_type
from hsparse.model.element import Fixed
from hsparse.model.json_values import LIST_MEMORY, Values, from_json, item_count, json_size, to_json
from hsparse.model.short_text import short_repr
from hsparse.model.vlen_array import VlenArray, split_elements

MAX_ATTRIBUTE_BYTES = 32 * 1024 * 1024
MAX_NAME = 65_534
"""The most bytes of UTF-8 in a name: HDF5 stores the length, including a terminating zero, in 16 bits."""
UNCOUNTED_BYTES = 4096
"""A scalar attribute of at most this many bytes is accepted without counting the lists in its JSON."""
BASE64_ELEMENT = 2
"""Approximate minimum of base64 characters per element."""
DIMENSION_NAMES = frozenset(
    {
        "CLASS",
        "DIMENSION_LABELS",
        "DIMENSION_LIST",
        "NAME",
        "REFERENCE_LIST",
        "_NCProperties",
        "_Netcdf4Coordinates",
        "_Netcdf4Dimid",
        "_nc3_strict",
    }
)
"""Attributes with which HDF5 and netCDF describe a file's dimensions; netCDF readers hide them from users."""
DIMENSION_ONLY = "This is a netCDF dimension but not a netCDF variable"
"""Prefix of the attribute `NAME` of a dimension scale that has a length but no values."""


def check_name(name: Any) -> str:
    """Return `name` if it is a valid attribute name; raise `BadRequest` otherwise."""
    if not isinstance(name, str) or not 0 < len(name.encode(errors="surrogatepass")) <= MAX_NAME:
        raise BadRequest(
            f"An attribute's name must be text of 1 to {MAX_NAME} bytes of UTF-8, not {short_repr(name)}."
        )
    return name


def parse_attribute(body: Json, datatype: Datatype) -> Json:
    """Return the stored form of a request's attribute, whose value is JSON, the elements' bytes, or base64 text."""
    shape = parse_shape({key: value for key, value in body.items() if key != "maxdims"})
    shape.pop("maxdims", None)
    stored: Json = {"type": datatype.item, "shape": shape, "value": None}
    value = body.get("value")
    if value is None:
        check_size(shape, datatype)
        return stored
    if shape["class"] == "H5S_NULL":
        raise BadRequest("An attribute with a null dataspace has no value: leave the value out.")
    check_size(shape, datatype)
    if isinstance(value, bytes | bytearray):
        return attribute_from_bytes(value, shape, datatype)
    encoding = body.get("encoding")
    if encoding not in (None, "base64"):
        raise BadRequest(f"An attribute's encoding must be base64, not {short_repr(encoding)}.")
    # h5py-like clients also send `"encoding": "base64"` with lists of opaque values; JSON has base64 for each of these.
    if encoding is None or isinstance(value, list):
        values = from_json(value, dims_of(shape) or (), datatype.element)
        plain = isinstance(datatype.element, Fixed) and datatype.dtype.names is None
        kept = value if plain else _as_written(value, to_json(values, datatype.element))
        return stored | {"value": name_non_finite(kept)}
    return attribute_from_bytes(decode_base64(value), shape, datatype)


def parse_work(body: Json) -> int:
    """Return the approximate number of elements that `parse_attribute` converts one by one, to estimate its cost."""
    value = body.get("value")
    return len(value) // BASE64_ELEMENT if isinstance(value, str | bytes | bytearray) else item_count(value)


def _as_written(value: Any, normal: Any) -> Any:
    """Return `normal` with its numbers and strings as the client wrote them in `value`, so that every digit is kept."""
    if isinstance(value, list | tuple) and isinstance(normal, list) and len(value) == len(normal):
        return [_as_written(part, other) for part, other in zip(value, normal, strict=True)]
    same = isinstance(value, str) and isinstance(normal, str)
    return value if same or (_is_number(value) and _is_number(normal)) else normal


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def attribute_from_bytes(data: bytes | bytearray, shape: Json, datatype: Datatype) -> Json:
    """Return the stored form of an attribute whose elements have the bytes `data` (vlen parts are length-prefixed)."""
    check_size(shape, datatype)
    if len(data) > MAX_ATTRIBUTE_BYTES:
        raise TooLarge(f"The value has {len(data)} bytes; the limit of attributes is {MAX_ATTRIBUTE_BYTES}.")
    values = unpack_elements(data, shape, datatype)
    stored: Json = {"type": datatype.item, "shape": shape}
    try:
        return stored | {"value": name_non_finite(to_json(values, datatype.element))}
    except BadRequest:  # bytes that are not UTF-8
        return stored | {"value": base64.b64encode(data).decode(), "encoding": "base64"}


def attribute_values(stored: Json) -> Values:
    """Return a stored attribute's values in its dataspace's shape; raise `BadRequest` for a null dataspace."""
    datatype, shape = parse_type(stored["type"]), stored["shape"]
    dims = dims_of(shape)
    if dims is None:
        raise BadRequest("An attribute with a null dataspace has no value.")
    value = stored.get("value")
    if value is None:
        if isinstance(datatype.element, Fixed):
            return np.zeros(dims, datatype.dtype)
        return VlenArray.of([bytes(datatype.element.min_size)] * num_elements(shape), dims)
    if stored.get("encoding") == "base64" and isinstance(value, str):
        return unpack_elements(decode_base64(value), shape, datatype)
    return from_json(value, dims, datatype.element)


def attribute_bytes(stored: Json) -> bytes:
    """Return the bytes of a stored attribute's elements, as binary responses send them."""
    values = attribute_values(stored)
    return values.heap.tobytes() if isinstance(values, VlenArray) else values.tobytes()


def attribute_size(stored: Json) -> int:
    """Return the size of an attribute's value in bytes; the size of variable-length elements is estimated."""
    return num_elements(stored["shape"]) * parse_type(stored["type"]).guessed_size


def answer_work(attributes: Iterable[Json]) -> int:
    """Return the approximate number of JSON items visited when stored attributes are sent, to estimate the cost."""
    return sum(map(_items, attributes))


def _items(stored: Json) -> int:
    """Return the number of elements or of JSON items, whichever is larger: one element may be a list of millions."""
    count, item = num_elements(stored["shape"]), stored["type"]
    if isinstance(item, dict) and item.get("class") in WITHOUT_PARTS:
        return count
    return max(count, item_count(stored.get("value")))


def check_size(shape: Json, datatype: Datatype) -> None:
    """Raise `TooLarge` if the elements and the lists of their JSON would take more than `MAX_ATTRIBUTE_BYTES`."""
    element = datatype.element
    if (
        shape["class"] == "H5S_SCALAR"
        and isinstance(element, Fixed)
        and element.dtype.itemsize <= UNCOUNTED_BYTES
    ):
        return
    lists = json_size(dims_of(shape) or (), datatype.element).lists
    size = num_elements(shape) * datatype.guessed_size + lists * LIST_MEMORY
    if size > MAX_ATTRIBUTE_BYTES:
        raise TooLarge(
            f"The attribute would take {size} bytes, including {LIST_MEMORY} for each of its {lists} JSON lists; the "
            f"limit is {MAX_ATTRIBUTE_BYTES}: make it a dataset."
        )


def unpack_elements(data: bytes | bytearray, shape: Json, datatype: Datatype) -> Values:
    """Return the elements in `data` in the dataspace's shape; variable-length parts are length-prefixed.

    Raises `BadRequest` if `data` does not hold exactly the dataspace's elements.
    """
    dims = dims_of(shape) or ()
    if not isinstance(datatype.element, Fixed):
        return split_elements(data, datatype.element, dims)
    expected = num_elements(shape) * datatype.dtype.itemsize
    if len(data) != expected:
        raise BadRequest(f"The value has {len(data)} bytes; its type and dataspace need exactly {expected}.")
    return np.ndarray(dims, datatype.dtype, data)


def decode_base64(value: Any) -> bytes:
    """Return the bytes of a base64 string; raise `BadRequest` for anything else."""
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError, TypeError) as error:
        raise BadRequest(f"The value is not valid base64: {error}.") from error


def name_non_finite(value: Any) -> Any:
    """Return a JSON value with non-finite floats replaced by `"nan"`, `"inf"` and `"-inf"`."""
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, list | tuple):
        return [name_non_finite(part) for part in value]
    return value
