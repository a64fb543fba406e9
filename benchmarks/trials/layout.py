"""Request bodies that create a dataset in the layout chosen for each server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.workloads.case import SparseCase

TYPES = {
    "uint8": "H5T_STD_U8LE",
    "uint16": "H5T_STD_U16LE",
    "float32": "H5T_IEEE_F32LE",
    "float64": "H5T_IEEE_F64LE",
}
SHUFFLE = {"class": "H5Z_FILTER_SHUFFLE", "id": 2, "name": "shuffle"}
DEFLATE = {"class": "H5Z_FILTER_DEFLATE", "id": 1, "level": 4, "name": "deflate"}
GZIP = DEFLATE | {"level": 6}
ZSTD = {"class": "H5Z_FILTER_USER", "id": 32015, "name": "zstd", "parameters": [3]}
SELECTION = {"section": "H5_SECTION_SELECTION"}
FIXED = {"section": "H5_SECTION_FIXED"}


def type_of(dtype: np.dtype[np.generic]) -> str:
    """Return the predefined HDF5 name of a numpy type."""
    return TYPES[dtype.name]


def sparse(case: SparseCase, rows: int | None = None, codec: Mapping[str, Any] = ZSTD) -> dict[str, Any]:
    """Return the body that creates `case` as structured chunks, with `rows` rows (all by default).

    Both sections are shuffled and compressed: by default with TileDB's codec, at its level.
    """
    shuffle = [SHUFFLE | FIXED] if case.dtype.itemsize > 1 else []
    filters = [SHUFFLE | SELECTION, {**codec, **SELECTION}, *shuffle, {**codec, **FIXED}]
    layout = {"class": "H5D_STRUCT_CHUNK", "dims": list(case.chunk), "flags": ["H5D_SPARSE_DATA"]}
    return _growing(case, rows) | {"creationProperties": {"layout": layout, "filters": filters}}


def dense(case: SparseCase, rows: int | None = None) -> dict[str, Any]:
    """Return the body that creates `case` as a dense dataset with shuffle and gzip, the only form that HSDS has."""
    if case.dense_chunk is None:
        raise ValueError(f"{case.name} is too large to be stored densely.")
    layout = {"class": "H5D_CHUNKED", "dims": list(case.dense_chunk)}
    return _growing(case, rows) | {"creationProperties": {"layout": layout, "filters": [SHUFFLE, DEFLATE]}}


def _growing(case: SparseCase, rows: int | None) -> dict[str, Any]:
    first = case.extent[0] if rows is None else rows
    return {
        "type": type_of(case.dtype),
        "shape": [first, *case.extent[1:]],
        "maxdims": ["H5S_UNLIMITED", *case.extent[1:]],
    }
