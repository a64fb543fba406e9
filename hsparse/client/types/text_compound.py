"""Convert elements with vlen parts from the bytes of the REST API to numpy, and back.

In numpy a vlen part is an object: text is a `str`, a sequence or an array of vlen parts is an array, and a region
reference is its HDF5/JSON. Compounds are a structured array with object fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.client.errors import WrongType
from hsparse.client.types.datatype import type_item
from hsparse.model.element import (
    PREFIX_SIZE,
    ArrayOfVlen,
    Compound,
    Element,
    Fixed,
    Region,
    VlenSequence,
    VlenString,
)
from hsparse.model.link import region_bytes, region_json
from hsparse.model.vlen_array import VlenArray, field_bounds, skipper, split_elements

TEXT_TYPE = {
    "class": "H5T_STRING",
    "charSet": "H5T_CSET_UTF8",
    "strPad": "H5T_STR_NULLTERM",
    "length": "H5T_VARIABLE",
}
"""The type of vlen text in UTF-8, which h5py uses for `str`."""


def text_compound_dtype(element: Compound) -> np.dtype[Any]:
    """Return the dtype of a compound with vlen parts: these are object fields, array types keep their dimensions."""
    return np.dtype(
        [(name, _part_dtype(part)) for name, part in zip(element.names, element.parts, strict=True)]
    )


def _part_dtype(part: Element) -> np.dtype[Any]:
    if isinstance(part, Fixed):
        return part.dtype
    if isinstance(part, ArrayOfVlen):
        return np.dtype((_part_dtype(part.base), part.dims))
    return text_compound_dtype(part) if isinstance(part, Compound) else np.dtype(object)


def text_compound_item(dtype: np.dtype[Any]) -> dict[str, Any]:
    """Return the type item of a dtype with object fields: fields of `h5py.vlen_dtype` are sequences, others text."""
    fields = [{"name": name, "type": _field_item(dtype[name])} for name in dtype.names or ()]
    return {"class": "H5T_COMPOUND", "fields": fields}


def _field_item(dtype: np.dtype[Any]) -> dict[str, Any]:
    if not dtype.hasobject:
        return type_item(dtype)
    if dtype.subdtype is not None:
        base, dims = dtype.subdtype
        return {"class": "H5T_ARRAY", "dims": list(dims), "base": _field_item(base)}
    if dtype.names is not None:
        return text_compound_item(dtype)
    return sequence_item(dtype) or TEXT_TYPE


def sequence_item(dtype: np.dtype[Any]) -> dict[str, Any] | None:
    """Return the type item of a sequence dtype that `h5py.vlen_dtype` made, or None for text and other dtypes."""
    base = dict(dtype.metadata or {}).get("vlen")
    return None if base in (None, str, bytes) else {"class": "H5T_VLEN", "base": type_item(np.dtype(base))}


def decode_elements(values: VlenArray, element: Element) -> NDArray[Any]:
    """Return elements as an array of their shape, with the dtype object, or `text_compound_dtype` for compounds."""
    if isinstance(element, Compound):
        return _decode_compounds(values, element)
    return object_array([_decode_part(data, element) for data in values]).reshape(values.shape)


def _decode_compounds(values: VlenArray, element: Compound) -> NDArray[Any]:
    result = np.empty(values.size, text_compound_dtype(element))
    bounds = field_bounds(values, element)
    data = values.heap.tobytes()
    for place, (name, part) in enumerate(zip(element.names, element.parts, strict=True)):
        pairs = zip(bounds[:, place].tolist(), bounds[:, place + 1].tolist(), strict=True)
        if isinstance(part, Fixed):
            packed = b"".join(data[first:last] for first, last in pairs)
            result[name] = np.frombuffer(packed, part.dtype)
        else:
            column = result[name]
            for row, (first, last) in enumerate(pairs):
                column[row] = _decode_part(data[first:last], part)
    return result.reshape(values.shape)


def _decode_part(data: bytes, part: Element) -> Any:
    if isinstance(part, VlenString):
        return data[PREFIX_SIZE:].decode(errors="surrogateescape")
    if isinstance(part, Region):
        return region_json(data[PREFIX_SIZE:])
    if isinstance(part, VlenSequence):
        return _decode_sequence(data[PREFIX_SIZE:], part.base)
    if isinstance(part, ArrayOfVlen):
        return decode_elements(split_elements(data, part.base, part.dims), part.base)
    return decode_elements(split_elements(data, part, ()), part)[()]


def _decode_sequence(data: bytes, base: Element) -> NDArray[Any]:
    if isinstance(base, Fixed):
        return np.frombuffer(data, base.dtype)
    at, count, skip = 0, 0, skipper(base)
    while at < len(data):
        at, count = skip(data, at, len(data)), count + 1
    return decode_elements(split_elements(data, base, (count,)), base)


def encode_elements(values: NDArray[Any], element: Element) -> bytes:
    """Encode an array as `decode_elements` returns it for a request; raise `WrongType` for a wrong object."""
    if isinstance(element, Compound):
        return _encode_compounds(values, element)
    return b"".join(_encode_part(one, element) for one in values.reshape(-1))


def _encode_compounds(values: NDArray[Any], element: Compound) -> bytes:
    flat = values.reshape(-1)
    columns = []
    for name, part in zip(element.names, element.parts, strict=True):
        if isinstance(part, Fixed):
            column = np.empty(len(flat), [("", part.dtype)])
            column["f0"] = flat[name]
            packed, size = column.tobytes(), part.dtype.itemsize
            columns.append([packed[at : at + size] for at in range(0, len(packed), size)])
        else:
            columns.append([_encode_part(one, part, f" in the field {name}") for one in flat[name]])
    return b"".join(piece for row in zip(*columns, strict=True) for piece in row)


def _encode_part(value: Any, part: Element, place: str = "") -> bytes:
    if isinstance(part, VlenString):
        if not isinstance(value, str | bytes):
            raise WrongType(f"{value!r:.40}{place} is not text: give a str.")
        return _prefixed(value.encode(errors="surrogateescape") if isinstance(value, str) else value)
    if isinstance(part, Region):
        return _prefixed(region_bytes(value))
    if isinstance(part, Fixed):
        return np.asarray(value, part.dtype).tobytes()
    if isinstance(part, VlenSequence):
        if isinstance(part.base, Fixed):
            return _prefixed(np.asarray(value, part.base.dtype).tobytes())
        return _prefixed(b"".join(_encode_part(one, part.base, place) for one in value))
    if isinstance(part, ArrayOfVlen):
        array = np.asarray(value, object)
        if array.shape != part.dims:
            raise WrongType(f"{value!r:.40}{place} is not an array of the shape {list(part.dims)}.")
        return b"".join(_encode_part(one, part.base, place) for one in array.reshape(-1))
    return _encode_compounds(np.asarray(value, text_compound_dtype(part)), part)


def object_array(values: Sequence[Any]) -> NDArray[Any]:
    """Return values of any type as an array of objects, (n,)."""
    result = np.empty(len(values), object)
    for place, value in enumerate(values):
        result[place] = value
    return result


def _prefixed(data: bytes) -> bytes:
    return len(data).to_bytes(PREFIX_SIZE, "little") + data
