"""References to dense chunks against the readers they are for: zarr and xarray, which open them as they are."""

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

from hsparse.storage.posix import PosixStore
from tests.sn.in_place.file_backed.test_elements import File
from tests.sn.value_client import create, sparse, value_client
from tests.support.rest_client import RestClient

INT = "H5T_STD_I32LE"
DENSE = {"class": "H5D_CHUNKED", "dims": [8, 16]}
SHAPE = (30, 40)
MODEL = np.arange(1200, dtype="<i4").reshape(SHAPE)
FILTERS: list[Any] = [
    [],
    ["shuffle", "deflate"],
    ["shuffle", "deflate", "fletcher32"],
    ["lz4"],
    ["bitshuffle", "zstd"],
    ["lzf"],
    ["shuffle"],
]


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[RestClient]:
    async with value_client(PosixStore(tmp_path, fsync=False)) as client:
        yield client


async def references(client: RestClient, path: str, base: Path, **options: Any) -> dict[str, Any]:
    reply = await client("GET", f"{path}/map", format="kerchunk", base=f"{base}/", **options)
    assert reply.status == 200, reply.body
    assert reply["version"] == 1
    body: dict[str, Any] = reply.body
    return body


def opened(found: dict[str, Any]) -> Any:
    """Return what zarr opens references as."""
    files = fsspec.filesystem("reference", fo=found, remote_protocol="file", asynchronous=True)
    return zarr.open(zarr.storage.FsspecStore(files, read_only=True), mode="r", zarr_format=2)


@pytest.mark.parametrize("filters", FILTERS, ids=str)
async def test_zarr_reads_what_was_written(client: RestClient, tmp_path: Path, filters: Any) -> None:
    path = await create(client, list(SHAPE), INT, layout=DENSE, filters=filters, fillValue=-7)
    expected = np.full(SHAPE, -7, "<i4")
    for box in (np.s_[0:9, 0:17], np.s_[20:30, 33:40]):
        expected[box] = MODEL[box]
        select = f"[{box[0].start}:{box[0].stop},{box[1].start}:{box[1].stop}]"
        reply = await client("PUT", f"{path}/value", expected[box].tobytes(), select=select)
        assert reply.status == 200
    array = opened(await references(client, path, tmp_path))
    np.testing.assert_array_equal(array[:], expected)
    assert array.chunks == tuple((await client("GET", f"{path}/chunks"))["dims"])


async def test_lower_bounds_between_chunks_are_at_0(client: RestClient, tmp_path: Path) -> None:
    bounds = {"lower": [-16, 32], "minlower": ["H5S_UNLIMITED", 32], "maxdims": [0, 0]}
    path = await create(client, list(SHAPE), INT, layout=DENSE, **bounds)
    select = "[-9:14,40:72]"
    reply = await client("PUT", f"{path}/value", MODEL[7:, 8:].tobytes(), select=select, places="signed")
    assert reply.status == 200, reply.body
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
        ({"class": "H5T_ENUM", "base": "H5T_STD_I8LE", "mapping": {"FALSE": 0, "TRUE": 1}}, "?", True),
        ("H5T_IEEE_F32LE", "<f4", float("-inf")),
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
    path = await create(client, [700], kind, layout={"class": "H5D_CHUNKED", "dims": [300]}, fillValue=fill)
    values = np.arange(300).astype(dtype)
    reply = await client("PUT", f"{path}/value", values.tobytes(), select="[0:300]")
    assert reply.status == 200, reply.body
    array = opened(await references(client, path, tmp_path))
    assert array.dtype == np.dtype(dtype)
    filler = fill.encode() if isinstance(fill, str) else fill
    np.testing.assert_array_equal(array[:], np.concatenate([values, np.full(400, filler, dtype)]))


async def test_linked_chunks_are_referred_to_where_they_lie(client: RestClient, tmp_path: Path) -> None:
    file = File(MODEL, (8, 16), packed=True)
    (tmp_path / "a.h5").write_bytes(file.data)
    layout = {"class": "H5D_CHUNKED_REF", "file_uri": "a.h5", "dims": [8, 16], "chunks": file.listed()}
    path = await create(client, list(SHAPE), INT, layout=layout, filters=["deflate"], fillValue=-7)
    found = await references(client, path, tmp_path)
    offset, size = file.entries[next(iter(file.entries))]
    assert [f"{tmp_path}/a.h5", offset, size] in found["refs"].values()
    np.testing.assert_array_equal(opened(found)[:], file.values)
    (tmp_path / "raw").write_bytes(b"head" + MODEL.tobytes())
    layout = {"class": "H5D_CONTIGUOUS_REF", "file_uri": "raw", "offset": 4, "size": MODEL.nbytes}
    path = await create(client, list(SHAPE), INT, layout=layout)
    np.testing.assert_array_equal(opened(await references(client, path, tmp_path))[:], MODEL)


async def test_zarr_reads_the_domains_file(client: RestClient, tmp_path: Path) -> None:
    """Sparse datasets too, which are chunked ones with a fill value in a stock file."""
    for name, layout in (("dense", DENSE), ("sparse", sparse(8, 16))):
        made = await linked_dataset(
            client,
            f"/g/{name}",
            list(SHAPE),
            INT,
            layout=layout,
            filters=["shuffle", "deflate"],
            fillValue=-7,
        )
        for box in ("[0:9,0:17]", "[20:30,33:40]"):
            assert (await client("PUT", f"{made}/value", {"select": box, "value": 3})).status == 200
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
    assert "which differ in a file" in refused["error"]["message"]


async def test_a_chunk_without_its_filters_cannot_be_referred_to(client: RestClient, tmp_path: Path) -> None:
    (tmp_path / "a.h5").write_bytes(MODEL[0].tobytes())
    layout = {"class": "H5D_CHUNKED_REF", "file_uri": "a.h5", "dims": [40], "chunks": {"0": [0, 160, 1]}}
    path = await create(client, [40], INT, layout=layout, filters=["deflate"])
    reply = await client("GET", f"{path}/map", format="kerchunk")
    assert (reply.status, reply["error"]["kind"]) == (400, "unsupported")
    await linked_dataset(client, "/masked", [40], INT, layout=layout, filters=["deflate"])
    await linked_dataset(client, "/null", "H5S_NULL", INT)
    await linked_dataset(client, "/plain", [40], INT)
    found = (await client("GET", "/map", format="kerchunk")).body
    assert set(found["skipped"]) == {"/masked", "/null"}
    assert "mask" in found["skipped"]["/masked"]
    assert {name for name in found["refs"] if "/" in name} == {"plain/.zarray", "plain/.zattrs"}


@pytest.mark.parametrize(
    ("kind", "properties"),
    [
        (INT, {"layout": sparse(10)}),
        ({"class": "H5T_STRING", "charSet": "H5T_CSET_UTF8", "length": "H5T_VARIABLE"}, {}),
        ({"class": "H5T_ARRAY", "base": INT, "dims": [2]}, {}),
        (INT, {"initializer": ["arange"]}),
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
    reply = await client("PUT", f"{path}/attributes/{name}", {"type": kind, "value": value, **shape})
    assert reply.status == 201, reply.body


async def linked_dataset(client: RestClient, h5path: str, shape: Any, kind: Any, **properties: Any) -> str:
    body = {"type": kind, "shape": shape, "h5path": h5path, "creationProperties": properties}
    made = await client("POST", "/datasets", body, implicit=1)
    assert made.status == 201, made.body
    return f"/datasets/{made['id']}"


async def test_xarray_opens_a_domain(client: RestClient, tmp_path: Path) -> None:
    text = {"class": "H5T_STRING", "charSet": "H5T_CSET_UTF8", "length": "H5T_VARIABLE"}
    field = await linked_dataset(
        client, "/a_field", [30, 40], "H5T_IEEE_F32LE", filters=["shuffle", "deflate"]
    )
    times = await linked_dataset(client, "/time", [30], "H5T_IEEE_F64LE")
    deep = await linked_dataset(client, "/more/deep/counts", [4], INT)
    await linked_dataset(client, "/cells", [10], INT, layout=sparse(5))
    values = MODEL.astype("<f4")
    await client("PUT", f"{field}/value", values.tobytes())
    await client("PUT", f"{times}/value", np.arange(30.0).tobytes())
    await client("PUT", f"{deep}/value", np.arange(4, dtype="<i4").tobytes())
    await put_attribute(client, times, "CLASS", text, "DIMENSION_SCALE")
    reference = {"class": "H5T_VLEN", "base": {"class": "H5T_REFERENCE", "base": "H5T_STD_REF_OBJ"}}
    await put_attribute(client, field, "DIMENSION_LIST", reference, [[times.strip("/")], []], shape=[2])
    await put_attribute(client, field, "units", text, "K")
    await put_attribute(client, field, "_FillValue", "H5T_IEEE_F32LE", -1.0)
    await put_attribute(client, field, "levels", "H5T_STD_I32LE", [1, 2], shape=[2])
    root = (await client("GET", "/"))["root"]
    await put_attribute(client, f"/groups/{root}", "title", text, "a file")
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
    path = await create(client, [40], INT)
    for place in (path, ""):
        assert (await client("GET", f"{place}/map", **query)).status == 400
