"""Attributes: from the form of requests to the stored form, and from there to values.

The stored form is `{"type": item, "shape": dataspace, "value": JSON value}`. `value` is as it was written, and null
where none was given (all zero, or empty). Values that JSON cannot hold (bytes that are no UTF-8) are one base64 string
of all elements' bytes, with `"encoding": "base64"` beside it. Floats that JSON has no number for are their names:
`"nan"`, `"inf"`, `"-inf"`.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from hsparse.errors import BadRequest, TooLarge
from hsparse.model.dataspace import dims_of, num_elements, parse_shape
from hsparse.model.datatype import Datatype, parse_type
from hsparse.model.element import ArrayOfVlen, Compound, Element, Fixed, VlenSequence
from hsparse.model.json_values import LIST_MEMORY, Values, from_json, item_count, json_size, to_json
from hsparse.model.short_text import short_repr
from hsparse.model.vlen_array import VlenArray, split_elements

MAX_ATTRIBUTE_BYTES = 32 * 1024 * 1024
MAX_NAME = 65_534
"""Bytes of UTF-8 that HDF5 allows a name: its length, with a zero behind it, has 16 bits."""
SMALL = 4096
"""Bytes of one element whose lists, at most one for each of its bytes and dimensions, are few enough."""
BASE64_ELEMENT = 2
"""About the fewest characters of base64 of an element."""
WITHOUT_FLOATS = frozenset(
    f"H5T_{name}" for name in ("INTEGER", "STRING", "REFERENCE", "ENUM", "OPAQUE", "BITFIELD")
)
WITHOUT_PARTS = WITHOUT_FLOATS | {"H5T_FLOAT"}
"""Classes whose elements are one number or text in JSON, or a few."""
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
"""Attributes by which HDF5 and netCDF say how a file has dimensions: netCDF's readers hide them, they are no data."""
DIMENSION_ONLY = "This is a netCDF dimension but not a netCDF variable"
"""What the `NAME` of a dimension scale begins with that has a length and no values."""
Json = dict[str, Any]


def check_name(name: Any) -> str:
    """Return an attribute's name; `BadRequest` when it is none."""
    if not isinstance(name, str) or not 0 < len(name.encode(errors="surrogatepass")) <= MAX_NAME:
        raise BadRequest(
            f"An attribute's name must be text of 1 to {MAX_NAME} bytes of UTF-8, not {short_repr(name)}."
        )
    return name


def parse_attribute(body: Json, datatype: Datatype) -> Json:
    """Return the stored form of the attribute in a request; its type was parsed before.

    The value is a JSON value that fits type and dataspace, its bytes or, with `"encoding": "base64"`, these as text.
    """
    shape = parse_shape({key: value for key, value in body.items() if key != "maxdims"})
    shape.pop("maxdims", None)
    stored: Json = {"type": datatype.item, "shape": shape, "value": None}
    value = body.get("value")
    if value is None:
        check_size(shape, datatype)
        return stored
    if shape["class"] == "H5S_NULL":
        raise BadRequest("An attribute with a null dataspace has no value; leave it out.")
    check_size(shape, datatype)
    if isinstance(value, bytes | bytearray):
        return attribute_from_bytes(value, shape, datatype)
    encoding = body.get("encoding")
    if encoding not in (None, "base64"):
        raise BadRequest(f"An attribute's encoding must be base64, not {short_repr(encoding)}.")
    # h5py-like clients say base64 of opaque values, each of which is a base64 string in JSON anyway.
    if encoding is None or isinstance(value, list):
        values = from_json(value, dims_of(shape) or (), datatype.element)
        plain = isinstance(datatype.element, Fixed) and datatype.dtype.names is None
        kept = value if plain else _as_written(value, to_json(values, datatype.element))
        return stored | {"value": name_non_finite(kept)}
    return attribute_from_bytes(decode_base64(value), shape, datatype)


def parse_work(body: Json) -> int:
    """Return about how many elements `parse_attribute` looks at one by one."""
    value = body.get("value")
    return len(value) // BASE64_ELEMENT if isinstance(value, str | bytes | bytearray) else item_count(value)


def _as_written(value: Any, normal: Any) -> Any:
    """Return the normal form of a JSON value, in it the numbers and texts as they were written, to the last digit."""
    if isinstance(value, list | tuple) and isinstance(normal, list) and len(value) == len(normal):
        return [_as_written(part, other) for part, other in zip(value, normal, strict=True)]
    same = isinstance(value, str) and isinstance(normal, str)
    return value if same or (_is_number(value) and _is_number(normal)) else normal


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def attribute_from_bytes(data: bytes | bytearray, shape: Json, datatype: Datatype) -> Json:
    """Return the stored form of an attribute given as its elements' bytes, length-prefixed where they vary."""
    check_size(shape, datatype)
    if len(data) > MAX_ATTRIBUTE_BYTES:
        raise TooLarge(f"The value has {len(data)} bytes; the limit is {MAX_ATTRIBUTE_BYTES}.")
    values = unpack_elements(data, shape, datatype)
    stored: Json = {"type": datatype.item, "shape": shape}
    try:
        return stored | {"value": name_non_finite(to_json(values, datatype.element))}
    except BadRequest:  # bytes that are no text
        return stored | {"value": base64.b64encode(data).decode(), "encoding": "base64"}


def attribute_values(stored: Json) -> Values:
    """Return an attribute's values in the dataspace's shape; `BadRequest` for a null dataspace."""
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
    """Return the bytes of an attribute's elements, as a binary answer has them."""
    values = attribute_values(stored)
    return values.heap.tobytes() if isinstance(values, VlenArray) else values.tobytes()


def attribute_size(stored: Json) -> int:
    """Return the bytes of an attribute's value, a guess for variable-length types."""
    return num_elements(stored["shape"]) * parse_type(stored["type"]).guessed_size


def answer_work(attributes: Iterable[Json]) -> int:
    """Return about how many items stored attributes have, each of which is looked at to answer with them."""
    return sum(map(_items, attributes))


def _items(stored: Json) -> int:
    """Return the number of elements or, as one may be a list of millions, that of the items of their JSON."""
    count, item = num_elements(stored["shape"]), stored["type"]
    if isinstance(item, dict) and item.get("class") in WITHOUT_PARTS:
        return count
    return max(count, item_count(stored.get("value")))


def attribute_value_json(stored: Json, *, ignore_nan: bool = False) -> Any:
    """Return the stored value, in it floats that are not finite as such again or, ignored, as None."""
    value, item = stored.get("value"), stored["type"]
    if not isinstance(value, str | list) or "encoding" in stored:
        return value
    if isinstance(item, dict) and item.get("class") in WITHOUT_FLOATS:
        return value
    element = parse_type(item).element
    if not has_floats(element):
        return value
    return restore_non_finite(value, element, len(dims_of(stored["shape"]) or ()), ignore_nan=ignore_nan)


def check_size(shape: Json, datatype: Datatype) -> None:
    """Refuse, as `TooLarge`, a value that would not be held in memory easily; its lists count, too."""
    element = datatype.element
    if shape["class"] == "H5S_SCALAR" and isinstance(element, Fixed) and element.dtype.itemsize <= SMALL:
        return
    lists = json_size(dims_of(shape) or (), datatype.element).lists
    size = num_elements(shape) * datatype.guessed_size + lists * LIST_MEMORY
    if size > MAX_ATTRIBUTE_BYTES:
        raise TooLarge(
            f"The attribute would have {size} bytes, {LIST_MEMORY} for each of its {lists} lists among them; the "
            f"limit is {MAX_ATTRIBUTE_BYTES}: make it a dataset."
        )


def unpack_elements(data: bytes | bytearray, shape: Json, datatype: Datatype) -> Values:
    """Return packed elements, length-prefixed where they vary, in the dataspace's shape.

    `BadRequest` for another number of them.
    """
    dims = dims_of(shape) or ()
    if not isinstance(datatype.element, Fixed):
        return split_elements(data, datatype.element, dims)
    expected = num_elements(shape) * datatype.dtype.itemsize
    if len(data) != expected:
        raise BadRequest(f"The value has {len(data)} bytes; its type and dataspace need {expected}.")
    return np.ndarray(dims, datatype.dtype, data)


def decode_base64(value: Any) -> bytes:
    """Return the bytes of a base64 string; `BadRequest` when it is none."""
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError, TypeError) as error:
        raise BadRequest(f"The value is not valid base64: {error}.") from error


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
