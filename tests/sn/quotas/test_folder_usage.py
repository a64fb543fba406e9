"""What a folder takes, and what a node knows of it: when it counts, and what it says while it does not know enough."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.dn.service import DataService
from hsparse.errors import Busy, OverQuota, StoreFailed
from hsparse.quotas import folder_usage
from hsparse.quotas import folder_usage as folder_count
from hsparse.quotas.folder_usage import (
    COUNT_SECONDS,
    OBJECT_BYTES,
    PAUSE_RATIO,
    FolderUsage,
    Name,
    count_folder,
    names_below,
)
from hsparse.sn.data_nodes import owners as key_pages
from hsparse.sn.data_nodes.owners import FixedNodes, Owners
from hsparse.wire.message import Message
from hsparse.wire.record_message import ChangeObjects, CreateObject, DeleteObject, ListKeys, RecordChange
from tests.support.memory_node import MemoryNode
from tests.testing.manual_clock import ManualClock
from tests.testing.memory_store import MemoryStore

T = TypeVar("T")
FOLDER = "/home/ann"
OTHER = "/home/ann/x"
LIMIT = 100_000


class Listed:
    """A data node whose listings wait for a gate, take `seconds`, and may fail."""

    def __init__(self, clock: ManualClock) -> None:
        self.node = MemoryNode(clock)
        self.clock = clock
        self.gate = asyncio.Event()
        self.gate.set()
        self.listed = asyncio.Event()
        self.seconds = 0.0
        self.fails = False
        self.listings = 0

    async def send(self, message: Message[T]) -> T:
        if not isinstance(message, ListKeys):
            return await self.node.send(message)
        self.listings += 1
        self.listed.set()
        listed = await self.node.send(message)
        await self.gate.wait()
        self.clock.time += self.seconds
        if self.fails:
            raise StoreFailed("The store is gone.")
        return listed

    async def close(self) -> None:
        await self.node.close()

    async def change(self, change: RecordChange) -> None:
        (await self.node.send(ChangeObjects((change,))))[0].unwrap()


@dataclass(slots=True)
class World:
    """A folder, its use, and what may happen."""

    clock: ManualClock
    node: Listed
    usage: FolderUsage

    def another(self) -> FolderUsage:
        """Return what another service node knows, which is nothing."""
        owners = Owners(FixedNodes({"dn-001": self.node}))
        return FolderUsage(FOLDER, owners, self.clock, asyncio.Semaphore(1))


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(folder_usage, "COUNT_WAIT_SECONDS", 60.0)
    clock = ManualClock()
    node = Listed(clock)
    owners = Owners(FixedNodes({"dn-001": node}))
    usage = FolderUsage(FOLDER, owners, clock, asyncio.Semaphore(1))
    await node.change(CreateObject(FOLDER, {"owner": "ann"}))
    yield World(clock, node, usage)
    await usage.close()


async def test_the_first_write_goes_through_and_begins_a_count(world: World) -> None:
    world.node.gate.clear()
    await world.usage.admit(LIMIT, LIMIT)
    assert world.usage.used is None
    world.node.gate.set()
    await world.usage.renew()
    assert world.usage.used == 0


async def test_what_is_under_way_is_no_count_s_to_see(world: World) -> None:
    await world.usage.admit(60_000, LIMIT)
    await world.usage.renew()
    with pytest.raises(Busy, match="being counted"):
        await world.usage.admit(50_000, LIMIT)
    world.usage.end(60_000)
    await world.usage.admit(50_000, LIMIT)


async def test_a_write_during_a_count_is_added_to_it(world: World) -> None:
    world.node.gate.clear()
    await world.usage.admit(10_000, LIMIT)
    await world.node.listed.wait()
    world.usage.end(10_000)
    await world.usage.admit(60_000, LIMIT)
    world.usage.end(60_000)
    world.node.seconds = 20.0
    world.node.gate.set()
    await world.usage.renew()
    with pytest.raises(Busy) as caught:  # it rests for longer than a request waits
        await world.usage.admit(50_000, LIMIT)
    assert caught.value.retry_after == PAUSE_RATIO * 20.0
    world.node.seconds = 0.0
    world.clock.time += PAUSE_RATIO * 20.0
    await world.usage.admit(50_000, LIMIT)


async def test_a_write_waits_for_the_end_of_a_short_pause(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def sleep(seconds: float) -> None:
        world.clock.time += seconds

    monkeypatch.setattr(asyncio, "sleep", sleep)
    world.node.seconds = 1.0
    for _ in range(20):  # overwrites: each is counted as growth until the next count
        await world.usage.admit(60_000, LIMIT)
        world.usage.end(60_000)
    assert world.usage.used == 0


async def test_a_write_waits_for_a_count_only_so_long(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_usage, "COUNT_WAIT_SECONDS", 0.0)
    world.node.gate.clear()
    await world.usage.admit(90_000, LIMIT)
    with pytest.raises(Busy):
        await world.usage.admit(20_000, LIMIT)
    with pytest.raises(OverQuota, match=f"quota of {FOLDER} is 100000 bytes, of which 0 are used"):
        await world.usage.admit(LIMIT + 1, LIMIT)


async def test_over_by_a_count_until_something_is_deleted(world: World) -> None:
    await world.node.change(CreateObject(OTHER, {"owner": "ann"}))
    await world.usage.renew()
    assert world.usage.used == OBJECT_BYTES
    with pytest.raises(OverQuota, match=f"of which {OBJECT_BYTES} are used"):
        await world.usage.admit(1, OBJECT_BYTES)
    await world.node.change(DeleteObject(OTHER))
    await world.usage.admit(1, OBJECT_BYTES)


async def test_a_count_is_renewed_after_a_while_far_below_the_quota(world: World) -> None:
    await world.usage.admit(1, LIMIT)
    await world.usage.renew()
    before = world.node.listings
    world.clock.time += COUNT_SECONDS - 1.0
    await world.usage.admit(1, LIMIT)
    await asyncio.sleep(0)
    assert world.node.listings == before
    world.clock.time += 1.0
    await world.usage.admit(1, LIMIT)
    await asyncio.sleep(0)
    assert world.node.listings == before + 1


async def test_the_last_count_is_kept_for_a_node_that_starts(world: World) -> None:
    await world.node.change(CreateObject(OTHER, {"owner": "ann"}))
    await world.usage.renew()
    stored = (await world.node.node.record(FOLDER))["quota"]
    assert stored == {"used": OBJECT_BYTES, "counted": world.clock.now()}
    other = world.another()
    other.learn(stored)
    assert (other.used, other.counted) == (OBJECT_BYTES, world.clock.now())
    for older in (
        {"used": 1, "counted": world.clock.now() - 1.0},
        {"used": 1, "counted": world.clock.now() + 1.0},
    ):
        other.learn(older)
        assert other.used == OBJECT_BYTES
    for damaged in ({}, {"used": "1", "counted": world.clock.now()}, {"used": 1}):
        other.learn(damaged)
        assert other.used == OBJECT_BYTES


async def test_a_count_that_fails_is_tried_again_later(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.node.fails = True
    await world.usage.renew()
    assert (world.usage.used, world.node.listings) == (None, 1)
    assert "could not be counted: The store is gone." in caplog.text
    await world.usage.renew()
    assert world.node.listings == 1
    world.node.fails = False
    world.clock.time += folder_usage.COUNT_WAIT_SECONDS
    await world.usage.renew()
    assert world.usage.used == 0


class Programs:
    """Writes, deletions and counts in any order; a count sees what is stored when it begins."""

    def __init__(self, node: MemoryNode, clock: ManualClock, counts: list[asyncio.Future[None]]) -> None:
        self.clock = clock
        self.stored = 0
        self.running: list[list[int]] = []
        """Of each write that was let through: its bytes, and how many of them are stored."""
        self._counts = counts
        owners = Owners(FixedNodes({"dn-001": node}))
        self.usage = FolderUsage(FOLDER, owners, self.clock, asyncio.Semaphore(1))

    async def count(self, owners: Owners, folder: str, tell: Callable[[Name], None]) -> int:
        seen, done = self.stored, asyncio.get_running_loop().create_future()
        self._counts.append(done)
        await done
        return seen

    async def step(self, name: str, number: int) -> None:
        match name:
            case "write":
                with suppress(Busy, OverQuota):
                    await self.usage.admit(number, LIMIT)
                    self.running.append([number, 0])
            case "store" if self.running:
                write = self.running[number % len(self.running)]
                self.stored, write[1] = self.stored + write[0] - write[1], write[0]
            case "end" if self.running:
                write = self.running.pop(number % len(self.running))
                self.stored += write[0] - write[1]
                self.usage.end(write[0])
            case "delete":
                self.stored = max(0, self.stored - number)
            case "count" if self._counts:
                self._counts.pop(0).set_result(None)
            case "rest":
                self.clock.time += number / 100
        for _ in range(5):
            await asyncio.sleep(0)


STEPS = st.tuples(
    st.sampled_from(["write", "write", "write", "store", "end", "delete", "count", "count", "rest"]),
    st.sampled_from([1, 2, 3, 10_000, 30_000, 60_000, LIMIT]),
)


@given(st.lists(STEPS, max_size=60))
def test_one_node_never_lets_through_more_than_the_quota(steps: list[tuple[str, int]]) -> None:
    async def run() -> None:
        counts: list[asyncio.Future[None]] = []
        clock = ManualClock()
        node = MemoryNode(clock)
        await node.create({FOLDER: {"owner": "ann"}})
        program = Programs(node, clock, counts)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(folder_usage, "count_folder", program.count)
            patch.setattr(folder_usage, "COUNT_WAIT_SECONDS", 0.0)
            for step in steps:
                await program.step(*step)
                assert program.stored + sum(size - done for size, done in program.running) <= LIMIT
            await program.usage.close()

    asyncio.run(run())


ROOTS = [f"g-00000000-0000000{n}-8888-888888-88888{(n + 8) % 16:x}" for n in range(3)]


@pytest.mark.parametrize("page", [1, 2, 1000])
async def test_a_folder_takes_what_is_below_it(monkeypatch: pytest.MonkeyPatch, page: int) -> None:
    monkeypatch.setattr(key_pages, "KEYS_AT_ONCE", page)
    monkeypatch.setattr(folder_count, "READS_AT_ONCE", page)
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    node = DataService(store, clock)
    owners = Owners(FixedNodes({"dn-001": node}))
    told: list[Name] = []
    assert await count_folder(owners, "/home/ann", told.append) == 0
    domains = {
        "/home/ann": None,
        "/home/ann/a": None,
        "/home/ann/a/x.h5": ROOTS[0],
        "/home/ann/again.h5": ROOTS[0],
        "/home/ann/y.h5": ROOTS[1],
        "/home/anna/z.h5": ROOTS[2],
    }
    for path, root in domains.items():
        await owners.apply(CreateObject(path, {"owner": "ann"} | ({} if root is None else {"root": root})))
    sizes = {0: (9, 5000), 1: (4096, 4097), 2: (10**6,)}
    for number, all_of_it in sizes.items():
        for place, size in enumerate(all_of_it):
            key = f"db/{ROOTS[number][2:19]}/d/0000-000000-00000{place}/0"
            await store.put(key, bytes(size))
    await store.put("home/ann/file.h5", bytes(10**6))  # no domain's
    below = [one async for some in names_below(owners, "/home/ann") for one in some]
    assert {name.path: name.root for name in below} == {
        path: root for path, root in domains.items() if path.startswith("/home/ann/")
    }
    expected = 4 * OBJECT_BYTES + sum(max(size, OBJECT_BYTES) for n in (0, 1) for size in sizes[n])
    assert await count_folder(owners, "/home/ann", told.append) == expected
    assert told == []
    await store.put("home/ann/broken.h5/.domain.json", bytes(5000))
    assert await count_folder(owners, "/home/ann", told.append) == expected + 5000
    assert [(name.path, name.record) for name in told] == [("/home/ann/broken.h5", {})]
    await node.close()
