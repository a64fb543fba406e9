"""The etag of a dataset's map: it is another one after each change, and no request to the store makes it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.sn.value_client import create, sparse, value_client
from tests.support.rest_client import RestClient


@pytest.fixture
async def client() -> AsyncIterator[RestClient]:
    async with value_client() as client:
        yield client


async def etag_of(client: RestClient, path: str, **params: object) -> str:
    answer = await client("GET", f"{path}/map", **params)
    assert answer.status == 200, answer.body
    return answer.headers["ETag"]


async def test_it_changes_with_the_chunks_and_the_extent(client: RestClient) -> None:
    path = await create(client, [40, 30], "H5T_STD_I16LE", maxdims=[0, 0], layout=sparse(16, 8))
    other = await create(client, [40, 30], "H5T_STD_I16LE", layout=sparse(16, 8))
    seen = [await etag_of(client, path)]
    before = await etag_of(client, other)
    steps = [
        ("PUT", f"{path}/value", {"select": "[3:20,5]", "value": 7}),
        ("PUT", f"{path}/value", {"select": "[3:20,5]", "value": 8}),
        ("POST", f"{path}/erase", {"select": "[3,5]"}),
        ("PUT", f"{path}/shape", {"shape": [50, 30]}),
        ("PUT", f"{path}/shape", {"shape": [10, 30]}),
    ]
    for method, where, body in steps:
        answer = await client(method, where, body)
        assert answer.status < 300, answer.body
        seen.append(await etag_of(client, path))
    assert len(set(seen)) == len(seen)
    assert await etag_of(client, path) == seen[-1]
    assert await etag_of(client, other) == before


async def test_304_is_answered_for_the_state_that_the_client_has(client: RestClient) -> None:
    path = await create(client, [40, 30], "H5T_STD_I16LE", layout=sparse(16, 8))
    await client("PUT", f"{path}/value", {"select": "[3:20,5]", "value": 7})
    etag = await etag_of(client, path)
    for known in (etag, etag.removeprefix("W/"), f'"x", {etag}', "*"):
        answer = await client("GET", f"{path}/map", headers={"If-None-Match": known})
        assert answer.status == 304
        assert answer.headers["ETag"] == etag
    await client("PUT", f"{path}/value", {"select": "[0,0]", "value": 7})
    assert (await client("GET", f"{path}/map", headers={"If-None-Match": etag})).status == 200


async def test_a_selection_has_the_chunks_that_it_meets(client: RestClient) -> None:
    path = await create(client, [40, 30], "H5T_STD_I16LE", layout=sparse(16, 8))
    await client("PUT", f"{path}/value", {"select": "[0:40:5,0:30:3]", "value": 7})
    found = (await client("GET", f"{path}/map", select="[17:20,0:9]")).body
    assert [row["scaled"] for row in found["chunks"]] == [[1, 0], [1, 1]]
    assert found["shape"]["dims"] == [40, 30]
    for refused in ({"format": "kerchunk"}, {"addresses": "file"}):
        assert (await client("GET", f"{path}/map", select="[0,0]", **refused)).status == 400
    assert (await client("GET", f"{path}/map", select="[99,0]")).status == 400
