"""Appends that wait together are one: what each is answered, what they cost, and what goes wrong with one or all."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hsparse.clock import SystemClock
from hsparse.dn.service import DataService
from hsparse.format.chunk_spec import chunk_key
from hsparse.format.selections.points import Orthogonal, Selection
from hsparse.model.acl import Principal
from hsparse.model.json_values import Values
from hsparse.sn.records.dataset import StoredDataset
from hsparse.sn.service_settings import ServiceSettings
from hsparse.sn.values import append as append_module
from hsparse.sn.values.append import Append, AppendGroups
from hsparse.sn.values.chunk_fanout import ChunkFanout
from tests.sn.dataset_kinds import I32, I64, TEXT, chunked, sparse
from tests.sn.value_client import SETTINGS, create, defined_count, json_of, put, value_client
from tests.support.rest_client import Reply, RestClient
from tests.testing.faulty_store import FaultyStore
from tests.testing.memory_store import MemoryStore
from tests.testing.store_wrapper import CountingStore

DENSE = chunked(8)
LAYOUTS = {"sparse": sparse(8), "dense": DENSE}


class Held:
    """Groups of a service node, of which the first waits until `count` more appends came; `sizes` are those of all."""

    def __init__(self, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        self.enough = asyncio.Event()
        self.going_on = asyncio.Event()
        write, join, came = AppendGroups._write, AppendGroups._join, itertools.count()

        async def held(groups: AppendGroups, group: Sequence[Any]) -> list[int]:
            self.sizes.append(len(group))
            if len(self.sizes) == 1:
                await self.going_on.wait()
            return await write(groups, group)

        async def watched(groups: AppendGroups, member: Any, how: Any) -> int:
            if next(came) == count:
                self.enough.set()
            return await join(groups, member, how)

        monkeypatch.setattr(AppendGroups, "_write", held)
        monkeypatch.setattr(AppendGroups, "_join", watched)

    async def together(self, first: Any, *others: Any) -> list[Any]:
        """Return what the requests are answered: one that comes alone, and others, which wait together."""
        alone = asyncio.create_task(first)
        while not self.sizes:  # noqa: ASYNC110 - it is on its way
            await asyncio.sleep(0)
        tasks = [asyncio.create_task(one) for one in others]
        await self.enough.wait()
        self.going_on.set()
        return await asyncio.gather(alone, *tasks)


async def growing(client: RestClient, most: Any = 0, layout: Any = None) -> str:
    return await create(client, [0], I64, maxdims=[most], layout=layout or sparse(8))


async def append(client: RestClient, path: str, values: Any, key: str = "", **options: Any) -> Reply:
    headers = {"Idempotency-Key": f'"{key}"'} if key else {}
    body = {"append": len(values), "value": values} | options
    return await client("PUT", f"{path}/value", body, headers=headers)


def start(reply: Reply) -> int:
    return int(reply["selection"].strip("[]").partition(":")[0])


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_those_that_wait_share_their_puts(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = CountingStore(MemoryStore())
    async with value_client(store, replace(SETTINGS, min_chunk_size=1)) as client:
        path, held = await growing(client, layout=LAYOUTS[layout]), Held(15, monkeypatch)
        store.reset()
        requests = [append(client, path, [n, -n]) for n in range(16)]
        replies = await held.together(*requests)
        assert held.sizes == [1, 15]
        assert sorted(map(start, replies)) == list(range(0, 32, 2))
        found = await json_of(client, path)
        for number, reply in enumerate(replies):
            assert found[start(reply) : start(reply) + 2] == [number, -number]
        puts = Counter[str]()
        for (method, key), count in store.keys.items():
            puts[key] += count if method.startswith("put") else 0
        chunks = [chunk_key(path.rpartition("/")[2], (number,)) for number in range(4)]
        assert [puts.pop(key) for key in chunks] == [2, 1, 1, 1], "the first one has elements of both groups"
        assert sum(puts.values()) == 4, "the place and the extent of each group"


async def test_each_has_the_error_of_its_own_data(
    client: RestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, held = await growing(client), Held(3, monkeypatch)
    bad = append(client, path, ["nothing"]), append(client, path, [3], points=[[1]])
    one, two, four, five = (append(client, path, [number]) for number in (1, 2, 4, 5))
    replies = await held.together(one, two, *bad, four, five)
    assert [reply.status for reply in replies] == [200, 200, 400, 400, 200, 200]
    assert held.sizes == [1, 3]
    assert sorted(await json_of(client, path)) == [1, 2, 4, 5]


async def test_those_that_fit_are_appended_where_all_do_not(
    client: RestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, held = await growing(client, most=5), Held(4, monkeypatch)
    replies = await held.together(*(append(client, path, [n] * n) for n in (1, 2, 3, 2, 1)))
    assert sorted(reply.status for reply in replies) == [200, 200, 200, 409, 409]
    found = await json_of(client, path)
    for number, reply in zip((1, 2, 3, 2, 1), replies, strict=True):
        if reply.status == 200:
            assert found[start(reply) : start(reply) + number] == [number] * number
        else:
            assert "at most 5" in reply.body["error"]["message"]


async def test_a_store_that_fails_fails_each_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    store = FaultyStore(MemoryStore())
    async with value_client(store) as client:
        path, held = await growing(client), Held(3, monkeypatch)
        key = chunk_key(path.rpartition("/")[2], (1,))
        store.fail_before("puts", key, times=10**6)
        replies = await held.together(*(append(client, path, [n] * 7) for n in range(4)))
        assert sorted(reply.status for reply in replies) == [200, 500, 500, 500]
        store.clear()
        assert len(await json_of(client, path)) == 7
        assert (await client("PUT", f"{path}/shape", {"shape": [28]})).status == 201
        assert await defined_count(client, path) == 7


async def test_each_key_of_a_group_is_remembered(client: RestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    path, held = await growing(client), Held(4, monkeypatch)
    keys = ["a", "b", "c", "", "b"]
    replies = await held.together(*(append(client, path, [7], key) for key in keys))
    assert start(replies[1]) == start(replies[4])
    assert len({start(reply) for reply in replies}) == 4
    for key, reply in zip(keys, replies, strict=True):
        if key:
            assert (await append(client, path, [7], key)).body == reply.body
            assert (await append(client, path, [7, 7], key)).status == 400
    assert await json_of(client, path) == [7] * 4


async def test_one_that_is_given_up_is_appended_with_its_group_or_not_at_all(
    client: RestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, held = await growing(client), Held(3, monkeypatch)
    dataset, groups = path.rpartition("/")[2], client.service.component(AppendGroups)

    async def load() -> StoredDataset:
        return StoredDataset.of(await client.service.owners.record(dataset))

    async def one(value: int, written: asyncio.Event | None = None) -> str:
        @asynccontextmanager
        async def prepare(slab: StoredDataset) -> AsyncIterator[tuple[Selection, Values]]:
            yield Orthogonal.all(slab.extent), np.array([value])

        async def write(dataset: StoredDataset, selection: Selection, values: Values) -> None:
            if written is not None:
                written.set()
            await ChunkFanout(client.service.owners, dataset).write(selection, values)

        return await groups.apply(Append(1, 0), load, prepare, write)

    written = asyncio.Event()
    tasks = [asyncio.create_task(one(1))]
    while not held.sizes:  # noqa: ASYNC110 - it is on its way
        await asyncio.sleep(0)
    tasks += [asyncio.create_task(one(value, written)) for value in (2, 3, 4)]
    await held.enough.wait()
    await asyncio.sleep(0)
    tasks[1].cancel()
    held.going_on.set()
    await written.wait()
    tasks[3].cancel()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [isinstance(one, str) for one in outcomes] == [True, False, True, False]
    assert held.sizes == [1, 2]
    assert await json_of(client, path) == [1, 3, 4]


async def test_a_large_one_waits_for_none(client: RestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(append_module, "MIN_LONE_APPEND_BYTES", 80)
    path, held = await growing(client, layout=DENSE), Held(99, monkeypatch)

    async def later() -> Reply:
        reply = await append(client, path, list(range(10)))
        held.enough.set()
        return reply

    replies = await held.together(append(client, path, [1]), later())
    assert held.sizes == [1, 1]
    assert (replies[1]["selection"], replies[0]["selection"]) == ("[0:10]", "[10:11]")


async def test_what_differs_in_how_it_is_written_is_not_one(
    client: RestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = {"class": "H5T_COMPOUND", "fields": [{"name": name, "type": I64} for name in ("a", "b")]}
    path = await create(client, [0], kind, maxdims=[0], layout=sparse(8))
    held = Held(5, monkeypatch)

    async def put(values: Any, **options: Any) -> Reply:
        return await client("PUT", f"{path}/value", {"append": len(values), "value": values}, **options)

    replies = await held.together(
        *(put([[1, 2]]), put([[3, 4]]), put([[0, 0]], drop_fill=1)),
        *(put([5], fields="a"), put([6], fields="b"), put([[0, 0]])),
    )
    found = await json_of(client, path)
    assert [found[start(reply)] for reply in replies] == [[1, 2], [3, 4], [0, 0], [5, 0], [0, 6], [0, 0]]
    select = f"[{start(replies[2])}:{start(replies[2]) + 1}]"
    assert await defined_count(client, path, select=select) == 0
    assert await defined_count(client, path) == 5


@pytest.mark.parametrize(("most", "sizes"), [(3, [1, 3, 2]), (256, [1, 4, 1])])
async def test_a_group_is_bounded(
    client: RestClient, most: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(append_module, "MOST_APPENDS", most)
    monkeypatch.setattr(append_module, "MOST_BYTES", 4 * 2 * (8 + 8))
    path, held = await growing(client), Held(5, monkeypatch)
    points = {"points": [[0], [1]]}
    replies = await held.together(*(append(client, path, [n, n], **points) for n in range(6)))
    assert {reply.status for reply in replies} == {200}
    assert held.sizes == sizes
    assert sorted(await json_of(client, path)) == sorted(list(range(6)) * 2)


KINDS = {"number": I32, "text": TEXT}


@pytest.mark.parametrize("seed", range(12))
async def test_appends_of_any_kind_by_two_nodes(seed: int) -> None:
    """Slabs of any length along any dimension that end anywhere in a chunk, whole, in part and of one value."""
    random = np.random.default_rng(seed)
    dim, chunk, kind = seed % 3, (4, 3, 5), "text" if seed % 4 == 3 else "number"
    layout: dict[str, Any] = chunked(*chunk) if seed % 2 else sparse(*chunk)
    extent = [0 if axis == dim else 6 for axis in range(3)]
    expected = dict[int, Any]()
    async with two_nodes() as clients:
        options = {"maxdims": [0 if axis == dim else 6 for axis in range(3)], "layout": layout}
        path = await create(clients[0], extent, KINDS[kind], **options)

        async def append_some(client: RestClient) -> None:
            for count in random.integers(1, 8, 8).tolist():
                body, slab = a_slab(random, [count if axis == dim else 6 for axis in range(3)], kind)
                body |= {"append": count, "append_dim": dim}
                answer = await put(client, path, body)
                axis = answer["selection"].strip("[]").split(",")[dim]
                expected[int(axis.partition(":")[0])] = slab

        await asyncio.gather(*(append_some(client) for client in clients * 4))
        whole = np.concatenate([expected[start] for start in sorted(expected)], axis=dim)
        assert (await json_of(clients[1], path)) == whole.tolist()
        record = await clients[0].service.owners.record(path.rpartition("/")[2])
        assert not record.get("appends", {}).get("parts")


def a_slab(random: np.random.Generator, shape: list[int], kind: str) -> tuple[dict[str, Any], Any]:
    """Return the body of a write, and the slab that it makes."""
    text = kind == "text"
    slab = np.full(shape, "", object) if text else np.zeros(shape, np.int32)
    how = random.choice(["whole", "points", "one value", "box"])
    if how == "one value":
        slab[...] = value = "one" if text else 5
        return {"value": value}, slab
    if how == "box":
        box = slab[:1, :2, :2]
        box[...] = np.arange(1, 1 + box.size).reshape(box.shape).astype(str if text else int)
        return {"start": [0, 0, 0], "stop": list(box.shape), "value": box.tolist()}, slab
    points = np.argwhere(random.random(shape) < (random.choice([0.02, 0.3]) if how == "points" else 2))
    values = random.integers(1, 99, len(points))
    slab[tuple(points.T)] = [f"text {value}" for value in values] if text else values
    if how == "whole":
        return {"value": slab.tolist()}, slab
    return {"points": points.tolist(), "value": slab[tuple(points.T)].tolist()}, slab


@asynccontextmanager
async def two_nodes() -> AsyncIterator[list[RestClient]]:
    """Two service nodes before a data node."""
    clock, made = SystemClock(), list[RestClient]()
    node = DataService(MemoryStore(), clock)
    for _ in range(2):
        made.append(
            await RestClient(
                node, clock, Principal("admin", admin=True), settings=ServiceSettings(min_chunk_size=1)
            ).open()
        )
        made[-1].domain = "/home/admin/groups.h5"
    assert (await made[0]("PUT", "/", {})).status == 201
    yield made
    for client in made:
        await client.close()
    await node.close()
