"""Rows of a map against the bytes of the domain's file at the addresses that they tell."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

from hsparse.sn.records import stored_chunks
from tests.sn.file_domain import GZIP, INT, TEXT, fetch, fill_domain, place
from tests.sn.value_client import BINARY, sparse, value_client
from tests.support.rest_client import RestClient

LAYOUTS = ["stock", "structured"]


@pytest.fixture
async def client() -> AsyncIterator[RestClient]:
    async with value_client() as client:
        yield client


async def file_map(client: RestClient, path: str = "", **options: Any) -> dict[str, Any]:
    reply = await client("GET", f"{path}/map", addresses="file", **options)
    assert reply.status == 200, reply.body
    body: dict[str, Any] = reply.body
    return body


def part(whole: bytes, told: dict[str, int]) -> bytes:
    """Return the bytes of a file that a row tells of."""
    return whole[told["address"] : told["address"] + told["size"]]


async def elements(client: RestClient, id: str, row: dict[str, Any], found: dict[str, Any]) -> np.ndarray:
    """Return a chunk's elements inside the extent, as values are read."""
    shape, chunk = found["shape"].get("dims", []), found["layout"]["dims"]
    stops = [min(at + dim, most) for at, dim, most in zip(row["offset"], chunk, shape, strict=True)]
    select = ",".join(f"{at}:{stop}" for at, stop in zip(row["offset"], stops, strict=True))
    query = {"select": f"[{select}]"} if shape else {}
    reply = await client("GET", f"/datasets/{id}/value", accept=BINARY, **query)
    assert reply.status == 200, reply.body
    dims = [stop - at for at, stop in zip(row["offset"], stops, strict=True)]
    return np.frombuffer(reply.body, numpy_type(found)).reshape(dims)


def numpy_type(found: dict[str, Any]) -> np.dtype[Any]:
    told = found["dtype"]
    return np.dtype(told if isinstance(told, str) else [tuple(field) for field in told])


def inside(data: bytes, dtype: Any, chunk: list[int], like: np.ndarray) -> np.ndarray:
    """Return those of a whole chunk's elements that `like` has too."""
    return np.frombuffer(data, dtype).reshape(chunk)[tuple(slice(0, size) for size in like.shape)]


async def numbered(client: RestClient) -> str:
    """Create a dataset that holds its own coordinates, with one of three chunks written."""
    layout = {"class": "H5D_CHUNKED", "dims": [256]}
    initializer = ["arange", "--start=0", "--step=1"]
    return await place(
        client, "/numbered", INT, [700], 7, select="[3]", layout=layout, filters=GZIP, initializer=initializer
    )


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_bytes_at_the_addresses_are_the_chunks(client: RestClient, layout: str) -> None:
    await fill_domain(client)
    await numbered(client)
    whole = await fetch(client, layout=layout)
    forms = set()
    for path, found in (await file_map(client, layout=layout))["datasets"].items():
        if "chunks" not in found:
            continue
        kind = "sparse" if "H5D_SPARSE_DATA" in found["layout"].get("flags", ()) else "dense"
        for row in found["chunks"]:
            data = part(whole, row["file"])
            assert len(data) == row["file"]["size"]
            name = "_".join(map(str, row["scaled"])) or "0"
            if row["file"]["stored"]:
                stored = await client("GET", f"/datasets/{found['id']}/chunks/{name}/value")
                assert stored.body == data, path
            elif "dtype" in found and found["type"]["class"] != "H5T_REFERENCE":
                expected = await elements(client, found["id"], row, found)
                got = inside(data, numpy_type(found), found["layout"]["dims"], expected)
                assert (got == expected).all(), path
            told = row["file"].get("defined_set")
            assert (told is not None) == (kind == "sparse" and layout == "stock" and "key" in row)
            if told is not None:
                counted = np.frombuffer(part(whole, told), "u1")
                assert counted.sum() == row["defined"]
            forms.add((kind, row["file"]["stored"], "key" in row))
    expected = {("dense", True, True), ("dense", False, True), ("dense", False, False)}
    expected |= {("sparse", layout == "structured", True)}
    # Text never written is made in the stock layout, where it is the fill value.
    assert forms == expected | ({("sparse", False, False)} if layout == "stock" else set())


async def test_what_is_told_of_objects_stays(client: RestClient) -> None:
    ids = await fill_domain(client)
    plain = (await client("GET", f"/datasets/{ids['/sparse']}/map")).body
    found = await file_map(client, f"/datasets/{ids['/sparse']}")
    assert {key: value for key, value in found.items() if key not in ("file", "chunks")} == {
        key: value for key, value in plain.items() if key != "chunks"
    }
    rows = [{key: value for key, value in row.items() if key != "file"} for row in found["chunks"]]
    assert rows == plain["chunks"]
    assert (await file_map(client))["datasets"]["/again"]["chunks"] == found["chunks"]


async def test_what_the_file_has_without_an_object(client: RestClient) -> None:
    """Two of three chunks of a dataset with an initializer were never written; the file has their elements."""
    id = await numbered(client)
    whole = await fetch(client)
    rows = (await file_map(client, f"/datasets/{id}"))["chunks"]
    assert [row["scaled"] for row in rows] == [[0], [1], [2]]
    assert ["key" in row for row in rows] == [True, False, False]
    assert not any(row["file"]["stored"] for row in rows[1:])
    assert np.frombuffer(part(whole, rows[1]["file"]), "<i4").tolist() == list(range(256, 512))


async def test_a_chunk_with_nothing_defined_is_in_no_stock_file(client: RestClient) -> None:
    id = await place(client, "/s", INT, [40], 5, select="[0:40]", layout=sparse(10))
    assert (await client("DELETE", f"/datasets/{id}/value?select=[10:20]")).status == 200
    for layout in LAYOUTS:
        rows = (await file_map(client, f"/datasets/{id}", layout=layout))["chunks"]
        assert [(row["scaled"][0], row["defined"], "file" in row) for row in rows] == [
            (0, 10, True),
            (1, 0, False),
            (2, 10, True),
            (3, 10, True),
        ]


async def test_all_pages_have_places(client: RestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    id = await place(client, "/s", INT, [500], 5, select="[0:500]", layout=sparse(1))
    whole = await fetch(client, layout="stock")
    monkeypatch.setattr(stored_chunks, "CHUNK_PAGE", 70)
    rows = (await file_map(client, f"/datasets/{id}"))["chunks"]
    assert len({row["file"]["address"] for row in rows}) == 500
    assert {part(whole, row["file"]) for row in rows} == {np.array([5], "<i4").tobytes()}


async def test_text_has_its_collections_behind_it(client: RestClient) -> None:
    id = await place(client, "/t", TEXT, [2], ["one", "größe"])
    (row,) = (await file_map(client, f"/datasets/{id}"))["chunks"]
    data = part(await fetch(client), row["file"])
    assert not row["file"]["stored"]
    assert data.index(b"GCOL") == 32
    assert "größe".encode() in data
