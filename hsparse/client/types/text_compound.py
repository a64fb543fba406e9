"""Compounds of which some fields are text of variable length: from the bytes of the REST API, and back.

In numpy such a field has objects that are `str`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsparse.client.errors import WrongType
from hsparse.client.types.datatype import type_item
from hsparse.model.element import PREFIX_SIZE, Compound, Fixed
from hsparse.model.length_prefixed import field_bounds
from hsparse.model.vlen_array import VlenArray

TEXT_TYPE = {
    "class": "H5T_STRING",
    "charSet": "H5T_CSET_UTF8",
    "strPad": "H5T_STR_NULLTERM",
    "length": "H5T_VARIABLE",
}
"""Text of variable length in UTF-8, as h5py writes `str`."""


def text_compound_dtype(element: Compound) -> np.dtype[Any]:
    """Return numpy's type of a compound whose parts have a fixed size or are text."""
    fields = [
        (name, part.dtype if isinstance(part, Fixed) else np.dtype(object))
        for name, part in zip(element.names, element.parts, strict=True)
    ]
    return np.dtype(fields)


def text_compound_item(dtype: np.dtype[Any]) -> dict[str, Any]:
    """Return the type item of a dtype with fields of objects, which are text."""
    fields = [
        {"name": name, "type": TEXT_TYPE if dtype[name].hasobject else type_item(dtype[name])}
        for name in dtype.names or ()
    ]
    return {"class": "H5T_COMPOUND", "fields": fields}


def decode_text_compounds(values: VlenArray, element: Compound) -> NDArray[Any]:
    """Return elements as an array of `text_compound_dtype`, of their shape."""
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
                column[row] = data[first + PREFIX_SIZE : last].decode(errors="surrogateescape")
    return result.reshape(values.shape)


def encode_text_compounds(values: NDArray[Any], element: Compound) -> bytes:
    """Return such an array as the bytes of a request; `WrongType` for an object that is no text."""
    flat = values.reshape(-1)
    columns = []
    for name, part in zip(element.names, element.parts, strict=True):
        if isinstance(part, Fixed):
            column = np.empty(len(flat), [("", part.dtype)])
            column["f0"] = flat[name]
            packed, size = column.tobytes(), part.dtype.itemsize
            columns.append([packed[at : at + size] for at in range(0, len(packed), size)])
        else:
            columns.append([_prefixed(one, name) for one in flat[name].tolist()])
    return b"".join(piece for row in zip(*columns, strict=True) for piece in row)


def _prefixed(value: Any, name: str) -> bytes:
    if not isinstance(value, str):
        raise WrongType(f"{value!r:.40} in the field {name} is no text.")
    data = value.encode(errors="surrogateescape")
    return len(data).to_bytes(PREFIX_SIZE, "little") + data
