"""References to dense chunks, which zarr and xarray open as they are."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import xarray as xr
import zarr

from hsparse.errors import Unsupported
from hsparse.format.filters.definition import Filter
from hsparse.hdf5.maps.kerchunk import is_scale, scales_of, zarr_array, zarr_attributes, zarr_type
from hsparse.storage.posix import PosixStore
from tests.sn.dataset_kinds import F32, F64, I8, I32, TEXT, array_of, chunked, sparse, vlen_of
from tests.sn.in_place.file_backed.test_elements import File
from tests.sn.value_client import create, put, value_client
from tests.support.rest_client import RestClient, answered

DENSE = chunked(8, 16)
SHAPE = (30, 40)
MODEL = np.arange(1200, dtype="<i4").reshape(SHAPE)
GZIP = ["shuffle", "deflate"]
FILTERS: list[Any] = [[], GZIP, [*GZIP, "fletcher32"], ["lz4"], ["bitshuffle", "zstd"], ["lzf"], ["shuffle"]]


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[RestClient]:
    async with value_client(PosixStore(tmp_path, fsync=False)) as client:
        yield client


async def references(client: RestClient, path: str, base: Path, **options: Any) -> dict[str, Any]:
    reply = await answered(client("GET", f"{path}/map", format="kerchunk", base=f"{base}/", **options))
    assert reply["version"] == 1
    body: dict[str, Any] = reply.body
    return body


def opened(found: dict[str, Any]) -> Any:
    """Return what zarr opens references as."""
    files = fsspec.filesystem("reference", fo=found, remote_protocol="file", asynchronous=True)
    return zarr.open(zarr.storage.FsspecStore(files, read_only=True), mode="r", zarr_format=2)


@pytest.mark.parametrize("filters", FILTERS, ids=str)
async def test_zarr_reads_what_was_written(client: RestClient, tmp_path: Path, filters: Any) -> None:
    path = await create(client, list(SHAPE), I32, layout=DENSE, filters=filters, fillValue=-7)
    expected = np.full(SHAPE, -7, "<i4")
    for box in (np.s_[0:9, 0:17], np.s_[20:30, 33:40]):
        expected[box] = MODEL[box]
        select = f"[{box[0].start}:{box[0].stop},{box[1].start}:{box[1].stop}]"
        await put(client, path, expected[box].tobytes(), select=select)
    array = opened(await references(client, path, tmp_path))
    np.testing.assert_array_equal(array[:], expected)
    assert array.chunks == tuple((await client("GET", f"{path}/chunks"))["dims"])


async def test_lower_bounds_between_chunks_are_at_0(client: RestClient, tmp_path: Path) -> None:
    bounds = {"lower": [-16, 32], "minlower": ["H5S_UNLIMITED", 32], "maxdims": [0, 0]}
    path = await create(client, list(SHAPE), I32, layout=DENSE, **bounds)
    await put(client, path, MODEL[7:, 8:].tobytes(), select="[-9:14,40:72]", places="signed")
    expected = np.zeros_like(MODEL)
    expected[7:, 8:] = MODEL[7:, 8:]
    for asked in ({"places": "signed"}, {}):
        array = opened(await references(client, path, tmp_path, **asked))
        np.testing.assert_array_equal(array[:], expected)
        assert array.attrs["hsparse_lower"] == [-16, 32]
    assert (await client("PUT", f"{path}/shape", {"lower": [-15, 32]})).status == 201
    reply = await client("GET", f"{path}/map", format="kerchunk")
    assert (reply.status, reply["error"]["kind"]) == (400, "unsupported")
    assert "a lower bound inside of a chunk" in reply["error"]["message"]


@pytest.mark.parametrize(
    ("kind", "dtype", "fill"),
    [
        ("H5T_IEEE_F64BE", ">f8", float("nan")),
        ("H5T_STD_U16BE", ">u2", 65535),
        ({"class": "H5T_ENUM", "base": I8, "mapping": {"FALSE": 0, "TRUE": 1}}, "?", True),
        (F32, "<f4", float("-inf")),
        (
            {"class": "H5T_STRING", "length": 5, "charSet": "H5T_CSET_ASCII", "strPad": "H5T_STR_NULLPAD"},
            "S5",
            "ab",
        ),
    ],
)
async def test_types_and_fill_values(
    client: RestClient, tmp_path: Path, kind: Any, dtype: str, fill: Any
) -> None:
    path = await create(client, [700], kind, layout=chunked(300), fillValue=fill)
    values = np.arange(300).astype(dtype)
    await put(client, path, values.tobytes(), select="[0:300]")
    array = opened(await references(client, path, tmp_path))
    assert array.dtype == np.dtype(dtype)
    filler = fill.encode() if isinstance(fill, str) else fill
    np.testing.assert_array_equal(array[:], np.concatenate([values, np.full(400, filler, dtype)]))


async def test_linked_chunks_are_referred_to_where_they_lie(client: RestClient, tmp_path: Path) -> None:
    file = File(MODEL, (8, 16), packed=True)
    (tmp_path / "a.h5").write_bytes(file.data)
    layout = {"class": "H5D_CHUNKED_REF", "file_uri": "a.h5", "dims": [8, 16], "chunks": file.listed()}
    path = await create(client, list(SHAPE), I32, layout=layout, filters=["deflate"], fillValue=-7)
    found = await references(client, path, tmp_path)
    offset, size = file.entries[next(iter(file.entries))]
    assert [f"{tmp_path}/a.h5", offset, size] in found["refs"].values()
    np.testing.assert_array_equal(opened(found)[:], file.values)
    (tmp_path / "raw").write_bytes(b"head" + MODEL.tobytes())
    layout = {"class": "H5D_CONTIGUOUS_REF", "file_uri": "raw", "offset": 4, "size": MODEL.nbytes}
    path = await create(client, list(SHAPE), I32, layout=layout)
    np.testing.assert_array_equal(opened(await references(client, path, tmp_path))[:], MODEL)


async def test_zarr_reads_the_domains_file(client: RestClient, tmp_path: Path) -> None:
    """Sparse datasets too, which are chunked ones with a fill value in a stock file."""
    for name, layout in (("dense", DENSE), ("sparse", sparse(8, 16))):
        properties = {"layout": layout, "filters": GZIP, "fillValue": -7}
        made = await linked_dataset(client, f"/g/{name}", list(SHAPE), I32, **properties)
        for box in ("[0:9,0:17]", "[20:30,33:40]"):
            await put(client, made, {"select": box, "value": 3})
    expected = np.full(SHAPE, -7, "<i4")
    expected[0:9, 0:17] = expected[20:30, 33:40] = 3
    file = tmp_path / "copy.h5"
    file.write_bytes((await client("GET", f"/files{client.domain}", domain=None, layout="stock")).body)
    for path, prefix in (("", "g/sparse"), ("", "g/dense"), (made, "")):
        reply = await client("GET", f"{path}/map", format="kerchunk", addresses="file", base=str(file))
        assert reply.status == 200, reply.body
        assert not reply.body.get("skipped")
        assert reply["file"]["size"] == file.stat().st_size
        found = opened(reply.body)
        np.testing.assert_array_equal((found[prefix] if prefix else found)[:], expected)
    remote = (await client("GET", "/map", format="kerchunk", addresses="file")).body
    assert {one[0] for one in remote["refs"].values() if isinstance(one, list)} == {remote["file"]["href"]}
    refused = await client("GET", f"{made}/map", format="kerchunk", addresses="file", layout="structured")
    assert (refused.status, refused["error"]["kind"]) == (400, "unsupported")
    kind = {"class": "H5T_REFERENCE", "base": "H5T_STD_REF_OBJ"}
    made = await linked_dataset(client, "/references", [3], kind)
    refused = await client("GET", f"{made}/map", format="kerchunk", addresses="file")
    assert "whose bytes differ in a file" in refused["error"]["message"]


async def test_a_chunk_without_its_filters_cannot_be_referred_to(client: RestClient, tmp_path: Path) -> None:
    (tmp_path / "a.h5").write_bytes(MODEL[0].tobytes())
    layout = {"class": "H5D_CHUNKED_REF", "file_uri": "a.h5", "dims": [40], "chunks": {"0": [0, 160, 1]}}
    path = await create(client, [40], I32, layout=layout, filters=["deflate"])
    reply = await client("GET", f"{path}/map", format="kerchunk")
    assert (reply.status, reply["error"]["kind"]) == (400, "unsupported")
    await linked_dataset(client, "/masked", [40], I32, layout=layout, filters=["deflate"])
    await linked_dataset(client, "/null", "H5S_NULL", I32)
    await linked_dataset(client, "/plain", [40], I32)
    found = (await client("GET", "/map", format="kerchunk")).body
    assert set(found["skipped"]) == {"/masked", "/null"}
    assert "mask" in found["skipped"]["/masked"]
    assert {name for name in found["refs"] if "/" in name} == {"plain/.zarray", "plain/.zattrs"}


@pytest.mark.parametrize(
    ("kind", "properties"),
    [
        (I32, {"layout": sparse(10)}),
        ({"class": "H5T_STRING", "charSet": "H5T_CSET_UTF8", "length": "H5T_VARIABLE"}, {}),
        (array_of(I32, 2), {}),
        (I32, {"initializer": ["arange"]}),
    ],
    ids=["sparse", "text", "array", "arange"],
)
async def test_what_zarr_does_not_have(client: RestClient, kind: Any, properties: Any) -> None:
    path = await create(client, [40], kind, **properties)
    reply = await client("GET", f"{path}/map", format="kerchunk")
    assert (reply.status, reply["error"]["kind"]) == (400, "unsupported")
    assert path.rpartition("/")[2] in reply["error"]["message"] or "zarr" in reply["error"]["message"]


async def put_attribute(
    client: RestClient, path: str, name: str, kind: Any, value: Any, **shape: Any
) -> None:
    await answered(client("PUT", f"{path}/attributes/{name}", {"type": kind, "value": value, **shape}), 201)


async def linked_dataset(client: RestClient, h5path: str, shape: Any, kind: Any, **properties: Any) -> str:
    body = {"type": kind, "shape": shape, "h5path": h5path, "creationProperties": properties}
    made = await answered(client("POST", "/datasets", body, implicit=1), 201)
    return f"/datasets/{made['id']}"


async def test_xarray_opens_a_domain(client: RestClient, tmp_path: Path) -> None:
    field = await linked_dataset(client, "/a_field", [30, 40], F32, filters=["shuffle", "deflate"])
    times = await linked_dataset(client, "/time", [30], F64)
    deep = await linked_dataset(client, "/more/deep/counts", [4], I32)
    await linked_dataset(client, "/cells", [10], I32, layout=sparse(5))
    values = MODEL.astype("<f4")
    await put(client, field, values.tobytes())
    await put(client, times, np.arange(30.0).tobytes())
    await put(client, deep, np.arange(4, dtype="<i4").tobytes())
    await put_attribute(client, times, "CLASS", TEXT, "DIMENSION_SCALE")
    reference = vlen_of({"class": "H5T_REFERENCE", "base": "H5T_STD_REF_OBJ"})
    await put_attribute(client, field, "DIMENSION_LIST", reference, [[times.strip("/")], []], shape=[2])
    await put_attribute(client, field, "units", TEXT, "K")
    await put_attribute(client, field, "_FillValue", F32, -1.0)
    await put_attribute(client, field, "levels", I32, [1, 2], shape=[2])
    root = (await client("GET", "/"))["root"]
    await put_attribute(client, f"/groups/{root}", "title", TEXT, "a file")
    found = await references(client, "", tmp_path)
    assert list(found["skipped"]) == ["/cells"]
    assert "sparse" in found["skipped"]["/cells"]
    assert json.loads(found["refs"]["more/deep/counts/.zarray"])["shape"] == [4]
    (tmp_path / "refs.json").write_text(json.dumps(found))
    options = {"fo": str(tmp_path / "refs.json"), "remote_protocol": "file"}
    with xr.open_dataset(
        "reference://", engine="zarr", consolidated=False, backend_kwargs={"storage_options": options}
    ) as data:
        assert data.attrs == {"title": "a file"}
        assert data["a_field"].dims == ("time", "a_field_dim_1")
        assert data["a_field"].attrs["units"] == "K"
        np.testing.assert_array_equal(data["time"].values, np.arange(30.0))
        np.testing.assert_array_equal(data["a_field"].values, values)
        assert float(data["a_field"].sel(time=2.0)[3]) == values[2, 3]
    group = opened(found)
    assert group["more/deep/counts"][:].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("query", [{"format": "xml"}, {"base": "s3://x/"}])
async def test_what_cannot_be_asked(client: RestClient, query: dict[str, str]) -> None:
    path = await create(client, [40], I32)
    for place in (path, ""):
        assert (await client("GET", f"{place}/map", **query)).status == 400


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
        "filters": [{"id": "shuffle", "elementsize": 4}, {"id": "zlib", "level": 6}, {"id": "fletcher32"}],
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
    number = {"class": "H5T_FLOAT", "base": F64}
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
