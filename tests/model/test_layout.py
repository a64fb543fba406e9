"""Extents, and the layouts and chunks that datasets get."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest
from h5json.dset_util import getChunkDims
from h5json.objid import isS3ObjKey
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import BadRequest, Unsupported
from hsparse.format.chunk_spec import chunk_key, chunk_name, chunk_spec
from hsparse.format.filters.definition import Filter
from hsparse.format.filters.filters_json import parse_filters
from hsparse.model.dataspace import (
    auto_chunk,
    dims_of,
    is_extensible,
    max_dims_of,
    num_elements,
    parse_extent,
    parse_shape,
    shape_json,
    shrink,
)
from hsparse.model.datatype import parse_type
from hsparse.model.ids import chunk_of_key, chunk_prefix, is_map_key, storage_key, tree_of_key
from hsparse.model.initial_values import (
    BAND,
    IN_CHUNK,
    LARGEST_BAND,
    LARGEST_BATCH,
    LOW_BAND,
    chunk_of,
    matrix_filters,
)
from hsparse.model.layout import (
    MAX_CHUNK_ELEMENTS,
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
        *(SPARSE | {"stripes": stripes} for stripes in (0, -1, True, "3", 2.0, None, MAX_STRIPES + 1)),
        *(SPARSE | {"stripes": stripes} for stripes in ([], [1], ["b/"], ["b/../c"], ["b/.c"], ["b"] * 65)),
        {"class": "H5D_CONTIGUOUS", "stripes": 2},
        {"class": "H5D_COMPACT", "stripes": 2},
        {"stripes": 2},
        {"class": "H5D_CHUNKED_STRIPED", "stripes": 2, "layout": SPARSE},
    ],
    ids=str,
)
def test_what_are_no_stripes(asked: dict[str, Any]) -> None:
    with pytest.raises(BadRequest, match=r"stripe|Stripes|bucket|H5D_STRUCT_CHUNK"):
        made(asked, {"shape": [90, 90]})


def test_a_spec_changes_with_what_it_is_made_from() -> None:
    record = made(None, {"shape": [10]})
    assert chunk_spec(record) is chunk_spec(dict(record))
    assert chunk_spec(record | {"generation": 2}).generation == 2
    filled = record | {"creationProperties": {"fillValue": 1}}
    assert chunk_spec(filled).fill == b"\1\0\0\0"


EXTENTS = st.lists(st.integers(0, 2**15), min_size=1, max_size=4)


@given(EXTENTS, st.data())
def test_a_simple_dataspace(dims: list[int], data: st.DataObject) -> None:
    limits = [
        data.draw(st.sampled_from([0, None, "H5S_UNLIMITED"]) | st.integers(max(1, d), 2**20)) for d in dims
    ]
    shape = parse_shape({"shape": dims, "maxdims": limits})
    assert dims_of(shape) == tuple(dims)
    assert max_dims_of(shape) == tuple(
        None if limit in (0, None, "H5S_UNLIMITED") else limit for limit in limits
    )
    assert num_elements(shape) == prod(dims)
    assert is_extensible(shape)
    assert parse_shape({"shape": shape}) == shape == shape_json(shape)
    assert not is_extensible(parse_shape({"shape": dims}))
    assert max_dims_of(parse_shape({"shape": dims})) == tuple(dims)


def test_older_records_have_0_for_unlimited() -> None:
    shape = {"class": "H5S_SIMPLE", "dims": [1], "maxdims": [0]}
    assert shape_json(shape)["maxdims"] == ["H5S_UNLIMITED"]
    assert max_dims_of(shape) == (None,)


@pytest.mark.parametrize(
    "body",
    [
        {"shape": -1},
        {"shape": [1, "2"]},
        {"shape": [1.5]},
        {"shape": [True]},
        {"shape": "x"},
        {"shape": [2**63]},
        {"shape": [2**40, 2**40]},
        {"shape": [1] * 33},
        {"shape": None},
        {"shape": {"class": "H5S_FOO"}},
        {"shape": {"class": "H5S_NULL", "dims": [1]}},
        {"shape": {"class": "H5S_SIMPLE"}},
        {"maxdims": [1]},
        {"shape": "H5S_NULL", "maxdims": [1]},
        {"shape": [5], "maxdims": [4]},
        {"shape": [5], "maxdims": [-1]},
        {"shape": [5], "maxdims": [5, 5]},
        {"shape": [5], "maxdims": "x"},
        {"shape": [5], "maxdims": [True]},
    ],
)
def test_what_is_no_dataspace(body: dict[str, object]) -> None:
    with pytest.raises(BadRequest) as caught:
        parse_shape(body)
    assert caught.value.message.endswith(".")


def test_extents_to_resize_to() -> None:
    assert parse_extent([1, 0]) == (1, 0)
    assert parse_extent(3) == (3,)
    for bad in (None, "x", [-1], [1.0]):
        with pytest.raises(BadRequest):
            parse_extent(bad)


SIZES = st.sampled_from([1, 2, 4, 8, 48, 1000])


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=6).map(tuple), SIZES)
def test_shrinking_stops_in_time(dims: tuple[int, ...], size: int) -> None:
    smaller = shrink(dims, size, MAX)
    assert prod(smaller) * size <= MAX
    assert all(1 <= new <= old for new, old in zip(smaller, dims, strict=True))
    if prod(dims) * size <= MAX:
        assert smaller == dims


def test_an_element_larger_than_a_chunk() -> None:
    assert auto_chunk((10, None), MAX * 2, MIN, MAX) == (1, 1)


@given(st.lists(st.integers(1, 2**40), min_size=1, max_size=4), st.integers(0, 2**40))
def test_chunks_are_within_the_shape(shape: list[int], count: int) -> None:
    chunk = chunk_of(tuple(shape), count)
    assert all(1 <= side <= length for side, length in zip(chunk, shape, strict=True))
    assert np.prod(chunk, dtype=object) <= MAX_CHUNK_ELEMENTS


@given(st.integers(20_000, 10**7), st.integers(2_000, 10**6), st.floats(0.005, 0.5), st.booleans())
def test_chunks_of_a_matrix_are_tall_and_a_band_of_them_is_not_too_large(
    rows: int, columns: int, density: float, by_chunks: bool
) -> None:
    count = int(rows * columns * density)
    height, width = chunk_of((rows, columns), count, by_chunks=by_chunks)
    tallest, most = (BAND, LARGEST_BAND) if by_chunks else (LOW_BAND, LARGEST_BATCH)
    assert height * width * density <= 1.1 * IN_CHUNK
    assert height * (width + 1) * density >= 0.9 * IN_CHUNK  # a tall chunk may have few columns
    assert height.bit_count() == 1 or height == rows or width == columns
    if height > width:
        assert height <= tallest
        assert height * columns * density <= most
    elif width < columns:
        assert width <= 4 * height + 4  # about a square
        assert 2 * height > tallest or 2 * height * columns * density > 0.8 * most


def test_wanted_chunks_are_cut_to_the_shape() -> None:
    assert chunk_of((100, 50), 500, (64, 1000)) == (64, 50)
    with pytest.raises(Unsupported, match="chunk has 2 dimensions"):
        chunk_of((100, 50, 3), 500, (64, 1000))


@pytest.mark.parametrize(
    ("dims", "size"), [((64, 20_000), 4), ((65_536, 8), 4), ((4, 65_537), 8), ((9, 9, 9), 6)]
)
def test_points_of_a_matrix_are_as_narrow_as_its_chunks(dims: tuple[int, ...], size: int) -> None:
    places, values = parse_filters(matrix_filters(dims), 8, sparse=True, chunk_bytes=1 << 20, record_size=99)
    assert places == (Filter(2, (size,)), Filter(1, (4,)))
    assert values == (Filter(2, (8,)), Filter(1, (3,)))


DATASET = "d-3c448a8a-6c0b2447-9594-1269a1-049963"
SCALED = st.lists(st.integers(0, 2**40), min_size=1, max_size=5)


@given(st.integers(2, MAX_STRIPES), SCALED, st.data())
def test_as_many_chunks_in_a_row_as_stripes_are_each_in_another(
    count: int, scaled: list[int], data: st.DataObject
) -> None:
    dim = data.draw(st.integers(0, len(scaled) - 1))
    row = [[*scaled[:dim], scaled[dim] + step, *scaled[dim + 1 :]] for step in range(count)]
    assert sorted(map(Stripes(count).file_number, row)) == list(range(1, count + 1))


@pytest.mark.parametrize(
    ("count", "scaled", "number"),
    [
        (2, (0,), 1),
        (2, (7,), 2),
        (8, (3, 4), 4),
        (8, (12345678901, 9), 3),
        (10, (1, 2, 3), 5),
        (1024, (5, 6, 7, 8), 531),
    ],
)
def test_file_numbers_never_change(count: int, scaled: tuple[int, ...], number: int) -> None:
    assert Stripes(count).file_number(scaled) == number


@given(st.integers(2, MAX_STRIPES), SCALED)
def test_a_chunk_in_a_stripe_is_one_of_its_dataset_and_nobody_elses(count: int, scaled: list[int]) -> None:
    stripes = Stripes(count)
    key = chunk_key(DATASET, scaled, stripes)
    assert key == f"{chunk_prefix(DATASET)}.stripe/{stripes.file_number(scaled)}/{chunk_name(scaled)}"
    assert chunk_of_key(key) == tuple(scaled)
    assert tree_of_key(key) == tree_of_key(storage_key(DATASET))
    assert key > storage_key(DATASET), "a sweep lists the record first"
    assert not is_map_key(key)
    assert not isS3ObjKey(key)
