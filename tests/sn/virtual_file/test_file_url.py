"""A domain's file is found under the URL that is told of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from urllib.parse import unquote

import pytest

from tests.sn.value_client import value_client
from tests.sn.virtual_file.test_file_chunks import file_map
from tests.support.rest_client import RestClient


@pytest.fixture
async def client() -> AsyncIterator[RestClient]:
    async with value_client() as client:
        yield client


@pytest.mark.parametrize("name", ["plain", "a.h5", "cells.h5ad", "größe & 50%.h5", "a?b#c"])
async def test_a_url_leads_to_the_domain(client: RestClient, name: str) -> None:
    client.domain = f"/home/admin/{name}"
    assert (await client("PUT", "/", {})).status == 201
    told = (await file_map(client))["file"]
    assert unquote(told["href"]).startswith(f"{client.url}/files/home/admin/{name}?")
    head = await client("HEAD", told["href"].removeprefix(client.url), domain=None)
    assert (head.status, head.headers.get("ETag")) == (200, f'"{told["etag"]}"')


async def test_a_url_may_have_the_suffix_more(client: RestClient) -> None:
    client.domain = "/home/admin/cells.h5ad"
    assert (await client("PUT", "/", {})).status == 201
    for path in ("/home/admin/cells.h5ad", "/home/admin/cells.h5ad.h5"):
        assert await domain_of(client, path) == "/home/admin/cells.h5ad"
    for path in ("/home/admin/cells", "/home/admin/cells.h5", "/home/admin/cells.h5ad.h5.h5", "/.h5"):
        assert (await client("GET", f"/files{path}", domain=None)).status == 404


async def test_the_exact_name_comes_first(client: RestClient) -> None:
    names = ("/home/admin/x", "/home/admin/x.h5")
    for name in names:
        assert (await client("PUT", "/", {}, domain=name)).status == 201
    for name in names:
        assert await domain_of(client, name) == name
    assert await domain_of(client, "/home/admin/x.h5.h5") == "/home/admin/x.h5"


async def domain_of(client: RestClient, path: str) -> str:
    """Return the domain whose file is at a path."""
    head = await client("HEAD", f"/files{path}", domain=None)
    assert head.status == 200
    return unquote(head.headers["X-Hdf-Domain"])


async def test_a_folder_has_no_file(client: RestClient) -> None:
    assert (await client("GET", "/map", addresses="file", domain="/home/admin")).status == 400
