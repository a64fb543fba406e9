"""What a file is planned from: its digest changes with it, and there are limits."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from hsparse.errors import Gone, NotFound, TooLarge
from hsparse.hdf5.virtual_file import domain_state
from hsparse.hdf5.virtual_file.domain_state import read_domain_state
from hsparse.sn.records import stored_chunks as chunk_pages
from tests.sn.file_domain import INT, fill_domain, place
from tests.sn.value_client import value_client
from tests.support.rest_client import RestClient


@pytest.fixture
async def client() -> AsyncIterator[RestClient]:
    async with value_client() as client:
        yield client


async def test_objects_and_chunks(client: RestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_pages, "CHUNK_PAGE", 2)
    ids = await fill_domain(client)
    root = (await client("GET", "/"))["root"]
    state = await read_domain_state(client.service.owners, root)
    assert set(state.records) >= {root, *ids.values()}
    assert set(state.chunks) == set(ids.values()) - {ids["/null"]}
    assert state.chunks[ids["/g/chunked"]].scaled.tolist() == [[i, j] for i in range(3) for j in range(2)]
    assert (await read_domain_state(client.service.owners, root)).digest == state.digest
    await client("PUT", f"/datasets/{ids['/g/chunked']}/value", {"select": "[0,0]", "value": 1})
    assert (await read_domain_state(client.service.owners, root)).digest != state.digest


async def test_limits(client: RestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = {"class": "H5D_CHUNKED", "dims": [256]}
    await place(client, "/d", INT, [2560], list(range(2560)), layout=layout)
    root = (await client("GET", "/"))["root"]
    monkeypatch.setattr(domain_state, "MAX_FILE_CHUNKS", 10)
    await read_domain_state(client.service.owners, root)
    monkeypatch.setattr(domain_state, "MAX_FILE_CHUNKS", 9)
    with pytest.raises(TooLarge, match="more than 9 chunks"):
        await read_domain_state(client.service.owners, root)
    monkeypatch.setattr(domain_state, "MAX_METADATA", 100)
    with pytest.raises(TooLarge, match="more than 100 bytes"):
        await read_domain_state(client.service.owners, root)


async def test_a_domain_that_is_gone(client: RestClient) -> None:
    root = (await client("GET", "/"))["root"]
    assert (await client("DELETE", "/", wait=60)).status == 200
    with pytest.raises((Gone, NotFound)):
        await read_domain_state(client.service.owners, root)
