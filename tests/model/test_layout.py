"""Extents, and the layouts and chunks that datasets get, also those of files of the store."""

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

from hsparse.errors import BadRequest, Forbidden, Unsupported
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
from hsparse.model.file_backed import (
    GROUP_BYTES,
    MAX_PIECES,
    MAX_URI,
    SLAB_BYTES,
    file_backed_layout,
    file_key,
    file_reference,
    grouped_dims,
    is_file_backed,
    piece_dims,
    slab_dims,
)
from hsparse.model.file_backed_layout import MAX_ENTRIES
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


SHAPE = {"shape": [50, 20]}


def made(asked: Any, shape: Any = SHAPE, kind: Any = "H5T_STD_I32LE", filters: Any = ()) -> dict[str, Any]:
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
        {"shape": -1}, {"shape": [1, "2"]}, {"shape": [1.5]}, {"shape": [True]}, {"shape": "x"},
        {"shape": [2**63]}, {"shape": [2**40, 2**40]}, {"shape": [1] * 33}, {"shape": None},
        {"shape": {"class": "H5S_FOO"}}, {"shape": {"class": "H5S_NULL", "dims": [1]}},
        {"shape": {"class": "H5S_SIMPLE"}}, {"maxdims": [1]}, {"shape": "H5S_NULL", "maxdims": [1]},
        {"shape": [5], "maxdims": [4]}, {"shape": [5], "maxdims": [-1]}, {"shape": [5], "maxdims": [5, 5]},
        {"shape": [5], "maxdims": "x"}, {"shape": [5], "maxdims": [True]},
    ],
)  # fmt: skip
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
    with pytest.raises(Unsupported, match="chunk must have 3 dimensions, not 2"):
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


CONTIGUOUS = {"class": "H5D_CONTIGUOUS_REF", "file_uri": "a.h5", "offset": 2048, "size": 4000}
CHUNKED = {
    "class": "H5D_CHUNKED_REF",
    "file_uri": "a.h5",
    "dims": [10, 10],
    "chunks": {"0_0": [100, 400], "1_2": [900, 400]},
}
INDIRECT = {"class": "H5D_CHUNKED_REF_INDIRECT", "file_uri": "a.h5", "dims": [10, 10], "chunk_table": ID}


@pytest.mark.parametrize("asked", [CONTIGUOUS, CHUNKED, INDIRECT, INDIRECT | {"hyper_dims": [5, 2]}])
def test_what_is_asked_is_shown(asked: dict[str, Any]) -> None:
    record = made(asked)
    assert layout_json(record) == asked == file_backed_layout(record)
    assert is_file_backed(record)
    assert chunk_spec(record).dims == chunk_dims(record) == tuple(record["layout"]["dims"])
    piece = piece_dims(asked, chunk_dims(record))
    assert all(dim % p == 0 for dim, p in zip(chunk_dims(record), piece, strict=True))


def test_records_of_hsds_are_read() -> None:
    older = {"id": ID, "type": parse_type("H5T_STD_I32LE").item, "shape": parse_shape(SHAPE)}
    record = older | {
        "layout": {"class": "H5D_CHUNKED", "dims": [10, 10]},
        "creationProperties": {"layout": CHUNKED},
    }
    assert chunk_dims(record) == (10, 10)
    assert chunk_dims(older | {"creationProperties": {"layout": CHUNKED}}) == (10, 10)
    blocks = {
        "layout": {"class": "H5D_CHUNKED", "dims": [7, 3]},
        "creationProperties": {"layout": CONTIGUOUS},
    }
    assert chunk_dims(older | blocks) == (50, 20), (
        "whatever blocks HSDS would read, here it is one range a chunk"
    )


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=4), st.sampled_from([1, 4, 100, 10**7]))
def test_a_slab_is_one_range(dims: list[int], size: int) -> None:
    chunk = slab_dims(tuple(dims), size)
    split = next((dim for dim, length in enumerate(chunk) if length > 1), len(dims) - 1)
    assert all(length == 1 for length in chunk[:split])
    assert chunk[split + 1 :] == tuple(max(1, dim) for dim in dims[split + 1 :])
    assert all(1 <= length <= max(1, dim) for length, dim in zip(chunk, dims, strict=True))
    assert prod(chunk) * size <= SLAB_BYTES or prod(chunk) == 1
    grown = (*chunk[:split], chunk[split] + 1, *chunk[split + 1 :])
    assert chunk[split] >= dims[split] or prod(grown) * size > SLAB_BYTES / 2, "as long as it may be, about"


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 5000)), min_size=1, max_size=3))
def test_small_pieces_are_put_together(dims: list[tuple[int, int]]) -> None:
    piece, limits = tuple(p for p, _ in dims), tuple(limit for _, limit in dims)
    grid = grouped_dims(piece, limits, 8)
    factors = [g // p for g, p in zip(grid, piece, strict=True)]
    assert all(g % p == 0 for g, p in zip(grid, piece, strict=True))
    assert prod(factors) <= 2 * MAX_PIECES
    assert all((f - 1) * p < limit for f, p, limit in zip(factors, piece, limits, strict=True))
    whole = all(g >= limit for g, limit in zip(grid, limits, strict=True))
    assert whole or prod(grid) * 8 >= min(GROUP_BYTES, prod(piece) * 8 * MAX_PIECES)


@pytest.mark.parametrize(
    ("asked", "shape", "kind", "filters"),
    [
        (CONTIGUOUS | {"size": 4001}, SHAPE, "H5T_STD_I32LE", ()),
        (CONTIGUOUS | {"size": "4000"}, SHAPE, "H5T_STD_I32LE", ()),
        (CONTIGUOUS | {"offset": -1}, SHAPE, "H5T_STD_I32LE", ()),
        (CONTIGUOUS | {"offset": True}, SHAPE, "H5T_STD_I32LE", ()),
        (CONTIGUOUS | {"offset": 2**63}, SHAPE, "H5T_STD_I32LE", ()),
        (CONTIGUOUS | {"file_uri": ""}, SHAPE, "H5T_STD_I32LE", ()),
        (CONTIGUOUS | {"file_uri": 5}, SHAPE, "H5T_STD_I32LE", ()),
        (CONTIGUOUS, SHAPE, "H5T_STD_I32LE", ["shuffle"]),
        (CONTIGUOUS, {"shape": [50, 20], "maxdims": [0, 20]}, "H5T_STD_I32LE", ()),
        (CONTIGUOUS, {"shape": []}, "H5T_STD_I32LE", ()),
        (CONTIGUOUS, {"shape": "H5S_NULL"}, "H5T_STD_I32LE", ()),
        (
            CONTIGUOUS,
            SHAPE,
            {"class": "H5T_STRING", "length": "H5T_VARIABLE", "charSet": "H5T_CSET_ASCII"},
            (),
        ),
        (CHUNKED, SHAPE, {"class": "H5T_REFERENCE", "base": "H5T_STD_REF_OBJ"}, ()),
        (CHUNKED | {"dims": [10]}, SHAPE, "H5T_STD_I32LE", ()),
        (CHUNKED | {"dims": [51, 20]}, SHAPE, "H5T_STD_I32LE", ()),
        (CHUNKED | {"dims": None}, SHAPE, "H5T_STD_I32LE", ()),
        (CHUNKED | {"dims": [20000, 20000]}, {"shape": [20000, 20000]}, "H5T_STD_I32LE", ()),
        (CHUNKED | {"chunks": None}, SHAPE, "H5T_STD_I32LE", ()),
        (CHUNKED | {"chunks": []}, SHAPE, "H5T_STD_I32LE", ()),
        (CHUNKED | {"chunks": {"0": [0, 400]}}, SHAPE, "H5T_STD_I32LE", ()),
        (CHUNKED | {"chunks": {"0_-1": [0, 400]}}, SHAPE, "H5T_STD_I32LE", ()),
        (CHUNKED | {"chunks": {"0_0": [0]}}, SHAPE, "H5T_STD_I32LE", ()),
        (CHUNKED | {"chunks": {"0_0": [0, 400, -1]}}, SHAPE, "H5T_STD_I32LE", ()),
        (CHUNKED | {"chunks": {"0_0": [0, -400]}}, SHAPE, "H5T_STD_I32LE", ()),
        (CHUNKED | {"chunks": {"0_0": [0.5, 400]}}, SHAPE, "H5T_STD_I32LE", ()),
        (CHUNKED | {"chunks": {"0_0": [0, 399]}}, SHAPE, "H5T_STD_I32LE", ()),
        (
            CHUNKED | {"chunks": {f"{i}_0": [0, 400] for i in range(MAX_ENTRIES + 1)}},
            SHAPE,
            "H5T_STD_I32LE",
            (),
        ),
        (INDIRECT | {"chunk_table": 7}, SHAPE, "H5T_STD_I32LE", ()),
        (INDIRECT | {"hyper_dims": [5]}, SHAPE, "H5T_STD_I32LE", ()),
        (INDIRECT | {"hyper_dims": [0, 5]}, SHAPE, "H5T_STD_I32LE", ()),
        (INDIRECT | {"hyper_dims": "5"}, SHAPE, "H5T_STD_I32LE", ()),
    ],
)
def test_refused_layouts(asked: Any, shape: Any, kind: Any, filters: Any) -> None:
    with pytest.raises(BadRequest) as caught:
        made(asked, shape, kind, filters)
    assert caught.value.message.endswith(".")


def test_references_are_found_wherever_they_are() -> None:
    item = {"class": "H5T_REFERENCE", "base": "H5T_STD_REF_OBJ"}
    compound = {"class": "H5T_COMPOUND", "fields": [{"name": "r", "type": item}]}
    with pytest.raises(BadRequest, match="addresses inside their file"):
        made(INDIRECT, SHAPE, compound)
    made(
        INDIRECT,
        SHAPE,
        {"class": "H5T_COMPOUND", "fields": [{"name": "H5T_STD_REF", "type": "H5T_STD_I8LE"}]},
    )


def test_pieces_must_divide_a_chunk() -> None:
    with pytest.raises(BadRequest, match="do not divide"):
        piece_dims(INDIRECT | {"hyper_dims": [3, 5]}, (10, 10))


@pytest.mark.parametrize(
    "uri",
    [
        "s3://bucket", "s3://bucket/", "s3://bucket//etc/passwd", "s3:///tall.h5", "file:///etc/passwd",
        "http://bucket/tall.h5", "https://account.blob.core.windows.net/bucket/tall.h5", "/etc/passwd",
        "../tall.h5", "data/../../etc/passwd", "bucket/../etc/passwd", "data/./tall.h5", "data//tall.h5",
        "data/", "", "db/0-0/d/0-0-0/0_0", "bucket/db/0-0/d/0-0-0/0_0", "s3://bucket/db/0-0/.group.json",
        "db", "DB/0-0/d/0-0-0/0_0", "bucket/Db/0-0/.group.json", "home/alice/.domain.json",
        ".hsparse/locks/00", "home/.hidden/x.h5", "x" * (MAX_URI + 1),
    ],
)  # fmt: skip
def test_refused_files(uri: str) -> None:
    with pytest.raises(BadRequest) as caught:
        file_key(uri, "bucket")
    assert caught.value.message.endswith(".")
    assert len(caught.value.message) < 400


@pytest.mark.parametrize("uri", ["s3://other/data/tall.h5", "file://other/tall.h5"])
def test_a_file_of_another_bucket(uri: str) -> None:
    assert file_reference(uri, "bucket") == ("other", uri.partition("://other/")[2])
    with pytest.raises(Forbidden, match="'other'"):
        file_key(uri, "bucket")


@given(st.text(alphabet="abdBD./:s3-", max_size=30))
def test_no_key_leads_out_of_the_store_or_into_its_own(uri: str) -> None:
    try:
        key = file_key(uri, "b")
    except (BadRequest, Forbidden):
        return
    components = key.split("/")
    assert all(components)
    assert not any(component.startswith(".") for component in components)
    assert components[0].lower() != "db"
    assert uri.endswith(key)
