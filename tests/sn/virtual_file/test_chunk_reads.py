"""Chunks as they were planned, or an error; runs of chunks of about `page` bytes."""

from __future__ import annotations

from collections.abc import AsyncIterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import Moved
from hsparse.format.chunk_spec import chunk_spec
from hsparse.hdf5.virtual_file.domain_state import read_domain_state
from hsparse.hdf5.virtual_file.file_chunks import row_batches
from hsparse.hdf5.virtual_file.sized_chunks import CHUNKS_AT_ONCE, read_planned
from tests.sn.file_domain import INT, place
from tests.sn.value_client import value_client
from tests.support.rest_client import RestClient


@pytest.fixture
async def client() -> AsyncIterator[RestClient]:
    async with value_client() as client:
        yield client


@pytest.mark.parametrize("change", ["nothing", "written", "shrunk", "deleted"])
async def test_only_the_planned_state_is_read(client: RestClient, change: str) -> None:
    layout = {"class": "H5D_CHUNKED", "dims": [256]}
    id = await place(client, "/d", INT, [512], list(range(512)), layout=layout, maxdims=[0])
    owners = client.service.owners
    state = await read_domain_state(owners, (await client("GET", "/"))["root"])
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


@given(st.lists(st.integers(0, 50), max_size=60), st.integers(0, 100), st.integers(0, 60))
def test_all_rows_in_order_and_none_too_many(sizes: list[int], page: int, first: int) -> None:
    rows = range(min(first, len(sizes)), len(sizes))
    found = list(row_batches(np.array(sizes, np.uint64)[rows.start :], rows, page))
    assert [row for some in found for row in some] == list(rows)
    for some in found:
        assert 1 <= len(some) <= CHUNKS_AT_ONCE
        assert len(some) == 1 or sum(sizes[row] for row in some) <= page
