"""Dense datasets as zarr arrays (zarr storage specification, version 2): chunks are encoded by HDF5's filters."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from math import isnan
from typing import Any

import numpy as np

from hsparse.errors import Unsupported
from hsparse.format.filters.definition import Filter
from hsparse.format.filters.table import codec_of
from hsparse.model.attribute import attribute_value_json

Json = dict[str, Any]
GROUP: Json = {"zarr_format": 2}
PLAIN = ("H5T_INTEGER", "H5T_FLOAT", "H5T_STRING", "H5T_ENUM", "H5T_BITFIELD")
"""The classes of attributes that zarr can have."""
ZARR_KEYS = (
    "CLASS",
    "NAME",
    "DIMENSION_LIST",
    "REFERENCE_LIST",
    "DIMENSION_LABELS",
    "_Netcdf4Dimid",
    "_NCProperties",
)
"""Attributes of HDF5's and netCDF's dimension scales, which xarray leaves out."""
DIMENSIONS = "_ARRAY_DIMENSIONS"


def zarr_array(
    shape: Sequence[int], chunk: Sequence[int], dtype: np.dtype[Any], fill: bytes, pipeline: Sequence[Filter]
) -> Json:
    """Return the `.zarray` of a dense dataset; `fill` has the bytes of one element, none for zero.

    A fill value of zero is null, which readers treat as zero: xarray would mask elements equal to a fill value.
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


def zarr_attributes(record: Json, dimensions: Sequence[str] | None) -> Json:
    """Return the `.zattrs` of a record: attributes of plain types, and the names of an array's dimensions."""
    found: Json = {name: attribute_value_json(stored) for name, stored in plain_attributes(record)}
    return found if dimensions is None else found | {DIMENSIONS: list(dimensions)}


def plain_attributes(record: Json) -> Iterator[tuple[str, Json]]:
    """Yield names and stored forms of the user's attributes of plain types that have a value."""
    for name, stored in (record.get("attributes") or {}).items():
        kind = stored["type"].get("class") if isinstance(stored["type"], dict) else None
        if (
            kind in PLAIN
            and name not in ZARR_KEYS
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


def _fill(fill: bytes, dtype: np.dtype[Any]) -> Any:
    if dtype.names is not None or dtype.kind in "SV":
        return base64.b64encode(fill).decode()
    value = np.frombuffer(fill, dtype)[0].item()
    if isinstance(value, float) and value - value != 0:
        return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
