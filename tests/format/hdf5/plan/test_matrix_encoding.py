"""Which datasets are matrices, and what is said of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hsparse.hdf5.format.plan.matrix_encoding import MatrixEncoding, declared_encoding
from tests.model.type_strategies import ID

INT = {"class": "H5T_INTEGER", "base": "H5T_STD_I32LE"}
WORD = {"class": "H5T_STRING", "charSet": "H5T_CSET_ASCII", "strPad": "H5T_STR_NULLPAD", "length": 4}
TEXT = WORD | {"length": "H5T_VARIABLE"}
REFERENCE = {"class": "H5T_REFERENCE", "base": "H5T_STD_REF_OBJ"}
COLOURS = {
    "class": "H5T_ENUM",
    "base": INT,
    "members": [{"name": "FALSE", "value": 0}, {"name": "TRUE", "value": 1}],
}


def record(
    kind: Any = INT, dims: tuple[int, ...] = (9, 9), flags: tuple[str, ...] = ("H5D_SPARSE_DATA",)
) -> Any:
    layout = {
        "class": "H5D_STRUCT_CHUNK",
        "dims": [max(1, min(4, dim)) for dim in dims],
        "flags": list(flags),
    }
    if not flags:
        layout = {"class": "H5D_CHUNKED", "dims": layout["dims"]}
    shape = {"class": "H5S_SIMPLE", "dims": list(dims)}
    return {"id": ID, "type": kind, "shape": shape, "layout": layout}


@pytest.mark.parametrize(
    ("about", "anndata", "binsparse"),
    [
        (record(), True, True),
        (record(WORD), True, False),
        (record(COLOURS), True, False),
        (record(REFERENCE), False, False),
        (record(TEXT), False, False),
        (record(dims=(9,)), False, False),
        (record(dims=(9, 9, 9)), False, False),
        (record(dims=(0, 9)), False, False),
        (record(flags=()), False, False),
        (record() | {"shape": {"class": "H5S_NULL"}}, False, False),
    ],
)
def test_what_is_a_matrix(about: Any, anndata: bool, binsparse: bool) -> None:
    assert MatrixEncoding.ANNDATA_CSC.fits(about) is anndata
    assert MatrixEncoding.BINSPARSE_COO.fits(about) is binsparse


def test_what_is_said() -> None:
    found = MatrixEncoding.ANNDATA_CSC.attributes(record(), 5)
    assert {name: one["value"] for name, one in found.items()} == {
        "encoding-type": "csc_matrix",
        "encoding-version": "0.1.0",
        "shape": [9, 9],
    }
    filled = record() | {"creationProperties": {"fillValue": 7}}
    said = json.loads(MatrixEncoding.BINSPARSE_CSR.attributes(filled, 5)["binsparse"]["value"])["binsparse"]
    assert said == {
        "version": "0.1.0",
        "format": "CSR",
        "shape": [9, 9],
        "number_of_stored_values": 5,
        "fill": True,
        "data_types": {
            "pointers_to_1": "int32",
            "indices_1": "int32",
            "values": "int32",
            "fill_value": "int32",
        },
    }
    listed = json.loads(MatrixEncoding.BINSPARSE_COO.attributes(record(), 2**31)["binsparse"]["value"])
    assert listed["binsparse"]["data_types"] == {
        "indices_0": "int64",
        "indices_1": "int64",
        "values": "int32",
    }
    assert "fill" not in listed["binsparse"]


def declaring(**attributes: Any) -> Any:
    """Return a matrix with attributes of these values; `_` stands for `-` in their names."""
    return record() | {
        "attributes": {name.replace("_", "-"): {"value": one} for name, one in attributes.items()}
    }


@pytest.mark.parametrize(
    ("about", "expected"),
    [
        (record(), None),
        (declaring(encoding_type="csr_matrix"), MatrixEncoding.ANNDATA_CSR),
        (declaring(encoding_type="csc_matrix"), MatrixEncoding.ANNDATA_CSC),
        (declaring(encoding_type="array"), None),
        (declaring(encoding_type=["csr_matrix"]), None),
        (declaring(encoding_type=None), None),
        (record() | {"attributes": {"h5sparse_format": {"value": "csc"}}}, MatrixEncoding.ANNDATA_CSC),
        (declaring(binsparse='{"binsparse": {"format": "CSC"}}'), MatrixEncoding.BINSPARSE_CSC),
        (declaring(binsparse='{"format": "COOR"}'), MatrixEncoding.BINSPARSE_COO),
        (declaring(binsparse='{"format": "DMAT"}'), None),
        (declaring(binsparse='{"format": [1]}'), None),
        (declaring(binsparse="[]"), None),
        (declaring(binsparse="no JSON"), None),
    ],
)
def test_what_attributes_declare(about: Any, expected: MatrixEncoding | None) -> None:
    assert declared_encoding(about) is expected


def test_an_old_declaration_stays_if_it_may() -> None:
    old = record() | {"attributes": {"h5sparse_format": {"value": "csc"}}}
    kept = MatrixEncoding.ANNDATA_CSC.attributes(old, 5, keep_old=True)
    assert {name: one["value"] for name, one in kept.items()} == {
        "h5sparse_format": "csc",
        "h5sparse_shape": [9, 9],
    }
    assert "encoding-type" in MatrixEncoding.ANNDATA_CSC.attributes(old, 5)
    assert "encoding-type" in MatrixEncoding.ANNDATA_CSC.attributes(record(), 5, keep_old=True)
