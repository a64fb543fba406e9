"""Dense datasets as zarr has them; that zarr reads them is in tests/sn/chunks/test_kerchunk.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hsparse.errors import Unsupported
from hsparse.format.filters.definition import Filter
from hsparse.hdf5.maps.kerchunk import is_scale, scales_of, zarr_array, zarr_attributes, zarr_type

TEXT = {"class": "H5T_STRING", "charSet": "H5T_CSET_UTF8", "length": "H5T_VARIABLE"}


def test_filters_come_in_the_order_of_the_pipeline() -> None:
    pipeline = (Filter(2, (4,)), Filter(1, (6,)), Filter(3, ()))
    found = zarr_array((10, 20), (5, 5), np.dtype("<i4"), b"\7\0\0\0", pipeline)
    assert found == {
        "zarr_format": 2,
        "shape": [10, 20],
        "chunks": [5, 5],
        "dtype": "<i4",
        "fill_value": 7,
        "order": "C",
        "filters": [
            {"id": "shuffle", "elementsize": 4},
            {"id": "zlib", "level": 6},
            {"id": "fletcher32"},
        ],
        "compressor": None,
        "dimension_separator": ".",
    }
    assert zarr_array((1,), (1,), np.dtype("<i4"), b"", ())["filters"] is None


@pytest.mark.parametrize("id", [32000, 32004, 32008, 32001, 4])
def test_filters_that_zarr_has_not(id: int) -> None:
    with pytest.raises(Unsupported, match=str(id)):
        zarr_array((10,), (5,), np.dtype("<i4"), b"", (Filter(id, ()),))


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (np.nan, "<f4", "NaN"),
        (np.inf, ">f8", "Infinity"),
        (-np.inf, ">f8", "-Infinity"),
        (2.5, "<f2", 2.5),
        (-3, ">i8", -3),
        (2**64 - 1, "<u8", 2**64 - 1),
        (True, "?", True),
        (b"ab", "S3", "YWIA"),
        ((1, 2), [("a", "u1"), ("b", "u1")], "AQI="),
    ],
)
def test_fill_values(value: Any, dtype: Any, expected: Any) -> None:
    fill = np.array(value, dtype)
    found = zarr_array((1,), (1,), fill.dtype, fill.tobytes(), ())["fill_value"]
    assert found == expected
    assert type(found) is type(expected)
    assert zarr_array((1,), (1,), fill.dtype, b"", ())["fill_value"] is None


def test_types() -> None:
    assert zarr_type(np.dtype([("a", ">i4"), ("b", [("c", "S2")])])) == [["a", ">i4"], ["b", [["c", "|S2"]]]]
    for dtype in (np.dtype(("<i4", (2,))), np.dtype([("a", "<i4", (2,))]), np.dtype(object)):
        with pytest.raises(Unsupported):
            zarr_type(dtype)


def test_attributes_of_plain_types_and_no_others() -> None:
    plain = {"shape": {"class": "H5S_SCALAR"}}
    number = {"class": "H5T_FLOAT", "base": "H5T_IEEE_F64LE"}
    attributes = {
        "units": {"type": TEXT, "value": "K", **plain},
        "limit": {"type": number, "value": "nan", **plain},
        "CLASS": {"type": TEXT, "value": "DIMENSION_SCALE", **plain},
        "ref": {
            "type": {"class": "H5T_REFERENCE", "base": "H5T_STD_REF_OBJ"},
            "value": "groups/g-1",
            **plain,
        },
        "bytes": {"type": TEXT, "value": "/w==", "encoding": "base64", **plain},
        "none": {"type": number, "value": None, **plain},
    }
    found = zarr_attributes({"attributes": attributes}, ["x"])
    assert list(found) == ["units", "limit", "_ARRAY_DIMENSIONS"]
    assert found["units"] == "K"
    assert np.isnan(found["limit"])
    assert zarr_attributes({}, None) == {}


def test_dimension_scales() -> None:
    shape = {"class": "H5S_SIMPLE", "dims": [3, 4]}
    listed = {"DIMENSION_LIST": {"value": [["datasets/d-1"], []]}}
    assert scales_of({"shape": shape, "attributes": listed}) == ["d-1", ""]
    assert scales_of({"shape": shape}) == ["", ""]
    assert scales_of({"shape": shape, "attributes": {"DIMENSION_LIST": {"value": "x"}}}) == ["", ""]
    scale = {"CLASS": {"value": "DIMENSION_SCALE"}}
    assert is_scale({"shape": {"dims": [3]}, "attributes": scale})
    assert not is_scale({"shape": shape, "attributes": scale})
    assert not is_scale({"shape": {"dims": [3]}})
