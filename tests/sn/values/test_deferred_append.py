"""Deferred appends: durable when answered, visible soon, written once, whatever happens to the node that answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import numpy as np
import pytest

from hsparse.clock import ManualClock
from hsparse.dn.service import DataService
from hsparse.model.acl import Principal
from hsparse.model.ids import chunk_key
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.service_settings import ServiceSettings
from hsparse.sn.values import deferred_append
from hsparse.sn.values.deferred_append import DeferredAppends
from hsparse.storage.memory import MemoryStore
from hsparse.testing.faulty_store import FaultyStore
from hsparse.testing.store_wrapper import CountingStore
from hsparse.wire.message import Record
from tests.sn.value_client import create, sparse
from tests.support.rest_client import Reply, RestClient

DOMAIN = "/home/admin/log.h5"
ADMIN = Principal("admin", admin=True)


class Nodes:
    """A data node over a store, and service nodes before it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = FaultyStore(MemoryStore(clock=self.clock))
        self.counted = CountingStore(self.store)
        self.data = DataService(self.counted, self.clock)
        self.made: list[RestClient] = []

    async def service(self) -> RestClient:
        client = await RestClient(self.data, self.clock, ADMIN, settings=ServiceSettings()).open()
        client.domain = DOMAIN
        self.made.append(client)
        return client


@asynccontextmanager
async def nodes() -> AsyncIterator[Nodes]:
    made = Nodes()
    client = await made.service()
    assert (await client("PUT", "/", {})).status == 201
    yield made
    with never_written():
        for client in made.made:
            await client.close()
    await made.data.close()


@contextmanager
def never_written() -> Iterator[None]:
    """Let what is deferred in this context be written by nobody: a service node that dies."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deferred_append, "FLUSH_SECONDS", 3600.0)
        patch.setattr(deferred_append, "LAST_SECONDS", 0.0)
        yield


def noted_writes(monkeypatch: pytest.MonkeyPatch) -> asyncio.Queue[int]:
    """Return a queue to which each write of parts adds their number."""
    write, writes = deferred_append.write_deferred, asyncio.Queue[int]()

    async def noted(owners: Owners, record: Record, tokens: Collection[str]) -> None:
        await write(owners, record, tokens)
        writes.put_nowait(len(tokens))

    monkeypatch.setattr(deferred_append, "write_deferred", noted)
    return writes


async def append(client: RestClient, path: str, values: list[int], **options: Any) -> Reply:
    body = {"append": len(values), "value": values}
    return await client("PUT", f"{path}/value", body, **{"flush": 0, **options})


async def values_of(client: RestClient, path: str) -> Any:
    return (await client("GET", f"{path}/value"))["value"]


async def written(client: RestClient) -> None:
    """Wait until all that was deferred is visible."""
    deferred = client.service.component(DeferredAppends)
    await asyncio.gather(*deferred._tasks.values())


async def growing(client: RestClient, **properties: Any) -> str:
    return await create(client, [0], "H5T_STD_I64LE", maxdims=[0], **properties)


@pytest.mark.parametrize("layout", [sparse(8), {"class": "H5D_CHUNKED", "dims": [8]}])
async def test_many_are_written_together(layout: dict[str, Any]) -> None:
    async with nodes() as made:
        client = made.made[0]
        path = await growing(client, layout=layout)
        made.counted.reset()
        answers = await asyncio.gather(*(append(client, path, [n, -n, n]) for n in range(16)))
        assert {answer.status for answer in answers} == {200}
        await written(client)
        found = await values_of(client, path)
        starts = [int(answer["selection"].strip("[]").split(":")[0]) for answer in answers]
        assert sorted(starts) == list(range(0, 48, 3))
        for number, start in enumerate(starts):
            assert found[start : start + 3] == [number, -number, number]
        puts = sum(count for name, count in made.counted.calls.items() if name.startswith("put"))
        assert puts <= 6 + 2 * 3, "chunks, and a few of the record"


async def test_many_bytes_are_written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else appends would wait: a record has only so much of what is deferred."""
    monkeypatch.setattr(deferred_append, "FLUSH_SECONDS", 3600.0)
    monkeypatch.setattr(deferred_append, "FULL", 6 * len("AAAAAAAAAAA="))
    async with nodes() as made:
        client = made.made[0]
        path = await growing(client, layout={"class": "H5D_CHUNKED", "dims": [8]})
        for number in range(6):
            assert (await append(client, path, [number])).status == 200
            visible = number == 5
            if visible:
                await asyncio.wait_for(written(client), 30)
            assert await values_of(client, path) == (list(range(6)) if visible else [])


async def test_a_chunk_is_put_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies beyond the last chunk that is filled is written with what comes next, and counts with that."""
    monkeypatch.setattr(deferred_append, "FLUSH_SECONDS", 3600.0)
    monkeypatch.setattr(deferred_append, "FULL", 6 * len("AAAAAAAAAAA="))
    writes = noted_writes(monkeypatch)
    async with nodes() as made:
        client = made.made[0]
        path = await growing(client, layout=sparse(4))
        made.counted.reset()
        for numbers, visible in ((range(6), 4), (range(6, 10), 8), (range(10, 14), 12)):
            for number in numbers:
                assert (await append(client, path, [number])).status == 200
            await asyncio.wait_for(writes.get(), 30)
            assert await values_of(client, path) == list(range(visible))
        keys = [chunk_key(path.rpartition("/")[2], (number,)) for number in range(3)]
        puts = {key: count for (method, key), count in made.counted.keys.items() if method.startswith("put")}
        assert [puts[key] for key in keys] == [1, 1, 1]


@pytest.mark.parametrize("seed", range(6))
async def test_appends_along_any_dimension_by_two_nodes(seed: int) -> None:
    """Parts of any length that end anywhere in a chunk, some behind those of the other node, some with few elements."""
    random = np.random.default_rng(seed)
    dim, chunk = seed % 3, (4, 3, 5)
    extent = [0 if axis == dim else 6 for axis in range(3)]
    expected = dict[int, Any]()
    async with nodes() as made:
        clients = [made.made[0], await made.service()]
        options = {"maxdims": [0 if axis == dim else 6 for axis in range(3)], "layout": sparse(*chunk)}
        path = await create(clients[0], extent, "H5T_STD_I32LE", **options)

        async def append_some(client: RestClient) -> None:
            for count in random.integers(1, 8, 12).tolist():
                slab = np.zeros([count if axis == dim else 6 for axis in range(3)], np.int32)
                points = np.argwhere(random.random(slab.shape) < random.choice([0.02, 0.3]))
                values = random.integers(1, 99, len(points))
                slab[tuple(points.T)] = values
                body = {
                    "append": count,
                    "append_dim": dim,
                    "points": points.tolist(),
                    "value": values.tolist(),
                }
                answer = await client("PUT", f"{path}/value", body, flush=0)
                assert answer.status == 200
                axis = answer["selection"].strip("[]").split(",")[dim]
                expected[int(axis.partition(":")[0])] = slab

        await asyncio.gather(*(append_some(client) for client in clients * 3))
        await asyncio.gather(*map(written, clients))
        whole = np.concatenate([expected[start] for start in sorted(expected)], axis=dim)
        assert np.array_equal(await values_of(clients[1], path), whole)
        record = await clients[0].service.owners.record(path.rpartition("/")[2])
        assert not record.get("appends", {}).get("elements")


async def test_parts_behind_those_of_another_node_hold_up_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are written, and so are those that come later, though none is visible: nothing pauses longer and longer."""
    monkeypatch.setattr(deferred_append, "PAUSE", 3600.0)
    attempt, left = DeferredAppends._attempt, asyncio.Queue[int]()

    async def noted(self: DeferredAppends, id: str, waiting: Any) -> bool:
        has_progress = await attempt(self, id, waiting)
        left.put_nowait(len(waiting.unwritten))
        return has_progress

    async with nodes() as made:
        slow, other = made.made[0], await made.service()
        path = await growing(slow, layout=sparse(4))
        with never_written():
            assert (await append(slow, path, [1])).status == 200
        monkeypatch.setattr(DeferredAppends, "_attempt", noted)
        for number in (2, 3):
            assert (await append(other, path, [number])).status == 200
            for _ in range(3):  # the second and third find nothing to write
                assert await asyncio.wait_for(left.get(), 30) == 0
        assert await values_of(other, path) == []
        made.clock.time += 11
        assert await values_of(other, path) == [1, 2, 3]


async def test_one_that_comes_while_the_record_is_on_its_way_is_written_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with nodes() as made:
        client = made.made[0]
        path = await growing(client, layout=sparse(4))
        assert (await append(client, path, [1])).status == 200
        real, late = Owners.record, [2]

        async def delayed(self: Owners, *arguments: Any, **options: Any) -> Record:
            record = await real(self, *arguments, **options)
            if late:
                assert (await append(client, path, [late.pop()])).status == 200
            return record

        monkeypatch.setattr(Owners, "record", delayed)
        await asyncio.wait_for(written(client), 30)
        assert await values_of(client, path) == [1, 2]


async def test_frames_of_points() -> None:
    async with nodes() as made:
        client = made.made[0]
        path = await create(client, [0, 6, 6], "H5T_STD_I32LE", maxdims=[0, 6, 6], layout=sparse(4, 6, 6))
        expected = np.zeros((10, 6, 6), np.int32)
        generator = np.random.default_rng(0)
        for frame in range(10):
            points = np.unique(generator.integers(0, 6, (5, 2)), axis=0)
            values = generator.integers(1, 99, len(points))
            expected[frame][tuple(points.T)] = values
            body = {
                "append": 1,
                "points": [[0, *point] for point in points.tolist()],
                "value": values.tolist(),
            }
            assert (await client("PUT", f"{path}/value", body, flush=0)).status == 200
        await written(client)
        assert np.array_equal(await values_of(client, path), expected)
        assert (await client("GET", f"{path}/defined", count_only=1))["count"] == np.count_nonzero(expected)


async def test_what_a_node_that_dies_has_answered_is_there() -> None:
    async with nodes() as made:
        client, other = made.made[0], await made.service()
        path = await growing(client, layout=sparse(4))
        with never_written():
            assert (await append(client, path, [1, 2, 3])).status == 200
            assert (await append(client, path, [4])).status == 200
            await client.close()
        assert await values_of(other, path) == [], "somebody may still write them"
        made.clock.time += 11
        assert await values_of(other, path) == [1, 2, 3, 4]
        assert (await append(other, path, [5], flush=1))["selection"] == "[4:5]"
        assert await values_of(other, path) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("flush", [0, 1])
async def test_an_append_after_a_node_has_died(flush: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hsparse.sn.values.append.PATIENCE", 0.0)
    async with nodes() as made:
        client, other = made.made[0], await made.service()
        path = await growing(client, layout=sparse(4))
        with never_written():
            assert (await append(client, path, [1, 2])).status == 200
            await client.close()
        made.clock.time += 11
        assert (await append(other, path, [3], flush=flush))["selection"] == "[2:3]"
        await written(other)
        assert await values_of(other, path) == [1, 2, 3]


async def test_who_was_taken_over_changes_nothing_any_more() -> None:
    async with nodes() as made:
        slow, other = made.made[0], await made.service()
        path = await growing(slow, layout=sparse(4))
        id = path.rpartition("/")[2]
        with pytest.MonkeyPatch.context() as patch:
            going_on, begun = asyncio.Event(), asyncio.Event()
            write = deferred_append._write_parts

            async def late(*arguments: Any) -> None:
                begun.set()
                await going_on.wait()
                await write(*arguments)

            patch.setattr(deferred_append, "_write_parts", late)
            assert (await append(slow, path, [1, 2])).status == 200
            await begun.wait()
        made.clock.time += 11
        assert await values_of(other, path) == [1, 2]
        assert (await other("PUT", f"{path}/value", {"start": 0, "stop": 1, "value": [9]})).status == 200
        going_on.set()
        await written(slow)
        assert await values_of(other, path) == [9, 2]
        assert (
            "appends" not in (await slow.service.owners.record(id))
            or not (await slow.service.owners.record(id))["appends"]["parts"]
        )


async def test_a_resize_writes_what_was_deferred_first() -> None:
    async with nodes() as made:
        client = made.made[0]
        path = await growing(client, layout=sparse(4))
        with never_written():
            assert (await append(client, path, [1, 2, 3])).status == 200
            assert (await client("PUT", f"{path}/shape", {"extend": 2})).status == 201
            assert await values_of(client, path) == [1, 2, 3, 0, 0]
            assert (await append(client, path, [4, 5])).status == 200
            assert (await client("PUT", f"{path}/shape", {"shape": [6]})).status == 201
            assert await values_of(client, path) == [1, 2, 3, 0, 0, 4]


async def test_one_with_a_key_is_made_once() -> None:
    async with nodes() as made:
        client = made.made[0]
        path = await growing(client, layout=sparse(4))
        headers = {"Idempotency-Key": '"k"'}
        with never_written():
            first = await append(client, path, [1, 2], headers=headers)
            again = await append(client, path, [1, 2], headers=headers)
            assert (first.status, first["selection"]) == (again.status, again["selection"])
            await client("PUT", f"{path}/shape", {"extend": 1})
        assert (await append(client, path, [1, 2], headers=headers))["selection"] == first["selection"]
        assert await values_of(client, path) == [1, 2, 0]


async def test_what_is_large_or_in_part_is_written_at_once() -> None:
    async with nodes() as made:
        client = made.made[0]
        path = await growing(client, layout=sparse(4096))
        with never_written():
            assert (await append(client, path, list(range(20_000)))).status == 200
            assert await values_of(client, path) == list(range(20_000))


async def test_a_store_that_fails_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deferred_append, "PAUSE", 0.001)
    async with nodes() as made:
        client = made.made[0]
        path = await growing(client, layout=sparse(4))
        assert (await append(client, path, [1, 2])).status == 200
        failing = made.store.fail_before("puts", times=3)
        await failing.entered.wait()
        await written(client)
        assert await values_of(client, path) == [1, 2]


async def test_a_dataset_that_is_deleted_meanwhile() -> None:
    async with nodes() as made:
        client = made.made[0]
        path = await growing(client, layout=sparse(4))
        assert (await append(client, path, [1, 2])).status == 200
        assert (await client("DELETE", path)).status == 200
        await written(client)
        assert (await client("GET", path)).status == 410
