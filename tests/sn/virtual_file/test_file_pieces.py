"""A file's bytes on their way: what fails after the first of them breaks the connection off."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest

from hsparse.hdf5.virtual_file import file_pieces
from hsparse.hdf5.virtual_file.file_pieces import FilePieces
from hsparse.hdf5.virtual_file.file_plans import FilePlans
from hsparse.hdf5.virtual_file.sized_chunks import read_planned
from tests.sn.file_domain import INT, fetch, fill_domain, place
from tests.sn.value_client import value_client
from tests.support.rest_client import RestClient

LARGE = 400_000


@pytest.fixture
async def client() -> AsyncIterator[RestClient]:
    async with value_client() as client:
        yield client


async def test_a_change_behind_the_first_bytes(client: RestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = {"class": "H5D_CHUNKED", "dims": [40_000]}
    id = await place(client, "/d", INT, [LARGE], 3, select=f"[0:{LARGE}]", layout=layout)
    reads = []

    async def read(*arguments: object) -> memoryview:
        reads.append(arguments)
        if len(reads) == 8:
            await client("PUT", f"/datasets/{id}/value", {"select": f"[{LARGE - 1}:{LARGE}]", "value": 9})
        return await read_planned(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(file_pieces, "read_planned", read)
    async with (
        aiohttp.ClientSession(headers={"Authorization": "admin"}) as session,
        session.get(f"{client.url}/files{client.domain}") as answer,
    ):
        assert answer.status == 200
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.read()
    monkeypatch.undo()
    assert len(await fetch(client)) > LARGE * 4


async def test_memory_is_that_of_what_is_read_at_once(client: RestClient) -> None:
    await fill_domain(client)
    root = (await client("GET", "/"))["root"]
    file = await client.service.component(FilePlans).current(root, check=True)
    size = file.plan.file.size
    pieces = FilePieces(client.service.owners, file.plan, 4096, client.service.component(FilePlans).bands)
    largest = max(int(one.chunks.size.max(initial=0)) for one in file.plan.regions.values())
    assert (
        2 * largest <= pieces.memory(0, size) <= 2 * (max(largest, 100_000) + 4096 + file_pieces.PART_BYTES)
    )
    assert pieces.memory(0, 10) < 2 * (1000 + file_pieces.PART_BYTES)
    parts = [bytes(part) async for part in pieces.read(0, size)]
    assert sum(map(len, parts)) == size
    assert b"".join(parts) == await fetch(client, layout="stock")
