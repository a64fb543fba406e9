"""Makes the request body that creates a dataset from the options of h5py and hsparse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from hsparse.client.connection import Json
from hsparse.client.errors import InvalidValue
from hsparse.client.types.hdf5_type import Hdf5Type
from hsparse.optional_module import OptionalModule

Filter: TypeAlias = str | int | Mapping[str, Any]
"""A filter as the REST API describes it (`creationProperties.filters`): a name, a number, or a dict of parameters."""
Shape: TypeAlias = int | Sequence[int]
MaxShape: TypeAlias = int | Sequence[int | None] | None
SPARSE: Json = {"class": "H5D_STRUCT_CHUNK", "flags": ["H5D_SPARSE_DATA"]}
MATRIX_CHUNK = OptionalModule("hsparse.model.initial_values")
UNLIMITED = "H5S_UNLIMITED"
ASSUMED_LENGTH = 1024
"""The length that is assumed for a dimension of length 0 when chunks are chosen, as in h5py."""
SPARSITY = 64
"""Default chunks of a sparse dataset assume that one in this many elements is defined."""


def limits_json(limits: MaxShape) -> list[int | str] | None:
    """Return `maxshape` or `minlower` as JSON for request bodies, with "H5S_UNLIMITED" for None."""
    if limits is None:
        return None
    each = (limits,) if isinstance(limits, int) else limits
    return [UNLIMITED if limit is None else int(limit) for limit in each]


@dataclass(frozen=True, slots=True)
class StorageOptions:
    """How a new dataset is stored: the options of h5py's `create_dataset`, and `filters`, `stripes` and lower bounds.

    `compression` is `"gzip"`, `"lzf"`, a gzip level, True (gzip), or the number of a filter, whose parameters are in
    `compression_opts`. `filters` lists all filters, as in `creationProperties.filters` of the REST API.
    """

    chunks: Shape | bool | None = None
    maxshape: MaxShape = None
    fillvalue: ArrayLike | None = None
    compression: str | int | None = None
    compression_opts: Any = None
    shuffle: bool = False
    fletcher32: bool = False
    filters: Sequence[Filter] = ()
    stripes: int | Sequence[str] = 1
    lower: Shape | None = None
    minlower: MaxShape = None

    def body(self, kind: Hdf5Type, shape: tuple[int, ...], *, sparse: bool = False) -> Json:
        """Return the request body that creates a dataset; raise `InvalidValue` if options contradict each other."""
        pipeline = self._pipeline()
        properties: Json = {"filters": pipeline} if pipeline else {}
        layout = self._layout(shape, is_filtered=bool(pipeline), sparse=sparse)
        if sparse and kind.is_vlen:
            layout |= {"flags": [*SPARSE["flags"], "H5D_VL_DATA"]}
        if layout:
            properties["layout"] = layout
        if self.fillvalue is not None:
            properties["fillValue"] = kind.to_json(self.fillvalue)
        body: Json = {"type": kind.item, "creationProperties": properties}
        if shape:
            body["shape"] = list(shape)
        limits = limits_json(self.maxshape)
        if limits is not None:
            body["maxdims"] = limits
        if self.lower is not None or self.minlower is not None:
            body["lower"] = list(shape_tuple((0,) * len(shape) if self.lower is None else self.lower))
            limits = limits_json(self.minlower)
            body |= {} if limits is None else {"minlower": limits}
        return body

    def sparse_body(self, shape: tuple[int, ...], dtype: DTypeLike) -> Json:
        """Return the request body that creates a sparse dataset with this shape and dtype."""
        return self.body(Hdf5Type.of_dtype(dtype), shape, sparse=True)

    def _layout(self, shape: tuple[int, ...], *, is_filtered: bool, sparse: bool) -> Json:
        stripes = self.stripes if isinstance(self.stripes, int) else list(self.stripes)
        striped = {} if stripes == 1 else {"stripes": stripes}
        dims = [self.chunks] if type(self.chunks) is int else self.chunks
        named = {"dims": list(dims)} if isinstance(dims, Sequence) else {}
        if sparse:
            return SPARSE | (named or {"dims": _sparse_chunks(shape)}) | striped
        is_signed = self.lower is not None or self.minlower is not None
        if self.chunks is False and (is_filtered or striped or self.maxshape is not None or is_signed):
            raise InvalidValue("Filters, stripes, maxshape and lower need chunks: omit chunks=False.")
        return {"class": "H5D_CHUNKED"} | named | striped if self.chunks or striped else {}

    def _pipeline(self) -> list[Filter]:
        given = self.compression not in (None, False) or self.shuffle or self.fletcher32
        if self.filters and given:
            raise InvalidValue(
                "filters must list all filters if given: omit compression, shuffle and fletcher32."
            )
        if not given:
            return list(self.filters)
        found: list[Filter] = ["shuffle"] if self.shuffle else []
        if self.compression not in (None, False):
            found.append(self._compressor())
        return [*found, "fletcher32"] if self.fletcher32 else found

    def _compressor(self) -> Filter:
        kind, options = self.compression, self.compression_opts
        if kind is True:
            kind = "gzip"
        if isinstance(kind, int) and 0 <= kind < 10:
            if options is not None:
                raise InvalidValue(
                    "compression is a gzip level already: omit compression_opts, or give compression='gzip'."
                )
            kind, options = "gzip", kind
        if isinstance(kind, int):
            return {"id": kind} if options is None else {"id": kind, "parameters": list(options)}
        if kind == "gzip":
            return {"class": "H5Z_FILTER_DEFLATE", "level": 4 if options is None else int(options)}
        if options is not None:
            raise InvalidValue(
                f"compression_opts needs gzip or the number of a filter: list {kind!r} in filters=[...] instead."
            )
        return str(kind)


def shape_tuple(shape: Shape) -> tuple[int, ...]:
    """Return a shape as a tuple of ints; a single number is the shape of one dimension, as in numpy."""
    return (int(shape),) if isinstance(shape, int | np.integer) else tuple(int(length) for length in shape)


def _sparse_chunks(shape: tuple[int, ...]) -> list[int]:
    likely = tuple(length or ASSUMED_LENGTH for length in shape)
    return list(MATRIX_CHUNK.load().chunk_of(likely, prod(likely) // SPARSITY))
