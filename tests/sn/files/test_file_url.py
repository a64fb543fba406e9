"""A domain's file is found under the URL that is told of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.sn.files.test_file_chunks import file_map
from tests.sn.value_client import value_client
from tests.support.rest_client import RestClient


@pytest.fixture
async def client() -> AsyncIterator[RestClient]:
    async with value_client() as client:
        yield client


@pytest.mark.parametrize("name", ["plain", "a.h5", "größe & 50%.h5", "a?b#c"])
async def test_a_url_leads_to_the_domain(client: RestClient, name: str) -> None:
    client.domain = f"/home/admin/{name}"
    assert (await client("PUT", "/", {})).status == 201
    told = (await file_map(client))["file"]
    assert told["href"].startswith(f"{client.url}/files/home/admin/")
    head = await client("HEAD", told["href"].removeprefix(client.url), domain=None)
    assert (head.status, head.headers.get("ETag")) == (200, f'"{told["etag"]}"')


async def test_two_domains_of_one_file_name(client: RestClient) -> None:
    for name in ("/home/admin/x.h5", "/home/admin/x"):
        client.domain = name
        assert (await client("PUT", "/", {})).status == 201
    refused = await client("GET", "/map", addresses="file")
    assert (refused.status, "/home/admin/x.h5 is another domain" in refused["error"]["message"]) == (
        409,
        True,
    )
    client.domain = "/home/admin/x.h5"
    assert (await client("GET", "/map", addresses="file")).status == 200


async def test_a_folder_has_no_file(client: RestClient) -> None:
    assert (await client("GET", "/map", addresses="file", domain="/home/admin")).status == 400
