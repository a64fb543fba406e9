"""Convert a Zarr store to the content of a domain: groups, arrays with their chunks, AnnData's sparse matrices."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import zarr

from hsparse.client.types.hdf5_type import attribute_body
from hsparse.errors import Unsupported
from hsparse.hdf5.format.plan.matrix_encoding import ANNDATA_KINDS, ENCODING_TYPE
from hsparse.hdf5.importer.formats.domain_parts import NULL, Bodies, DomainParts
from hsparse.hdf5.importer.formats.zarr_arrays import ZarrArray, sparse_matrix
from hsparse.hdf5.importer.formats.zarr_store import ZarrStore
from hsparse.hdf5.importer.source import path_in_errors

MEMBERS = ("data", "indices", "indptr")
"""The names of the arrays of an AnnData sparse matrix."""
DIMENSIONS = "_ARRAY_DIMENSIONS"
"""xarray's attribute for dimension names; Zarr format 3 stores these names outside of the attributes."""
MAX_EXACT_INTEGER = 1 << 53
"""Integers up to this absolute value are exact as float64."""
Json = dict[str, Any]


def open_zarr(place: str, name: str, *, as_is: bool) -> tuple[ZarrStore, Callable[[], DomainParts]]:
    """Return a pair: an open store, and a function that reads its parts. A root array becomes the dataset `name`."""
    store = ZarrStore.open(place)
    return store, partial(zarr_parts, store, name, as_is=as_is)


def zarr_parts(store: ZarrStore, name: str, *, as_is: bool) -> DomainParts:
    """Return all groups and arrays of a store; AnnData's csr and csc groups become sparse datasets unless `as_is`.

    Arrays of types that HDF5 does not have are skipped, with a message in `left`.
    """
    parts, found = DomainParts(), dict(store.nodes())
    arrays = {path: one for path, one in found.items() if isinstance(one, zarr.Array)}
    keys = store.chunk_keys(set(arrays))
    forms = (
        {}
        if as_is
        else {path: form for path, one in found.items() if (form := _matrix_form(path, one, arrays))}
    )

    def array(path: str) -> ZarrArray:
        with path_in_errors(f"/{path}"):
            return ZarrArray(path, arrays[path], keys[path])

    for path, node in found.items():
        if path.rpartition("/")[0] in forms and path:
            continue
        attributes = _attributes(node)
        if path in forms:
            members = {one: array(f"{path}/{one}") for one in MEMBERS}
            with path_in_errors(f"/{path}"):
                parts.matrices[path] = sparse_matrix(*forms[path], members), attributes
        elif path in arrays:
            is_none = node.attrs.get(ENCODING_TYPE) == "null"
            if is_none and path == "raw":
                continue  # AnnData's HDF5 files have no raw in this case
            try:
                with path_in_errors(f"/{path}"):
                    parts.arrays[path or name] = NULL if is_none else array(path).boxed(), attributes
            except Unsupported as error:
                parts.left.append(error.message)
        else:
            parts.groups[path] = attributes
    return parts


def _matrix_form(path: str, node: Any, arrays: Mapping[str, Any]) -> tuple[str, tuple[int, int]] | None:
    """Return (kind, shape) of a matrix group, csr or csc, or None for other nodes and shapes with a 0."""
    attributes = node.attrs.asdict()
    kind, shape = attributes.get(ENCODING_TYPE), attributes.get("shape")
    if not path or isinstance(node, zarr.Array) or not isinstance(kind, str) or kind not in ANNDATA_KINDS:
        return None
    if not isinstance(shape, list) or len(shape) != 2 or not all(type(n) is int and n > 0 for n in shape):
        return None
    return (
        (ANNDATA_KINDS[kind], (shape[0], shape[1]))
        if all(f"{path}/{one}" in arrays for one in MEMBERS)
        else None
    )


def _attributes(node: zarr.Group | zarr.Array) -> Bodies:
    values: Json = node.attrs.asdict()
    names = getattr(node.metadata, "dimension_names", None) or ()
    if isinstance(node, zarr.Array) and any(names):
        values = {DIMENSIONS: [one or "" for one in names], **values}
    return {name: attribute_body(_attribute(value)) for name, value in values.items()}


def _attribute(value: Any) -> Any:
    """Return the HDF5 value of a JSON attribute: a scalar, None or a regular array; other values become JSON text."""
    if value is None or isinstance(value, str | bool | float) or _is_long(value):
        return value
    leaves = value if isinstance(value, list) else [value]
    while any(isinstance(one, list) for one in leaves):
        if not all(isinstance(one, list) and len(one) == len(leaves[0]) for one in leaves):
            return json.dumps(value)
        leaves = [leaf for one in leaves for leaf in one]
    kinds = {type(one) for one in leaves}
    if kinds == {str}:
        return np.array(value, object)
    if kinds in ({bool}, {float}, set()) or (kinds == {int} and all(map(_is_long, leaves))):
        return np.array(value)
    is_mixed = kinds == {int, float} and all(
        abs(one) <= MAX_EXACT_INTEGER for one in leaves if type(one) is int
    )
    return np.array(value, float) if is_mixed else json.dumps(value)


def _is_long(value: Any) -> bool:
    """Return whether a value is an integer that fits into 64 signed bits."""
    return type(value) is int and -(1 << 63) <= value < 1 << 63
