"""The encodings of AnnData and Binsparse, which store a sparse matrix as a group of arrays.

https://anndata.readthedocs.io/en/stable/fileformat-prose.html, https://graphblas.org/binsparse-specification
"""

from __future__ import annotations

import json
from enum import StrEnum
from functools import lru_cache
from typing import Any

import numpy as np

from hsparse.format.chunk_spec import ChunkSpec, chunk_spec
from hsparse.hdf5.format.messages.file_type import file_type, is_byte_identical, names_of_enum
from hsparse.model.dataspace import dims_of
from hsparse.model.layout import is_sparse

INT64 = {"class": "H5T_INTEGER", "base": "H5T_STD_I64LE"}
ANNDATA_KINDS = {"csr_matrix": "csr", "csc_matrix": "csc", "csr": "csr", "csc": "csc"}
BINSPARSE_KINDS = {"CSR": "csr", "CSC": "csc", "COO": "coo", "COOR": "coo", "COOC": "coo"}
"""Map the values of AnnData's encoding attributes, and of Binsparse's `format`, to a compression: csr, csc or coo."""
ENCODING_TYPE = "encoding-type"
OLD_FORMAT, OLD_SHAPE = "h5sparse_format", "h5sparse_shape"
"""The names of the attributes that AnnData before version 0.7 used."""
BINSPARSE = "binsparse"
TEXT = {
    "class": "H5T_STRING",
    "charSet": "H5T_CSET_UTF8",
    "strPad": "H5T_STR_NULLTERM",
    "length": "H5T_VARIABLE",
}
BINSPARSE_VERSION = "0.1.0"
BINSPARSE_NUMBERS = frozenset(
    [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)] + ["float32", "float64"]
)
Json = dict[str, Any]


class MatrixEncoding(StrEnum):
    """The encoding of a two-dimensional sparse dataset as a group: a specification, and the order of elements."""

    ANNDATA_CSR = "anndata-csr"
    ANNDATA_CSC = "anndata-csc"
    BINSPARSE_CSR = "binsparse-csr"
    BINSPARSE_CSC = "binsparse-csc"
    BINSPARSE_COO = "binsparse-coo"

    @property
    def is_binsparse(self) -> bool:
        return self.value.startswith("binsparse")

    @property
    def kind(self) -> str:
        """The compression: csr, csc or coo."""
        return self.value.rpartition("-")[2]

    @property
    def axis(self) -> int:
        """The dimension by which elements are sorted first: 0 in row-major order, 1 in column-major order."""
        return int(self.kind == "csc")

    def fits(self, record: Json) -> bool:
        """Return whether a dataset can have this encoding.

        The dataset must be sparse and have two dimensions that are not 0. Its elements must have the same bytes in
        hsparse and in files. Binsparse supports only integers, floats and booleans.
        """
        if not is_sparse(record) or len(dims := dims_of(record["shape"]) or ()) != 2 or 0 in dims:
            return False
        spec = chunk_spec(record)
        if spec.datatype.is_vlen or not is_byte_identical(file_type(spec.datatype.item)):
            return False
        return not self.is_binsparse or binsparse_type(spec) is not None

    def attributes(self, record: Json, count: int, *, keep_old: bool = False) -> dict[str, Json]:
        """Return a dict of name to attribute that declares a group to be a matrix of `count` stored elements.

        With `keep_old`, the attributes are those of AnnData before version 0.7 if the dataset has such attributes.
        """
        dims = list(dims_of(record["shape"]) or ())
        if self.is_binsparse:
            return {BINSPARSE: _text(json.dumps({"binsparse": self._described(record, dims, count)}))}
        shape = {"type": INT64, "shape": {"class": "H5S_SIMPLE", "dims": [2]}, "value": dims}
        known = record.get("attributes") or {}
        if keep_old and OLD_FORMAT in known and ENCODING_TYPE not in known:
            return {OLD_FORMAT: _text(self.kind), OLD_SHAPE: shape}
        return {
            ENCODING_TYPE: _text(f"{self.kind}_matrix"),
            "encoding-version": _text("0.1.0"),
            "shape": shape,
        }

    def _described(self, record: Json, dims: list[int], count: int) -> Json:
        spec = chunk_spec(record)
        name, index = binsparse_type(spec), index_type(tuple(dims), count).name
        places = {"indices_0": index} if self.kind == "coo" else {"pointers_to_1": index}
        described: Json = {
            "version": BINSPARSE_VERSION,
            "format": self.kind.upper(),
            "shape": dims,
            "number_of_stored_values": count,
            "data_types": {**places, "indices_1": index, "values": name},
        }
        if any(spec.fill):
            described["fill"] = True
            described["data_types"]["fill_value"] = name
        return described


def declared_encoding(record: Json) -> MatrixEncoding | None:
    """Return the encoding that a dataset's attributes declare, or None. Imports of matrices preserve the attributes."""
    attributes = record.get("attributes") or {}
    names = {
        name: (attributes.get(name) or {}).get("value") for name in (ENCODING_TYPE, OLD_FORMAT, BINSPARSE)
    }
    if isinstance(described := names[BINSPARSE], str):
        try:
            found = json.loads(described)
            kind = BINSPARSE_KINDS[found.get(BINSPARSE, found)["format"]]
        except (AttributeError, KeyError, TypeError, ValueError):
            return None
        return MatrixEncoding(f"binsparse-{kind}")
    name = names[ENCODING_TYPE] or names[OLD_FORMAT]
    kind = ANNDATA_KINDS.get(name, "") if isinstance(name, str) else ""
    return MatrixEncoding(f"anndata-{kind}") if kind else None


@lru_cache
def index_type(shape: tuple[int, ...], count: int) -> np.dtype[Any]:
    """Return the dtype of indices and pointers, as in scipy: int32 if all numbers fit, else int64."""
    return np.dtype("<i4" if max(*shape, count) <= np.iinfo(np.int32).max else "<i8")


def binsparse_type(spec: ChunkSpec) -> str | None:
    """Return Binsparse's name for the type of a dataset, or None if Binsparse has no such type."""
    item = spec.datatype.item
    if item["class"] == "H5T_ENUM":
        is_boolean = spec.dtype.itemsize == 1 and names_of_enum(item) == {"FALSE": 0, "TRUE": 1}
        return "bint8" if is_boolean else None
    if item["class"] in ("H5T_INTEGER", "H5T_FLOAT") and spec.dtype.name in BINSPARSE_NUMBERS:
        return spec.dtype.name
    return None


def _text(value: str) -> Json:
    return {"type": TEXT, "shape": {"class": "H5S_SCALAR"}, "value": value}
