"""Layouts: what is stored, what is shown, and the grid."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import pytest
from h5json.dset_util import getChunkDims
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import BadRequest, Unsupported
from hsparse.format.chunk_spec import chunk_spec
from hsparse.model.dataspace import parse_shape
from hsparse.model.datatype import parse_type
from hsparse.model.layout import (
    chunk_dims,
    is_sparse,
    is_structured,
    layout_json,
    parse_layout,
    stored_layout,
)
from hsparse.model.stripes import MAX_STRIPES, Stripes

MIN, MAX = 1 << 20, 1 << 22
ID = "d-00000000-00000001-0000-000000-000001"
SPARSE = {"class": "H5D_STRUCT_CHUNK", "dims": [4, 4], "flags": ["H5D_SPARSE_DATA"]}


def made(asked: Any, shape: dict[str, Any], kind: Any = "H5T_STD_I32LE", filters: Any = ()) -> dict[str, Any]:
    """Return a record with the layout for what is asked."""
    dataspace, datatype = parse_shape(shape), parse_type(kind)
    layout = parse_layout(asked, dataspace, datatype, filtered=bool(filters), min_bytes=MIN, max_bytes=MAX)
    properties = {"filters": list(filters)} if filters else {}
    return {"id": ID, "type": datatype.item, "shape": dataspace} | layout.fields(properties)


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=3), st.booleans())
def test_the_grid_is_known_from_the_record(dims: list[int], extensible: bool) -> None:
    body: dict[str, Any] = {"shape": dims} | ({"maxdims": [0] * len(dims)} if extensible else {})
    record = made(None, body)
    chunk = chunk_dims(record)
    assert list(chunk) == record["layout"]["dims"]
    assert prod(chunk) * 4 <= MAX
    assert all(dim >= 1 for dim in chunk)
    small = prod(dims) * 4 < MIN and not extensible
    assert layout_json(record)["class"] == ("H5D_CONTIGUOUS" if small else "H5D_CHUNKED")
    assert chunk_spec(record).dims == chunk
    for older in (
        {key: record[key] for key in ("id", "shape", "layout")},
        without(record, "layout", "askedLayout"),
    ):
        assert chunk_dims(older) == chunk, "0.9 looks in one place, 1.0 in the other"


def without(record: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key not in keys}


@given(st.lists(st.integers(1, 300), min_size=1, max_size=3), st.data())
def test_a_client_sees_what_it_asked_for(dims: list[int], data: st.DataObject) -> None:
    chunk = [data.draw(st.integers(1, dim)) for dim in dims]
    asked = {"class": "H5D_CHUNKED", "dims": chunk}
    record = made(asked, {"shape": dims})
    assert layout_json(record) == asked
    assert all(
        small <= large <= dim for small, large, dim in zip(chunk, chunk_dims(record), dims, strict=True)
    )
    assert record["creationProperties"]["layout"]["dims"] == list(chunk_dims(record))


def test_a_large_contiguous_dataset_is_chunked_inside() -> None:
    record = made({"class": "H5D_CONTIGUOUS"}, {"shape": [4096, 4096]})
    assert layout_json(record) == {"class": "H5D_CONTIGUOUS"}
    assert MIN <= prod(chunk_dims(record)) * 4 <= MAX


def test_a_scalar_has_one_chunk_of_no_dimensions() -> None:
    record = made(None, {})
    assert chunk_dims(record) == ()
    assert chunk_spec(record).dims == ()
    assert layout_json(record) == {"class": "H5D_CONTIGUOUS"}


def test_a_null_dataspace_has_none() -> None:
    record = made(None, {"shape": "H5S_NULL"})
    assert layout_json(record) == {}
    with pytest.raises(BadRequest, match="null"):
        chunk_dims(record)


@given(st.lists(st.integers(1, 70000), min_size=1, max_size=3))
def test_structured_chunks_are_never_changed(dims: list[int]) -> None:
    asked = {"class": "H5D_STRUCT_CHUNK", "dims": dims, "flags": ["H5D_SPARSE_DATA"]}
    body = {"shape": [70000] * len(dims)}
    if prod(dims) > 2**32 - 1:
        with pytest.raises(BadRequest, match="4294967295"):
            made(asked, body)
        return
    record = made(asked, body)
    assert layout_json(record) == record["layout"] == asked
    assert chunk_dims(record) == tuple(dims)
    assert is_sparse(record)
    assert chunk_spec(record).sparse
    assert len(chunk_spec(record).filters) == 2


TEXT = {"class": "H5T_STRING", "charSet": "H5T_CSET_UTF8", "length": "H5T_VARIABLE"}
VL = {"class": "H5D_STRUCT_CHUNK", "dims": [4, 4], "flags": ["H5D_VL_DATA"]}


def test_structured_chunks_of_variable_length_types() -> None:
    for flags in (["H5D_SPARSE_DATA"], ["H5D_SPARSE_DATA", "H5D_VL_DATA"]):
        record = made(SPARSE | {"flags": flags}, {"shape": [9, 9]}, TEXT)
        spec = chunk_spec(record)
        assert (spec.sparse, spec.structured, len(spec.filters)) == (True, True, 3)
        assert layout_json(record)["flags"] == flags
    record = made(VL, {"shape": [9, 9]}, TEXT)
    assert (is_structured(record), is_sparse(record)) == (True, False)
    spec = chunk_spec(record)
    assert (spec.sparse, spec.structured, len(spec.filters)) == (False, True, 3)
    plain = chunk_spec(made(None, {"shape": [9, 9]}, TEXT))
    assert (plain.structured, len(plain.filters)) == (False, 1)


@pytest.mark.parametrize(
    ("layout", "kind", "error"),
    [
        (VL, "H5T_STD_I8LE", BadRequest),
        (SPARSE | {"flags": ["H5D_SPARSE_DATA", "H5D_VL_DATA"]}, "H5T_STD_I8LE", BadRequest),
        (VL | {"flags": []}, TEXT, Unsupported),
        (VL | {"flags": []}, "H5T_STD_I8LE", Unsupported),
        (VL | {"dims": [2**11, 2**11]}, TEXT, BadRequest),
    ],
)
def test_flags_that_do_not_fit_the_type(layout: Any, kind: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        made(layout, {"shape": [2**11, 2**11]}, kind)


def test_filters_need_chunks() -> None:
    deflate = [{"class": "H5Z_FILTER_DEFLATE", "level": 1}]
    assert layout_json(made(None, {"shape": [10]}, filters=deflate))["class"] == "H5D_CHUNKED"
    for asked, body in (
        ({"class": "H5D_CONTIGUOUS"}, {"shape": [10]}),
        (None, {}),
        (None, {"shape": "H5S_NULL"}),
    ):
        with pytest.raises(BadRequest):
            made(asked, body, filters=deflate)


@pytest.mark.parametrize(
    ("asked", "body", "kind"),
    [
        ([], {"shape": [10]}, "H5T_STD_I8LE"),
        ({"class": []}, {"shape": [10]}, "H5T_STD_I8LE"),
        ({"class": "H5D_CHUNKED", "dims": [1, 1]}, {"shape": [10]}, "H5T_STD_I8LE"),
        ({"class": "H5D_CHUNKED", "dims": "x"}, {"shape": [10]}, "H5T_STD_I8LE"),
        ({"class": "H5D_CHUNKED", "dims": [True]}, {"shape": [10]}, "H5T_STD_I8LE"),
        ({"class": "H5D_CHUNKED", "dims": [2**30]}, {"shape": [2**40]}, "H5T_STD_I8LE"),
        ({"class": "H5D_CHUNKED"}, {}, "H5T_STD_I8LE"),
        ({"class": "H5D_CONTIGUOUS"}, {"shape": [1], "maxdims": [0]}, "H5T_STD_I8LE"),
        ({"class": "H5D_COMPACT"}, {"shape": [65537]}, "H5T_STD_I8LE"),
        ({"class": "H5D_STRUCT_CHUNK", "flags": ["H5D_SPARSE_DATA"]}, {"shape": [10]}, "H5T_STD_I8LE"),
        (SPARSE | {"flags": "H5D_SPARSE_DATA"}, {"shape": [9, 9]}, "H5T_STD_I8LE"),
    ],
)
def test_what_is_no_layout(asked: Any, body: dict[str, Any], kind: str) -> None:
    with pytest.raises(BadRequest) as caught:
        made(asked, body, kind)
    assert caught.value.message.endswith(".")


STRIPED = SPARSE | {"stripes": 3}


@pytest.mark.parametrize("asked", [STRIPED, {"class": "H5D_CHUNKED", "dims": [4, 4], "stripes": 3}])
def test_stripes_are_kept_beside_the_grid(asked: dict[str, Any]) -> None:
    record, plain = (made(one, {"shape": [900, 900]}) for one in (asked, asked | {"stripes": 1}))
    assert layout_json(record) == asked
    assert layout_json(plain) == {key: value for key, value in asked.items() if key != "stripes"}
    assert stored_layout(record) == stored_layout(plain) == plain["layout"]
    assert chunk_spec(record) == replace(chunk_spec(plain), stripes=Stripes(3))
    assert chunk_spec(without(record, "askedLayout")) == chunk_spec(record)
    with pytest.raises(KeyError):
        getChunkDims(record)  # of HSDS, which must not take the dataset for one that was never written


@pytest.mark.parametrize(
    "asked",
    [
        *(SPARSE | {"stripes": stripes} for stripes in (0, -1, True, "3", 2.0, None, ["b"], MAX_STRIPES + 1)),
        {"class": "H5D_CONTIGUOUS", "stripes": 2},
        {"class": "H5D_COMPACT", "stripes": 2},
        {"stripes": 2},
        {"class": "H5D_CHUNKED_STRIPED", "stripes": 2, "layout": SPARSE},
    ],
    ids=str,
)
def test_what_are_no_stripes(asked: dict[str, Any]) -> None:
    with pytest.raises(BadRequest, match=r"stripes|Stripes|H5D_STRUCT_CHUNK"):
        made(asked, {"shape": [90, 90]})


def test_a_spec_changes_with_what_it_is_made_from() -> None:
    record = made(None, {"shape": [10]})
    assert chunk_spec(record) is chunk_spec(dict(record))
    assert chunk_spec(record | {"generation": 2}).generation == 2
    filled = record | {"creationProperties": {"fillValue": 1}}
    assert chunk_spec(filled).fill == b"\1\0\0\0"
