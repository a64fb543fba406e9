"""Dense datasets as zarr arrays (zarr storage specification, version 2): chunks are encoded by HDF5's filters."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator, Sequence
from math import isnan
from typing import Any

import numpy as np

from hsparse.errors import Unsupported
from hsparse.format.filters.definition import Filter
from hsparse.format.filters.pipeline import codec_of
from hsparse.model.attribute import DIMENSION_NAMES, DIMENSION_ONLY, attribute_value_json

Json = dict[str, Any]
GROUP: Json = {"zarr_format": 2}
PLAIN = ("H5T_INTEGER", "H5T_FLOAT", "H5T_STRING", "H5T_ENUM", "H5T_BITFIELD")
"""The classes of attributes that zarr can have."""
DIMENSIONS = "_ARRAY_DIMENSIONS"
MASKED = "_FillValue"
"""The attribute whose value stands for missing data, by the conventions of CF."""


def zarr_array(
    shape: Sequence[int], chunk: Sequence[int], dtype: np.dtype[Any], fill: bytes, pipeline: Sequence[Filter]
) -> Json:
    """Return the `.zarray` of a dense dataset; `fill` has the bytes of one element, none for zero.

    Without bytes the fill value is null, which readers treat as zero: xarray masks elements equal to a fill value.
    `Unsupported` if zarr lacks the type or a filter.
    """
    return {
        "zarr_format": 2,
        "shape": list(shape),
        "chunks": list(chunk),
        "dtype": zarr_type(dtype),
        "fill_value": _fill(fill, dtype) if fill else None,
        "order": "C",
        # As filters, not as a compressor, because these are undone in the order of the pipeline.
        "filters": [codec_of(filter).numcodecs(filter.values) for filter in pipeline] or None,
        "compressor": None,
        "dimension_separator": ".",
    }


def zarr_type(dtype: np.dtype[Any]) -> Any:
    """Return the zarr type: numpy's name or, for a compound, the list of its fields."""
    if dtype.names is not None:
        return [[name, zarr_type(dtype[name])] for name in dtype.names]
    if dtype.subdtype is not None or dtype.kind not in "biufSV":
        raise Unsupported(f"zarr has no type for elements like {dtype}; read values, or the map in JSON.")
    return dtype.str


def masked_value(record: Json, dtype: np.dtype[Any]) -> bytes:
    """Return the bytes of the element that the attribute `_FillValue` has masked; none without that attribute."""
    stored = dict(plain_attributes(record)).get(MASKED)
    value = None if stored is None else _single(attribute_value_json(stored))
    if dtype.kind not in "iuf" or not isinstance(value, int | float):
        return b""
    try:
        return np.array(value, dtype).tobytes()
    except (OverflowError, ValueError):  # no element equals it
        return b""


def zarr_attributes(record: Json, dimensions: Sequence[str] | None, masked: bytes = b"") -> Json:
    """Return the `.zattrs` of a record: attributes of plain types, and the names of an array's dimensions.

    Attributes of one element are that element, as kerchunk has them. `masked` is the array's fill value if it has that
    of `_FillValue`, which is then in xarray's form: it reads that of arrays of version 3, as VirtualiZarr makes them.
    """
    found: Json = {name: _single(attribute_value_json(stored)) for name, stored in plain_attributes(record)}
    if masked and isinstance(found[MASKED], float):
        found[MASKED] = base64.b64encode(struct.pack("<d", found[MASKED])).decode()
    return found if dimensions is None else found | {DIMENSIONS: list(dimensions)}


def _single(value: Any) -> Any:
    """Return the element of a list, or of nested lists, that have one."""
    while isinstance(value, list) and len(value) == 1:
        value = value[0]
    return value


def plain_attributes(record: Json) -> Iterator[tuple[str, Json]]:
    """Yield names and stored forms of the user's attributes of plain types that have a value."""
    for name, stored in (record.get("attributes") or {}).items():
        kind = stored["type"].get("class") if isinstance(stored["type"], dict) else None
        if (
            kind in PLAIN
            and name not in DIMENSION_NAMES
            and "encoding" not in stored
            and stored.get("value") is not None
        ):
            yield name, stored


def scales_of(record: Json) -> list[str]:
    """Return the id of the first dimension scale of each dimension, empty without one."""
    rank = len(record["shape"].get("dims") or ())
    value = ((record.get("attributes") or {}).get("DIMENSION_LIST") or {}).get("value")
    if not isinstance(value, list) or len(value) != rank:
        return [""] * rank
    return [
        some[0].rpartition("/")[2] if isinstance(some, list) and some and isinstance(some[0], str) else ""
        for some in value
    ]


def is_scale(record: Json) -> bool:
    """Say whether a dataset is a dimension scale, which names its own dimension."""
    stored = (record.get("attributes") or {}).get("CLASS") or {}
    return stored.get("value") == "DIMENSION_SCALE" and len(record["shape"].get("dims") or ()) == 1


def is_only_dimension(record: Json) -> bool:
    """Say whether a dataset is a netCDF dimension that has a length and no values, which readers hide."""
    stored = (record.get("attributes") or {}).get("NAME") or {}
    return is_scale(record) and str(stored.get("value")).startswith(DIMENSION_ONLY)


def _fill(fill: bytes, dtype: np.dtype[Any]) -> Any:
    if dtype.names is not None or dtype.kind in "SV":
        return base64.b64encode(fill).decode()
    value = np.frombuffer(fill, dtype)[0].item()
    if isinstance(value, float) and value - value != 0:
        return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
