"""Attributes: from what a request sends to the stored form, and from there to values.

The stored form is `{"type": item, "shape": dataspace, "value": JSON value}`. `value` is null where none was
given (all zero). Fixed-size values that JSON cannot hold (bytes that are no UTF-8) are one base64 string
with `"encoding": "base64"` beside it. Floats that JSON has no number for are their names: `"nan"`, `"inf"`,
`"-inf"`.
"""

from __future__ import annotations

import base64
import binascii
from functools import reduce
from math import prod
from typing import Any

import numpy as np
from h5json import array_util
from numpy.typing import NDArray

from hsparse.errors import BadRequest, TooLarge
from hsparse.model.dataspace import dims_of, num_elements, parse_shape
from hsparse.model.datatype import Datatype, parse_type
from hsparse.model.fill_value import finite

MAX_ATTRIBUTE_BYTES = 32 * 1024 * 1024
MAX_NAME = 1024
Json = dict[str, Any]
CONVERSION_ERRORS = (KeyError, TypeError, ValueError, IndexError, AttributeError, ArithmeticError)
NOT_FINITE = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}


def check_name(name: Any) -> str:
    """Return an attribute's name; `BadRequest` when it is none."""
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME:
        raise BadRequest(f"An attribute's name must be a string of 1 to {MAX_NAME} characters, not {name!r}.")
    return name


def parse_attribute(body: Json, datatype: Datatype) -> Json:
    """Return the stored form of the attribute in a request; its type was parsed before.

    The value is a JSON value that fits type and dataspace or, with `"encoding": "base64"`, its bytes.
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
    encoding = body.get("encoding")
    if encoding not in (None, "base64"):
        raise BadRequest(f"An attribute's encoding must be base64, not {encoding!r}.")
    # h5py-like clients say base64 of opaque values, each of which is a base64 string in JSON anyway.
    if encoding is None or isinstance(value, list):
        convert_value(value, shape, datatype)
        return stored | {"value": finite(value)}
    return store_bytes(_decode(value), shape, datatype)


def store_bytes(data: bytes | bytearray, shape: Json, datatype: Datatype) -> Json:
    """Return the stored form of an attribute given as its elements' bytes; the type has a fixed size."""
    if datatype.item_size is None:
        raise BadRequest("Values of a variable-length type must be sent as JSON, not as bytes.")
    check_size(shape, datatype)
    expected = num_elements(shape) * datatype.item_size
    if len(data) != expected:
        raise BadRequest(f"The value has {len(data)} bytes; its type and dataspace need {expected}.")
    stored: Json = {"type": datatype.item, "shape": shape}
    array = array_util.bytesToArray(data, datatype.dtype, dims_of(shape) or ())
    value = _json(array)
    if value is None:
        return stored | {"value": base64.b64encode(data).decode(), "encoding": "base64"}
    return stored | {"value": value}


def attribute_array(stored: Json) -> NDArray[Any]:
    """Return an attribute's values in the dataspace's shape; `BadRequest` for a null dataspace."""
    datatype, shape = parse_type(stored["type"]), stored["shape"]
    dims = dims_of(shape)
    if dims is None:
        raise BadRequest("An attribute with a null dataspace has no value.")
    value = stored.get("value")
    if value is None:
        return np.zeros(dims, datatype.dtype)
    if stored.get("encoding") == "base64" and isinstance(value, str):
        array: NDArray[Any] = array_util.bytesToArray(_decode(value), datatype.dtype, dims)
        return array
    return convert_value(value, shape, datatype)


def attribute_bytes(stored: Json) -> bytes:
    """Return the bytes of an attribute's elements, as a binary answer has them."""
    data: bytes = array_util.arrayToBytes(attribute_array(stored))
    return data


def attribute_size(stored: Json) -> int:
    """Return the bytes of an attribute's value, a guess for variable-length types."""
    return num_elements(stored["shape"]) * parse_type(stored["type"]).guessed_size


def with_numbers(value: Any, *, ignore_nan: bool = False) -> Any:
    """Return a float attribute's stored value, what is not finite being floats again or, ignored, None."""
    if isinstance(value, str):
        return None if ignore_nan else NOT_FINITE.get(value, value)
    return [with_numbers(part, ignore_nan=ignore_nan) for part in value] if isinstance(value, list) else value


def is_float(stored: Json) -> bool:
    """Say whether the values are floats, or arrays of them."""
    item = stored["type"]
    while isinstance(item, dict) and item.get("class") == "H5T_ARRAY":
        item = item.get("base")
    return item.get("class") == "H5T_FLOAT" if isinstance(item, dict) else str(item).startswith("H5T_IEEE_F")


def check_size(shape: Json, datatype: Datatype) -> None:
    """Refuse, as `TooLarge`, a value that would not be held in memory easily."""
    size = num_elements(shape) * datatype.guessed_size
    if size > MAX_ATTRIBUTE_BYTES:
        raise TooLarge(
            f"The attribute would have {size} bytes; the limit is {MAX_ATTRIBUTE_BYTES}: make it a dataset."
        )


def convert_value(value: Any, shape: Json, datatype: Datatype) -> NDArray[Any]:
    """Return a JSON value in the shape of a dataspace that is not null; `BadRequest` when it does not fit."""
    dims = dims_of(shape) or ()
    if datatype.is_variable and dims:
        _check_lengths(value, dims)
    try:
        with np.errstate(over="raise", invalid="raise"):
            if datatype.dtype.names and not datatype.is_variable:
                return _records(value, dims, datatype.dtype)
            array: NDArray[Any] = array_util.jsonToArray(dims, datatype.dtype, _encoded(value, datatype))
    except CONVERSION_ERRORS as error:
        raise BadRequest(f"The value does not fit type and dataspace {list(dims)}: {error}.") from error
    return array


def _records(value: Any, dims: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return compound elements, for which h5json must guess what is a list of elements and what is one."""
    array = np.zeros(dims, dtype)
    if prod(dims) == 1 and _depth(value) < len(dims) + 1:
        value = reduce(lambda inner, _: [inner], dims, value)  # one element, without the lists around it
    array[...] = _tuples(value, len(dims), dtype)
    return array


def _tuples(value: Any, rank: int, dtype: np.dtype[Any]) -> Any:
    """Return `value` with each element of a compound type as a tuple, and text as bytes."""
    if rank > 0:
        return [_tuples(part, rank - 1, dtype) for part in value]
    if dtype.subdtype is not None:
        return _tuples(value, len(dtype.shape), dtype.base)
    if dtype.names is None:
        return value.encode() if isinstance(value, str) and dtype.kind == "S" else value
    if len(value) != len(dtype.names):
        raise ValueError(f"{len(dtype.names)} fields are needed, {len(value)} are given")
    return tuple(_tuples(part, 0, dtype[name]) for part, name in zip(value, dtype.names, strict=True))


def _depth(value: Any) -> int:
    return 1 + _depth(value[0]) if isinstance(value, list) and value else 0


def _encoded(value: Any, datatype: Datatype) -> Any:
    """Return `value` with text for fixed-size strings as bytes: numpy itself takes only ASCII."""
    if datatype.dtype.base.kind != "S":
        return value
    if isinstance(value, str):
        return value.encode()
    return [_encoded(part, datatype) for part in value] if isinstance(value, list) else value


def _check_lengths(value: Any, dims: tuple[int, ...]) -> None:
    """Check what h5json does not for variable-length types: too few elements."""
    if prod(dims) == 1 and not isinstance(value, list):
        return
    if not isinstance(value, list) or len(value) != dims[0]:
        raise BadRequest(f"The value does not have the {dims[0]} elements of the dataspace.")
    for part in value if len(dims) > 1 else ():
        _check_lengths(part, dims[1:])


def _decode(value: Any) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError, TypeError) as error:
        raise BadRequest(f"The value is not valid base64: {error}.") from error


def _json(array: NDArray[Any]) -> Any:
    """Return the values as JSON, None when JSON cannot hold them."""
    try:
        return finite(array_util.bytesArrayToList(array))
    except ValueError:  # bytes that are no text
        return None
