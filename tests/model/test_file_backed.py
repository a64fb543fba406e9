"""File-backed datasets: layouts and their grids, which URIs name a file of the store, and what is refused."""

from __future__ import annotations

from math import prod
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import BadRequest, Forbidden
from hsparse.format.chunk_spec import chunk_spec
from hsparse.model.dataspace import parse_shape
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
from hsparse.model.layout import chunk_dims, layout_json, parse_layout

MIN, MAX = 1 << 20, 1 << 22
ID = "d-00000000-00000001-0000-000000-000001"
CONTIGUOUS = {"class": "H5D_CONTIGUOUS_REF", "file_uri": "a.h5", "offset": 2048, "size": 4000}
CHUNKED = {
    "class": "H5D_CHUNKED_REF",
    "file_uri": "a.h5",
    "dims": [10, 10],
    "chunks": {"0_0": [100, 400], "1_2": [900, 400]},
}
INDIRECT = {"class": "H5D_CHUNKED_REF_INDIRECT", "file_uri": "a.h5", "dims": [10, 10], "chunk_table": ID}
SHAPE = {"shape": [50, 20]}


def made(asked: Any, shape: Any = SHAPE, kind: Any = "H5T_STD_I32LE", filters: Any = ()) -> dict[str, Any]:
    """Return a record with the layout for what is asked."""
    dataspace, datatype = parse_shape(shape), parse_type(kind)
    layout = parse_layout(asked, dataspace, datatype, filtered=bool(filters), min_bytes=MIN, max_bytes=MAX)
    properties = {"filters": list(filters)} if filters else {}
    return {"id": ID, "type": datatype.item, "shape": dataspace} | layout.fields(properties)


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
    with pytest.raises(BadRequest, match="cannot make up"):
        piece_dims(INDIRECT | {"hyper_dims": [3, 5]}, (10, 10))


@pytest.mark.parametrize(
    "uri",
    [
        "s3://bucket",
        "s3://bucket/",
        "s3://bucket//etc/passwd",
        "s3:///tall.h5",
        "file:///etc/passwd",
        "http://bucket/tall.h5",
        "https://account.blob.core.windows.net/bucket/tall.h5",
        "/etc/passwd",
        "../tall.h5",
        "data/../../etc/passwd",
        "bucket/../etc/passwd",
        "data/./tall.h5",
        "data//tall.h5",
        "data/",
        "",
        "db/0-0/d/0-0-0/0_0",
        "bucket/db/0-0/d/0-0-0/0_0",
        "s3://bucket/db/0-0/.group.json",
        "db",
        "DB/0-0/d/0-0-0/0_0",
        "bucket/Db/0-0/.group.json",
        "home/alice/.domain.json",
        ".hsparse/locks/00",
        "home/.hidden/x.h5",
        "x" * (MAX_URI + 1),
    ],
)
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
