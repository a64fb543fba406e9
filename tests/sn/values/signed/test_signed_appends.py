"""Appends at both ends of a dataset: whole, by many at once, and at a cost that does not depend on the size."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import numpy as np
import pytest

from hsparse.sn.records import dataset
from hsparse.sn.values import append as module
from hsparse.storage.object_store import current_etag
from hsparse.wire.record_message import BeginAppend
from tests.sn.value_client import BINARY, sparse, value_client
from tests.support.rest_client import RestClient
from tests.testing.memory_store import MemoryStore
from tests.testing.store_wrapper import CountingStore

COLUMNS = 3
UNLIMITED = "H5S_UNLIMITED"
LAYOUTS: dict[str, dict[str, Any]] = {
    "dense": {"class": "H5D_CHUNKED", "dims": [4, COLUMNS], "enlarge": False},
    "sparse": sparse(4, COLUMNS),
}


async def create(client: RestClient, layout: str | dict[str, Any], rows: int = 0, lower: int = 0) -> str:
    body = {
        "type": "H5T_STD_I64LE",
        "shape": [rows, COLUMNS],
        "maxdims": [UNLIMITED, COLUMNS],
        "lower": [lower, 0],
        "minlower": [UNLIMITED, 0],
        "creationProperties": {"layout": LAYOUTS[layout] if isinstance(layout, str) else layout},
    }
    made = await client("POST", "/datasets", body)
    assert made.status == 201, made.body
    return f"/datasets/{made['id']}"


async def append(client: RestClient, path: str, rows: np.ndarray, side: str, *, binary: bool = False) -> str:
    query = {"append": len(rows), "append_side": side, "places": "signed"}
    body = rows.astype("<i8").tobytes() if binary else {"value": rows.tolist()}
    reply = await client("PUT", f"{path}/value", body, **query)
    assert reply.status == 200, reply.body
    return str(reply["selection"])


async def rows_of(client: RestClient, path: str, select: str | None = None) -> np.ndarray:
    reply = await client("GET", f"{path}/value", accept=BINARY, places="signed", select=select or "")
    assert reply.status == 200, reply.body
    return np.frombuffer(reply.body, "<i8").reshape(-1, COLUMNS)


@pytest.fixture
async def client() -> AsyncIterator[RestClient]:
    async with value_client(nodes=2) as made:
        yield made


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_many_append_at_both_ends(
    request: pytest.FixtureRequest, client: RestClient, layout: str
) -> None:
    """Each append is whole and where its answer says; no row is seen before its values are."""
    frames: int = request.config.getoption("--frames")
    path = await create(client, layout)
    numbers, places, done = iter(range(1, frames + 1)), dict[str, int](), asyncio.Event()

    async def write(side: str) -> None:
        for number in numbers:
            rows = np.full((1 + number % 3, COLUMNS), number)
            rows[:, 0] += 1_000_000 * np.arange(len(rows))
            place = await append(client, path, rows, side, binary=number % 2 == 0)
            assert place.startswith("[-") == (side == "lower")
            places[place] = number

    async def poll() -> None:
        while not done.is_set():
            assert (await rows_of(client, path) > 0).all(), "a row is seen that is not written"

    polls = [asyncio.create_task(poll()) for _ in range(2)]
    await asyncio.gather(*(write(side) for side in ("lower", "upper") * 8))
    done.set()
    await asyncio.gather(*polls)
    assert sorted(places.values()) == list(range(1, frames + 1))
    for select, number in list(places.items()):
        rows = await rows_of(client, path, select)
        assert rows[:, 0].tolist() == [number + 1_000_000 * i for i in range(1 + number % 3)]
        assert (rows[:, 1:] == number).all()
    shape = (await client("GET", f"{path}/shape"))["shape"]
    assert shape["dims"][0] == sum(1 + number % 3 for number in range(1, frames + 1))
    assert shape["lower"][0] < 0 < shape["lower"][0] + shape["dims"][0]


async def test_the_end_that_has_died_holds_up_only_its_own(
    client: RestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "EXPIRY_CHECK_SECONDS", -1.0)
    path = await create(client, "sparse", 5)
    id = path.rpartition("/")[2]
    dead = BeginAppend(id, "dead", (4, COLUMNS), 0, 60.0, below=True, lower=(0, 0))
    (await client.service.owners.apply(dead)).unwrap()
    assert await append(client, path, np.ones((2, COLUMNS), int), "upper") == "[5:7,:]"
    (await client.service.owners.apply(BeginAppend(id, "late", (1, COLUMNS), 0, -1.0))).unwrap()
    assert await append(client, path, np.ones((1, COLUMNS), int), "lower") == "[-1:0,:]"
    assert (await client("GET", f"{path}/defined", count_only=1))["count"] == 3 * COLUMNS


async def test_new_chunks_below_are_not_looked_for() -> None:
    store = CountingStore(MemoryStore())
    async with value_client(store) as client:
        path = await create(client, "sparse", 3)
        store.reset()
        for _ in range(3):
            await append(client, path, np.ones((8, COLUMNS), int), "lower")
        assert store.calls["get"] == 0
        assert store.calls["put_if_absent"] == 6


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_the_cost_does_not_depend_on_the_size(layout: str) -> None:
    """Extending downwards, appending a row there and reading it take the same requests at any number of chunks."""
    counted = set()
    for chunks in (10, 1_000, 100_000):
        memory = MemoryStore()
        store = CountingStore(memory)
        async with value_client(store) as client:
            path = await create(client, layout, 4 * chunks, lower=-2)
            row = np.arange(COLUMNS)[None]
            assert (await client("PUT", f"{path}/value", row.tobytes(), select="[0:1,:]")).status == 200
            keys = [entry.key async for page in memory.list("db/") for entry in page.entries]
            (key,) = [key for key in keys if key.endswith("/-1_0")]
            data = (await memory.get(key)).data
            for number in range(chunks):
                await memory.put(f"{key.removesuffix('-1_0')}{number}_0", data)
            calls = []
            for number in range(2):
                store.reset()
                body = {"extend": 1, "dim": 0, "side": "lower"}
                assert (await client("PUT", f"{path}/shape", body)).status == 201
                await append(client, path, row + 1, "lower")
                first = -4 - 2 * number
                found = await rows_of(client, path, f"[{first}:{first + 1},:]")
                assert found.tolist() == (row + 1).tolist()
                calls.append(tuple(sorted(store.calls.items())))
            counted.add(tuple(calls))
    assert len(counted) == 1, counted
    assert not any(name == "list" for calls in counted for call in calls for name, _ in call)


class Requests(CountingStore):
    """Counts what S3 would be asked: the last page of a listing says that it is the last."""

    async def around(self, method: str, *rest: Any) -> Any:
        result = await super().around(method, *rest)
        self.calls[method] -= result is None and method == "list"
        return result


async def shrunk(layout: str, rows: int) -> tuple[list[Any], int]:
    """Return the requests of a dataset with so many rows of chunks that shrinks and rolls, and the most listings."""
    memory = MemoryStore()
    store = Requests(memory)
    calls, listings = list[Any](), list[int]()
    async with value_client(store) as client:
        path = await create(client, LAYOUTS[layout] | {"dims": [4, 1]}, 4 * rows + 2, lower=-2)
        assert (await client("PUT", f"{path}/value", bytes(8 * COLUMNS), select="[0:1,:]")).status == 200
        names = [entry.key async for page in memory.list("db/") for entry in page.entries]
        (first,) = [name for name in names if name.endswith("/-1_0")]
        prefix, data = first.removesuffix("-1_0"), (await memory.get(first)).data
        chunks = [(row, column) for row in range(rows + 2) for column in range(COLUMNS)]
        for row, column in chunks[: -2 * COLUMNS]:
            await memory.put(f"{prefix}{row}_{column}", data)

        async def ask(what: Awaitable[Any], left: range) -> None:
            store.reset()
            await what
            listings.append(store.calls.pop("list", 0))
            calls.append(tuple(sorted(store.calls.items())))
            for row, column in chunks[: 3 * COLUMNS] + chunks[-3 * COLUMNS :]:
                there = await current_etag(memory, f"{prefix}{row}_{column}") is not None
                assert there == (row in left), (row, left)

        def put(**bounds: list[int]) -> Awaitable[Any]:
            return client("PUT", f"{path}/shape", bounds, places="signed")

        await ask(put(lower=[0, 0]), range(rows))
        await ask(put(lower=[3, 0]), range(rows))
        await ask(put(lower=[5, 0]), range(1, rows))
        await ask(put(shape=[4 * (rows - 1) - 5, COLUMNS]), range(1, rows - 1))
        for number in range(2):
            new = append(client, path, np.ones((4, COLUMNS), int), "upper")
            await ask(new, range(1 + number, rows + number))
            await ask(put(lower=[8 + 4 * number, 0]), range(2 + number, rows + number))
    return calls, max(listings)


@pytest.mark.parametrize("most", [1_000, 100_000])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("lists", [False, True])
async def test_a_shrink_costs_what_it_drops(
    monkeypatch: pytest.MonkeyPatch, lists: bool, layout: str, most: int
) -> None:
    """A row of chunks at either end, or a part of one, takes the same requests at any number of chunks.

    So does a window that rolls: rows are appended, and as many dropped. Where chunks are listed, these are few.
    """
    monkeypatch.setattr(dataset, "MOST_ASKED", 0 if lists else 100)
    calls, listings = await shrunk(layout, 4)
    assert listings == lists
    of_many, listings = await shrunk(layout, most // COLUMNS)
    assert of_many == calls
    assert listings <= 3 * lists
