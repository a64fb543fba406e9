"""Reads of many chunks list them once; what is remembered is never older than the changes that were acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import numpy as np
import pytest

from hsparse.errors import StoreFailed
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.records import dataset as dataset_module
from hsparse.sn.records import known_chunks
from hsparse.sn.service_settings import ServiceSettings
from hsparse.sn.values import chunk_fanout, element_query
from hsparse.wire.message import Message
from tests.sn.value_client import BINARY, create, read, sparse, value_client
from tests.support.endurance import repeats
from tests.support.rest_client import RestClient
from tests.testing.memory_store import MemoryStore
from tests.testing.store_wrapper import CountingStore

CHUNK, COUNT = 4, 300
DENSE = {"class": "H5D_CHUNKED", "dims": [CHUNK]}
I32 = "H5T_STD_I32LE"
SETTINGS = ServiceSettings(min_chunk_size=1)


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """So few chunks are many."""
    monkeypatch.setattr(chunk_fanout, "MANY_CHUNKS", 8)
    monkeypatch.setattr(element_query, "MANY_CHUNKS", 8)
    monkeypatch.setattr(dataset_module, "KEYS_AT_ONCE", 99)


@asynccontextmanager
async def counted(
    nodes: int, layout: dict[str, object]
) -> AsyncIterator[tuple[RestClient, CountingStore, str]]:
    """Yield a client, its store, and the path of a dataset whose even chunks are stored."""
    store = CountingStore(MemoryStore(page_size=100))
    async with value_client(store, SETTINGS, nodes) as client:
        path = await create(client, [CHUNK * COUNT], I32, layout=layout, maxdims=[0])
        for number in range(0, COUNT, 2):
            await put(client, path, number, number + 1)
        store.reset()
        yield client, store, path


async def put(client: RestClient, path: str, chunk: int, value: int) -> None:
    body = {"start": [CHUNK * chunk], "stop": [CHUNK * (chunk + 1)], "value": [value] * CHUNK}
    assert (await client("PUT", f"{path}/value", body)).status == 200


async def chunks(client: RestClient, path: str, first: int = 0, stop: int = COUNT) -> list[int]:
    """Return the values of the first elements of some chunks."""
    select = f"[{CHUNK * first}:{CHUNK * stop}]"
    values = await read(client, path, "<i4", ((stop - first) * CHUNK,), select=select)
    assert (values.reshape(-1, CHUNK) == values[::CHUNK, None]).all()
    return values[::CHUNK].tolist()


@pytest.mark.parametrize("nodes", [1, 3])
@pytest.mark.parametrize("layout", [DENSE, sparse(CHUNK)], ids=["dense", "sparse"])
async def test_chunks_are_listed_once(nodes: int, layout: dict[str, object]) -> None:
    async with counted(nodes, layout) as (client, store, path):
        model = [number + 1 if number % 2 == 0 else 0 for number in range(COUNT)]
        assert await chunks(client, path) == model
        first = store.calls["list"]
        assert first
        for number in (1, 2, 299, 3):
            await put(client, path, number, -number)
            model[number] = -number
            assert await chunks(client, path) == model
            assert await chunks(client, path, 100, 120) == model[100:120]
        assert store.calls["list"] == first, "keys that were put are added to what was listed"
        found = await client("GET", f"{path}/value", query="_ < 0")
        assert len(found["index"]) == 4 * CHUNK
        assert layout is not DENSE or store.calls["list"] == first, (
            "sparse chunks are pruned by their footers"
        )


async def test_only_the_selection_is_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    planned = []
    plan = chunk_fanout.plan
    monkeypatch.setattr(chunk_fanout, "plan", lambda *args: planned.append(args) or plan(*args))  # type: ignore[func-returns-value]
    async with counted(1, DENSE) as (client, _, path):
        await chunks(client, path, 100, 120)
        assert sum(len(args[2]) for args in planned if len(args) == 3) == 10


async def test_concurrent_reads_share_a_listing() -> None:
    async with counted(1, DENSE) as (client, store, path):
        await asyncio.gather(*(chunks(client, path) for _ in range(8)))
        assert store.calls["list"] <= 4


async def test_a_node_that_does_not_answer_leaves_nothing_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    async with counted(2, DENSE) as (client, store, path):
        await chunks(client, path)
        before = store.calls["list"]

        async def fail(self: Owners, message: Message[object]) -> None:
            raise StoreFailed("away")

        with monkeypatch.context() as patched:
            patched.setattr(known_chunks.Owners, "ask_all", fail)
            assert (await chunks(client, path))[4] == 5
        assert store.calls["list"] > before


@pytest.mark.endurance
@pytest.mark.parametrize("seed", range(repeats(40, short=3)))
@pytest.mark.parametrize("nodes", [1, 3])
async def test_no_read_is_older_than_an_answer(seed: int, nodes: int) -> None:
    """Random writes, erasures, shrinks, growths, and nodes that do not know what they have changed."""
    random = Random(seed)
    async with counted(nodes, sparse(CHUNK)) as (client, _, path):
        model = np.array([number + 1 if number % 2 == 0 else 0 for number in range(COUNT)])
        for step in range(40):
            number = random.randrange(len(model))
            match random.choice(["put", "put", "erase", "shape", "forget", "read", "many"]):
                case "put":
                    await put(client, path, number, -step)
                    model[number] = -step
                case "many":
                    some = random.sample(range(len(model)), 5)
                    await asyncio.gather(*(put(client, path, one, step) for one in some))
                    model[some] = step
                case "erase":
                    select = f"[{CHUNK * number}:{CHUNK * (number + 1)}]"
                    assert (await client("DELETE", f"{path}/value", select=select)).status == 200
                    model[number] = 0
                case "shape":
                    length = random.randrange(COUNT // 2, COUNT)
                    reply = await client("PUT", f"{path}/shape", {"shape": [CHUNK * length], "shrink": 1})
                    assert reply.status in (200, 201), reply.body
                    model = (
                        np.r_[model, np.zeros(COUNT, int)][:length] if length > len(model) else model[:length]
                    )
                case "forget":
                    random.choice(list(client.nodes.values())).forget_fences()
                case _:
                    assert await chunks(client, path, 0, len(model)) == model.tolist()
        assert await chunks(client, path, 0, len(model)) == model.tolist()
        assert (await client("GET", f"{path}/value", accept=BINARY)).status == 200
