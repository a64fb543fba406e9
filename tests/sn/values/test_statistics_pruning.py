"""Queries and reductions that leave out chunks by their statistics: what is read, and that nothing is missed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest

from hsparse.clock import SystemClock
from hsparse.dn.service import DataService
from hsparse.model.acl import Principal
from hsparse.sn.service_settings import ServiceSettings
from tests.sn.value_client import BINARY, create, sparse
from tests.support.endurance import repeats
from tests.support.rest_client import RestClient
from tests.testing.memory_store import MemoryStore
from tests.testing.store_wrapper import CountingStore

F8, I4 = "H5T_IEEE_F64LE", "H5T_STD_I32LE"
CHUNKS, LENGTH = 400, 10
SIZE = CHUNKS * LENGTH


@asynccontextmanager
async def opened(store: CountingStore) -> AsyncIterator[RestClient]:
    """Yield a client of a server with an empty cache."""
    clock = SystemClock()
    node = DataService(store, clock)
    settings = ServiceSettings(min_chunk_size=1)
    client = await RestClient(node, clock, Principal("admin", admin=True), settings=settings).open()
    client.domain = "/home/admin/statistics.h5"
    try:
        yield client
    finally:
        await client.close()
        await node.close()


@pytest.fixture
def store() -> CountingStore:
    return CountingStore(MemoryStore())


def chunk_gets(store: CountingStore) -> int:
    """Return how many chunk objects were read whole."""
    return sum(
        count
        for (method, key), count in store.keys.items()
        if method == "get" and key.rpartition("/")[2].isdigit()
    )


async def filled(client: RestClient, values: np.ndarray, kind: str = F8, **properties: object) -> str:
    assert (await client("PUT", "/", {})).status == 201
    path = await create(client, [SIZE], kind, layout=sparse(LENGTH), **properties)
    assert (await client("PUT", f"{path}/value", values.tobytes())).status == 200
    return path


async def found(client: RestClient, path: str, query: str) -> list[int]:
    reply = await client("GET", f"{path}/value", query=query)
    assert reply.status == 200, reply.body
    return list(reply["index"])


async def test_a_query_reads_the_chunks_that_may_answer(store: CountingStore) -> None:
    values = np.random.default_rng(1).permutation(SIZE // 40).repeat(40) + np.linspace(0, 0.5, SIZE)
    values[7] = np.nan
    async with opened(store) as client:
        path = await filled(client, values)
    for query, mask in {
        "_ > 98.9": values > 98.9,
        "_ >= 50 and _ < 51": (values >= 50) & (values < 51),
        "_ in (3.25, 1000)": np.isin(values, [3.25, 1000]),
        "_.is_null() or _ < 1": np.isnan(values) | (values < 1),
    }.items():
        async with opened(store) as client:
            store.reset()
            # The fill value, 0, answers one of the queries: then undefined elements would, too, and all is read.
            wanted = len(set((np.flatnonzero(mask) // LENGTH).tolist()))
            assert await found(client, path, query) == np.flatnonzero(mask).tolist()
            assert chunk_gets(store) == (CHUNKS if "_ < 1" in query else wanted)


async def test_chunks_without_statistics_are_read(store: CountingStore) -> None:
    values = np.arange(SIZE, dtype="<i4")
    async with opened(store) as client:
        path = await filled(client, values, I4, chunkStatistics=False)
    async with opened(store) as client:
        store.reset()
        assert await found(client, path, f"_ == {SIZE - 1}") == [SIZE - 1]
        assert chunk_gets(store) == CHUNKS
        reply = await client("GET", f"{path}/reduce", op="sum", undefined="skip")
        assert reply["value"]["sum"] == int(values.sum())
    async with opened(store) as client:
        reply = await client(
            "POST", "/datasets", {"type": I4, "shape": [9], "creationProperties": {"chunkStatistics": "no"}}
        )
        assert reply.status == 400


async def test_erased_and_changed_chunks_have_new_statistics(store: CountingStore) -> None:
    values = np.arange(1, SIZE + 1, dtype="<f8")
    async with opened(store) as client:
        path = await filled(client, values)
        assert await found(client, path, f"_ > {SIZE - 2}") == [SIZE - 2, SIZE - 1]
        await client("PUT", f"{path}/value", np.array([1e6]).tobytes(), select="[3:4]")
        await client("DELETE", f"{path}/value", select=f"[{SIZE - LENGTH}:{SIZE}]")
        assert await found(client, path, f"_ > {SIZE - 2}") == [3]
        assert await found(client, path, f"_ >= {SIZE - LENGTH}") == [3, SIZE - LENGTH - 1]


async def test_whole_chunks_are_reduced_without_being_read(store: CountingStore) -> None:
    values = np.random.default_rng(3).standard_normal(SIZE)
    async with opened(store) as client:
        path = await filled(client, values)
        await client("DELETE", f"{path}/value", select="[100:105]")
    there = np.ones(SIZE, np.bool_)
    there[100:105] = False
    async with opened(store) as client:
        store.reset()
        ops = {"op": "sum,mean,min,max,count", "undefined": "skip"}
        reply = await client("GET", f"{path}/reduce", **ops)
        assert chunk_gets(store) == 0
        some = values[there]
        assert reply["value"]["count"] == len(some)
        assert (reply["value"]["min"], reply["value"]["max"]) == (some.min(), some.max())
        assert abs(reply["value"]["sum"] - some.sum()) < 1e-11
        reply = await client("GET", f"{path}/reduce", select=f"[5:{SIZE - 3}]", **ops)
        assert chunk_gets(store) == 2
        some = values[5:-3][there[5:-3]]
        assert reply["value"]["mean"] == pytest.approx(some.mean(), abs=1e-14)
        await client("PUT", f"{path}/value", np.array([np.nan]).tobytes(), select="[9:10]")
        reply = await client("GET", f"{path}/reduce", accept=BINARY, **ops)
        found = np.frombuffer(reply.body, "<f8")
        assert np.isnan(found[:4]).all()


@pytest.mark.endurance
async def test_queries_during_writes_miss_nothing(store: CountingStore) -> None:
    """Values only grow: what was written before a query is found by it, and what it finds was written by its end."""
    rng = np.random.default_rng(4)
    size, rounds = 70 * LENGTH, repeats(1000, short=40)
    model = np.ones(size, "<i4")
    is_done = False
    async with opened(store) as client:
        assert (await client("PUT", "/", {})).status == 201
        path = await create(client, [size], I4, layout=sparse(LENGTH))
        await client("PUT", f"{path}/value", model.tobytes())
        begun = model.copy()

        async def write() -> None:
            while not is_done:
                place, value = int(rng.integers(size)), int(rng.integers(1, 50))
                begun[place] += value
                body = {"points": [place], "value": [int(begun[place])]}
                assert (await client("PUT", f"{path}/value", body)).status == 200
                model[place] = begun[place]

        async def ask() -> None:
            for _ in range(rounds):
                least = int(rng.integers(2, 60))
                before = set(np.flatnonzero(model >= least).tolist())
                answer = set(await found(client, path, f"_ >= {least}"))
                assert before <= answer
                assert answer <= set(np.flatnonzero(begun >= least).tolist())

        writer = asyncio.create_task(write())
        await asyncio.gather(*(ask() for _ in range(4)))
        is_done = True
        await writer


@pytest.mark.endurance
@pytest.mark.parametrize("layout", [sparse(1, LENGTH), {"class": "H5D_CHUNKED", "dims": [1, LENGTH]}])
@pytest.mark.parametrize("statistics", [True, False])
async def test_reductions_during_writes_see_each_chunk_at_one_moment(
    store: CountingStore, layout: dict[str, Any], *, statistics: bool
) -> None:
    """A row is a chunk, whose elements are written together: all have one number, and numbers only grow."""
    rng = np.random.default_rng(5)
    rows, rounds, is_done = 60, repeats(100, short=10), False
    written, begun = np.zeros(rows, "<i4"), np.zeros(rows, "<i4")
    async with opened(store) as client:
        assert (await client("PUT", "/", {})).status == 201
        path = await create(client, [rows, LENGTH], I4, layout=layout, chunkStatistics=statistics)

        async def write() -> None:
            while not is_done:
                row = int(rng.integers(rows))
                begun[row] += 1
                body = np.full(LENGTH, begun[row], "<i4").tobytes()
                assert (await client("PUT", f"{path}/value", body, select=f"[{row},:]")).status == 200
                written[row] = begun[row]

        async def ask() -> None:
            for _ in range(rounds):
                before = written.copy()
                ops = {"op": "min,max,sum,nnz", "axis": 1, "undefined": "fill"}
                value = (await client("GET", f"{path}/reduce", **ops))["value"]
                least, total, nonzero = (np.array(value[name]) for name in ("min", "sum", "nnz"))
                assert least.tolist() == value["max"]
                assert (total == LENGTH * least).all()
                assert (nonzero == np.where(least > 0, LENGTH, 0)).all()
                assert ((before <= least) & (least <= begun)).all()

        writer = asyncio.create_task(write())
        await asyncio.gather(*(ask() for _ in range(4)))
        is_done = True
        await writer
    assert written.max() > 0
