"""Datasets as DAP4 has them."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import Unsupported
from hsparse.format.filters.definition import Filter
from hsparse.hdf5.maps.dmrpp import DapVariable, dap_attribute, dap_type, is_xml, xml_text
from tests.support.characters import CHARACTERS

SHUFFLE, DEFLATE, FLETCHER = (
    Filter(2, (4,), optional=False),
    Filter(1, (5,), optional=False),
    Filter(3, (), optional=False),
)


@given(st.text(CHARACTERS))
def test_text_comes_back(text: str) -> None:
    if not is_xml(text):
        with pytest.raises(Unsupported, match="XML"):
            xml_text(text)
        return
    found = ET.fromstring(f'<a b="{xml_text(text)}">{xml_text(text)}</a>')
    assert (found.get("b"), found.text or "") == (text, text)


@pytest.mark.parametrize(
    ("dtype", "name"),
    [("<i1", "Int8"), (">u2", "UInt16"), ("<f4", "Float32"), (">f8", "Float64"), ("?", "Int8")],
)
def test_types(dtype: str, name: str) -> None:
    assert dap_type(np.dtype(dtype)) == name


@pytest.mark.parametrize("dtype", ["<f2", "S5", "V3", "<c8", [("a", "<i4")], ("<i4", (2,))])
def test_types_that_it_has_not(dtype: Any) -> None:
    with pytest.raises(Unsupported):
        dap_type(np.dtype([("x", *dtype)])["x"] if isinstance(dtype, tuple) else np.dtype(dtype))


def test_a_variable() -> None:
    found = DapVariable.of(np.dtype(">i4"), b"\xff\xff\xff\xf9", (SHUFFLE, DEFLATE, FLETCHER))
    assert found == DapVariable("Int32", "BE", "-7", "shuffle deflate fletcher32", "5")
    assert DapVariable.of(np.dtype("<f8"), b"", ()) == DapVariable("Float64", "LE", "0", "", "")
    assert DapVariable.of(np.dtype("<f4"), np.float32("inf").tobytes(), ()).fill == "inf"


@pytest.mark.parametrize(
    "pipeline",
    [(Filter(32001, (), optional=False),), (DEFLATE, DEFLATE), (Filter(2, (8,), optional=False), DEFLATE)],
    ids=["another filter", "twice", "shuffle of other bytes"],
)
def test_pipelines_that_it_has_not(pipeline: Any) -> None:
    with pytest.raises(Unsupported):
        DapVariable.of(np.dtype("<i4"), b"", pipeline)


def test_attributes() -> None:
    real = {"class": "H5T_FLOAT", "base": "H5T_IEEE_F64LE"}
    one = {"type": real, "shape": {"class": "H5S_SIMPLE", "dims": [2, 2]}, "value": [[1.5, -1e300], [0.1, 2]]}
    assert dap_attribute(one) == ("Float64", ["1.5", "-1e+300", "0.1", "2.0"])
    number = {"class": "H5T_INTEGER", "base": "H5T_STD_U64LE"}
    assert dap_attribute({"type": number, "shape": {"class": "H5S_SCALAR"}, "value": 2**64 - 1}) == (
        "UInt64",
        [str(2**64 - 1)],
    )
