"""Fill values: as creation properties name them, and as one element's bytes."""

from __future__ import annotations

import base64
import binascii
from math import prod
from typing import Any

from hsparse.errors import BadRequest
from hsparse.model.counted import split
from hsparse.model.datatype import Datatype
from hsparse.model.element import Fixed
from hsparse.model.json_form import from_json
from hsparse.model.not_finite import finite
from hsparse.model.variable_array import VariableArray


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

    A variable-length fill value has the counted form (`hsparse.model.counted`), in base64 too.
    """
    value = properties.get("fillValue")
    if value is None or (datatype.is_variable and value in ("", 0)):
        return b""
    convert = _decode if properties.get("fillValue_encoding") == "base64" else _convert
    data = convert(value, datatype)
    return data if any(data) else b""


def _decode(value: Any, datatype: Datatype) -> bytes:
    if not isinstance(value, str):
        raise BadRequest("A fillValue in base64 must be a string.")
    try:
        data = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadRequest(f"The fillValue is not valid base64: {error}.") from error
    if not isinstance(datatype.element, Fixed):
        return split(data, datatype.element, ()).heap.tobytes()
    if len(data) != datatype.dtype.itemsize:
        raise BadRequest(
            f"The fillValue has {len(data)} bytes; an element of the type has {datatype.dtype.itemsize}."
        )
    return data


def _convert(value: Any, datatype: Datatype) -> bytes:
    element = datatype.element
    if isinstance(element, Fixed) and element.dtype.subdtype is not None and not isinstance(value, list):
        # An array type's fill value may be one for all its elements.
        base, shape = element.dtype.subdtype
        return _convert(value, Datatype(None, Fixed(base))) * prod(shape)
    try:
        values = from_json(value, (), element)
    except BadRequest as error:
        raise BadRequest(f"The fillValue {value!r} does not fit the type: {error.message}") from error
    return values.heap.tobytes() if isinstance(values, VariableArray) else values.tobytes()
