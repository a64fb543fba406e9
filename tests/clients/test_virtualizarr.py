"""VirtualiZarr opens kerchunk references in JSON and in Parquet."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr

from hsparse.hdf5.maps.parquet_references import write_parquet
from hsparse.storage.posix import PosixStore
from tests.sn.chunks.test_kerchunk import linked_dataset, put_attribute
from tests.sn.file_domain import TEXT, fetch
from tests.sn.value_client import sparse, value_client
from tests.support.rest_client import RestClient

pytest.importorskip("virtualizarr", reason="VirtualiZarr is not installed")

from obspec_utils.registry import ObjectStoreRegistry
from obstore.store import LocalStore
from virtualizarr.parsers import KerchunkJSONParser, KerchunkParquetParser

# VirtualiZarr reads Parquet as fsspec does by default, and writes with codecs that are no part of zarr 3's format.
pytestmark = [
    pytest.mark.filterwarnings("ignore:The 'fastparquet' engine is deprecated"),
    pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3 specification"),
]
FIELD = np.arange(1200, dtype="<f4").reshape(30, 40)
CELLS = FIELD.copy()
CELLS[16:, :20] = -1
REFERENCE = {"class": "H5T_VLEN", "base": {"class": "H5T_REFERENCE", "base": "H5T_STD_REF_OBJ"}}


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[RestClient]:
    async with value_client(PosixStore(tmp_path, fsync=False)) as client:
        yield client


async def fill(client: RestClient) -> None:
    """Make a domain with a field over a dimension scale, in several chunks, and a sparse dataset.

    Of that one chunk is not stored. It must not be the last: VirtualiZarr takes the grid to end with the stored ones.
    """
    time = await linked_dataset(client, "/time", [30], "H5T_IEEE_F64LE")
    field = await linked_dataset(
        client,
        "/field",
        [30, 40],
        "H5T_IEEE_F32LE",
        layout={"class": "H5D_CHUNKED", "dims": [16, 20]},
        filters=["shuffle", "deflate"],
    )
    cells = await linked_dataset(
        client, "/cells", [30, 40], "H5T_IEEE_F32LE", layout=sparse(16, 20), fillValue=-1
    )
    await client("PUT", f"{time}/value", np.arange(30.0).tobytes())
    await client("PUT", f"{field}/value", FIELD.tobytes())
    await client("PUT", f"{cells}/value", CELLS[:16].tobytes(), select="[0:16,0:40]")
    await client("PUT", f"{cells}/value", CELLS[16:, 20:].tobytes(), select="[16:30,20:40]")
    await put_attribute(client, time, "CLASS", TEXT, "DIMENSION_SCALE")
    await put_attribute(client, field, "DIMENSION_LIST", REFERENCE, [[time.strip("/")], []], shape=[2])
    await put_attribute(client, field, "units", TEXT, "K")
    await put_attribute(client, field, "_FillValue", "H5T_IEEE_F32LE", [5.0], shape=[1])
    root = (await client("GET", "/"))["root"]
    await put_attribute(client, f"/groups/{root}", "title", TEXT, "a file")


def check(parser: Any, path: Path, *, sparse: bool) -> None:
    """Open what `parser` makes of a map, and compare all with what was written."""
    registry = ObjectStoreRegistry({"file://": LocalStore()})
    store = parser(url=f"file://{path}", registry=registry)
    with xr.open_zarr(store, consolidated=False, zarr_format=3) as data:
        assert (data.attrs["title"], data["field"].dims[0]) == ("a file", "time")
        assert data["field"].attrs["units"] == "K"
        np.testing.assert_array_equal(data["time"].values, np.arange(30.0))
        np.testing.assert_array_equal(data["field"].values, np.where(FIELD == 5, np.nan, FIELD))
        assert ("cells" in data) == sparse
    if sparse:
        np.testing.assert_array_equal(zarr.open_group(store, mode="r")["cells"][:], CELLS)


async def references(client: RestClient, **options: str) -> dict[str, Any]:
    reply = await client("GET", "/map", format="kerchunk", **options)
    assert reply.status == 200, reply.body
    body: dict[str, Any] = reply.body
    return body


async def copied(client: RestClient, path: Path) -> dict[str, str]:
    """Copy the domain's file; return what is asked for of a map about the copy."""
    await asyncio.to_thread(path.write_bytes, await fetch(client, layout="stock"))
    return {"addresses": "file", "base": f"file://{path}"}


@pytest.mark.parametrize("file", [False, True], ids=["objects", "file"])
async def test_references_in_json_and_parquet(client: RestClient, tmp_path: Path, file: bool) -> None:
    await fill(client)
    options = await copied(client, tmp_path / "copy.h5") if file else {"base": f"file://{tmp_path}/"}
    found = await references(client, **options)
    (tmp_path / "refs.json").write_text(json.dumps(found))
    check(KerchunkJSONParser(), tmp_path / "refs.json", sparse=file)
    write_parquet(tmp_path / "refs.parquet", found["refs"].items())
    check(KerchunkParquetParser(), tmp_path / "refs.parquet", sparse=file)
