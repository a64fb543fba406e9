"""Fill values: as creation properties name them, and as one element's bytes."""

from __future__ import annotations

import base64
import binascii
import math
from typing import Any

import numpy as np
from h5json import array_util

from hsparse.errors import BadRequest
from hsparse.model.datatype import Datatype


def parse_fill_value(properties: dict[str, Any], datatype: Datatype) -> dict[str, Any]:
    """Return the `fillValue` and `fillValue_encoding` of creation properties in their stored form.

    A float that JSON has no number for is stored as `"nan"`, `"inf"` or `"-inf"`.
    """
    encoding = properties.get("fillValue_encoding")
    if encoding not in (None, "None", "base64"):
        raise BadRequest(f"fillValue_encoding must be base64, not {encoding!r}.")
    if properties.get("fillValue") is None:
        return {}
    fill_bytes(properties, datatype)
    if encoding == "base64":
        return {"fillValue": properties["fillValue"], "fillValue_encoding": "base64"}
    return {"fillValue": finite(properties["fillValue"])}


def fill_bytes(properties: dict[str, Any], datatype: Datatype) -> bytes:
    """Return one element's bytes in the file type, empty when they are all zero or nothing was asked.

    A variable-length fill value has the form in which such values travel: u32 length in bytes, bytes.
    """
    value = properties.get("fillValue")
    if value is None or (datatype.is_variable and value in ("", 0)):
        return b""
    convert = _decode if properties.get("fillValue_encoding") == "base64" else _convert
    data = convert(value, datatype)
    return data if any(data) else b""


def finite(value: Any) -> Any:
    """Return a JSON value with the floats that JSON has no number for replaced by their names."""
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, list | tuple):
        return [finite(part) for part in value]
    return value


def _decode(value: Any, datatype: Datatype) -> bytes:
    size = datatype.item_size
    if not isinstance(value, str) or size is None:
        raise BadRequest("A fillValue in base64 must be a string, and the type must have a fixed size.")
    try:
        data = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadRequest(f"The fillValue is not valid base64: {error}.") from error
    if len(data) != size:
        raise BadRequest(f"The fillValue has {len(data)} bytes; an element of the type has {size}.")
    return data


def _convert(value: Any, datatype: Datatype) -> bytes:
    try:
        with np.errstate(over="raise", invalid="raise"):
            return _element(value, datatype)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, ArithmeticError) as error:
        raise BadRequest(f"The fillValue {value!r} does not fit the type: {error}.") from error


def _element(value: Any, datatype: Datatype) -> bytes:
    dtype = datatype.dtype
    if dtype.kind == "S" and isinstance(value, str):
        value = value.encode()
    if datatype.is_variable or dtype.kind == "V":
        return bytes(array_util.arrayToBytes(array_util.jsonToArray((), dtype, value)))
    # A broadcast: an array type's fill value may be one number for all its elements.
    array = np.zeros((), dtype)
    array[...] = value
    return array.tobytes()
