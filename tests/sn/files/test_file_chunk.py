"""Chunks of a planned state, or none."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from hsparse.errors import Moved
from hsparse.model.layout import chunk_spec
from hsparse.sn.files.domain_state import read_state
from hsparse.sn.files.file_chunk import read_planned
from hsparse.testing.rest_client import RestClient
from tests.sn.file_domain import INT, place
from tests.sn.value_client import value_client


@pytest.fixture
async def client() -> AsyncIterator[RestClient]:
    async with value_client() as client:
        yield client


@pytest.mark.parametrize("change", ["nothing", "written", "shrunk", "deleted"])
async def test_only_the_planned_state_is_read(client: RestClient, change: str) -> None:
    layout = {"class": "H5D_CHUNKED", "dims": [256]}
    id = await place(client, "/d", INT, [512], list(range(512)), layout=layout, maxdims=[0])
    owners = client.service.owners
    state = await read_state(owners, (await client("GET", "/"))["root"])
    spec, chunks = chunk_spec(state.records[id]), state.chunks[id]
    if change == "written":
        await client("PUT", f"/datasets/{id}/value", {"select": "[300:301]", "value": [1]})
    elif change == "shrunk":
        assert (await client("PUT", f"/datasets/{id}/shape", {"shape": [10]})).status == 201
    elif change == "deleted":
        await client("DELETE", f"/datasets/{id}")
    if change == "nothing":
        data = await read_planned(owners, spec, chunks, 1)
        assert bytes(data[:4]) == (256).to_bytes(4, "little")
        return
    with pytest.raises(Moved, match=f"The chunk 1 of {id} was changed"):
        await read_planned(owners, spec, chunks, 1)
