"""Nodes that change one record, delete, move, link and sweep at once, with calls of the store in any order."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from hsparse.dn import sweep
from hsparse.dn.data_settings import DataSettings
from hsparse.dn.membership.ownership import SoleOwnership
from hsparse.dn.service import DataService
from hsparse.errors import MISSING_KINDS, ErrorKind, HsparseError, StoreFailed
from hsparse.storage.object_store import Buffer, ObjectStore
from hsparse.wire.record_message import (
    ChangeObjects,
    CreateObject,
    DeleteAttributes,
    DeleteObject,
    Outcome,
    PutAttributes,
    ReadObjects,
    RecordChange,
)
from tests.support.deletion_world import Node, World
from tests.support.endurance import repeats
from tests.testing.manual_clock import ManualClock
from tests.testing.memory_store import MemoryStore
from tests.testing.record_conformance import stored_attribute
from tests.testing.store_wrapper import StoreWrapper

R = TypeVar("R")
ID = "g-00000001-00000002-8000-000080-000082"
REFUSALS = {ErrorKind.CONFLICT, ErrorKind.NOT_FOUND, ErrorKind.GONE}
PADDING = "x" * 300
Attributes = frozenset[tuple[str, int]]


class Doubting(SoleOwnership):
    """The ownership of a node that others change the store beside: it confirms what it reads."""

    shared = True

    always = False

    def trusts(self, name: str) -> bool:
        return False


class Turns:
    """Lets one call of the store go on at a time, in an order drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.waiting: list[asyncio.Future[None]] = []

    async def wait(self) -> None:
        """Return when it is this call's turn."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append(turn)
        await turn

    async def run(self, clients: list[asyncio.Task[None]]) -> None:
        """Give turns until all clients have ended."""
        while not all(client.done() for client in clients):
            for _ in range(12):  # until every client waits
                await asyncio.sleep(0)
            self.waiting = [turn for turn in self.waiting if not turn.cancelled()]
            if self.waiting:
                self.waiting.pop(self.random.randrange(len(self.waiting))).set_result(None)
        for client in clients:
            client.result()


class TurnStore(StoreWrapper):
    """A node's view of the store. Some calls are lost, some are carried out without an answer, and at some it dies."""

    def __init__(self, store: ObjectStore, turns: Turns, faults: float) -> None:
        super().__init__(store)
        self._turns = turns
        self._faults = faults
        self.died = asyncio.Event()

    async def around(self, method: str, key: str, data: Buffer, call: Callable[[Buffer], Awaitable[R]]) -> R:
        await self._turns.wait()
        fault = self._turns.random.random() / self._faults if self._faults else 1.0
        if fault < 0.3:
            raise StoreFailed("lost")
        if fault < 0.4:
            self.died.set()
        result = await call(data)
        if 0.4 <= fault < 0.5:
            self.died.set()
        if self.died.is_set():
            await asyncio.get_running_loop().create_future()
        if fault < 0.9:
            raise StoreFailed("carried out")
        return result


@dataclass(slots=True, eq=False)
class Call:
    """An operation, from `invoked` to `returned`; `answer` is whether it applied, or the attributes that it read."""

    change: RecordChange | None
    invoked: int
    returned: int | None = None
    answer: bool | Attributes | None = None

    def after(self, state: Attributes | None) -> tuple[Attributes | None, bool | Attributes | None]:
        """Return the state after it, and the answer that it would have."""
        match self.change:
            case None:
                return state, state
            case CreateObject(_, record):
                return (state, False) if state is not None else (content(record), True)
            case DeleteObject():
                return None, state is not None or bool(self.answer)  # nothing left of it is a success, too
            case PutAttributes(_, attributes):
                if state is None:
                    return None, False
                return content(
                    {"attributes": {name: stored_attribute(v) for name, v in state} | attributes}
                ), True
            case DeleteAttributes(_, names):
                if state is None or not all(name in dict(state) for name in names):
                    return state, False
                return frozenset(entry for entry in state if entry[0] not in names), True
        raise AssertionError(self.change)


def content(record: dict[str, Any]) -> Attributes:
    return frozenset((name, attribute["value"]) for name, attribute in record["attributes"].items())


def record_with(name: str, value: int) -> dict[str, Any]:
    """Return a record that some deltas weigh less than."""
    return {"id": ID, "root": ID, "padding": PADDING, "attributes": {name: stored_attribute(value)}}


def is_linearizable(calls: list[Call]) -> bool:
    """Search for an order, after Wing and Gong (1993)."""
    seen: set[tuple[frozenset[Call], Attributes | None]] = set()
    todo: list[tuple[frozenset[Call], Attributes | None]] = [(frozenset(calls), None)]
    while todo:
        left, state = todo.pop()
        if all(call.returned is None for call in left):
            return True
        if (left, state) in seen:
            continue
        seen.add((left, state))
        until = min(call.returned for call in left if call.returned is not None)
        for call in left:
            if call.invoked < until:
                after, answer = call.after(state)
                if call.returned is None or call.answer == answer:
                    todo.append((left - {call}, after))
    return False


class RecordWorld:
    """Clients of one record, each with a node of its own over the same store."""

    def __init__(self, seed: int, faults: float) -> None:
        self.turns = Turns(seed)
        self.clock = ManualClock()
        self.store = MemoryStore()
        self.calls: list[Call] = []
        self._faults = faults
        self._time = 0
        self._size = self.turns.random.choice((1, 200, 500))

    async def client(self, name: int, count: int) -> None:
        node, store = self._node()
        for number in range(count):
            call = Call(self._draw(10 * name + number), self._tick())
            self.calls.append(call)
            asking = asyncio.create_task(self._ask(node, call))
            died = asyncio.create_task(store.died.wait())
            await asyncio.wait((asking, died), return_when=asyncio.FIRST_COMPLETED)
            died.cancel()
            if asking.done():
                asking.result()
            else:
                asking.cancel()
                node, store = self._node()

    async def ask_alone(self, change: RecordChange | None) -> None:
        """Ask a new node, without faults."""
        node = DataService(self.store, self.clock, DataSettings(large_record_size=self._size))
        self.calls.append(Call(change, self._tick()))
        await self._ask(node, self.calls[-1])

    def _node(self) -> tuple[DataService, TurnStore]:
        store = TurnStore(self.store, self.turns, self._faults)
        return DataService(
            store, self.clock, DataSettings(large_record_size=self._size), ownership=Doubting()
        ), store

    def _draw(self, value: int) -> RecordChange | None:
        """Return a change, None for a read."""
        draw, name = self.turns.random.random(), self.turns.random.choice("ab")
        if draw < 0.25:
            return None
        if draw < 0.35:
            return CreateObject(ID, record_with(name, value))
        if draw < 0.45:
            return DeleteObject(ID)
        if draw < 0.55:
            return DeleteAttributes(ID, (name,))
        return PutAttributes(ID, {name: stored_attribute(value)}, replace=True)

    async def _ask(self, node: DataService, call: Call) -> None:
        if call.change is None:
            [outcome] = await node.send(ReadObjects((ID,)))
        else:
            [outcome] = await node.send(ChangeObjects((call.change,)))
        call.answer = self._answer(call, outcome)
        if call.answer is not None or call.change is None:
            call.returned = self._tick()

    def _answer(self, call: Call, outcome: Outcome) -> bool | Attributes | None:
        """Return what an outcome says; None for a change of which it is not known, and for a read of nothing."""
        kind = None if outcome.failure is None else outcome.failure.kind
        if kind is not None and kind not in REFUSALS:
            assert kind == ErrorKind.STORE_FAILED, outcome
            if call.change is None:
                self.calls.remove(call)
            return None
        if call.change is None:
            return None if kind else content(outcome.record or {})
        return kind is None

    def _tick(self) -> int:
        self._time += 1
        return self._time


async def run(seed: int, faults: float) -> None:
    """Let three clients change and read a record."""
    world = RecordWorld(seed, faults)
    await world.ask_alone(CreateObject(ID, record_with("a", -1)))
    await world.turns.run([asyncio.create_task(world.client(name, 4)) for name in range(1, 4)])
    await world.ask_alone(None)
    assert is_linearizable(world.calls), f"seed {seed}"


@pytest.mark.endurance
@pytest.mark.parametrize("faults", [0.0, 0.15], ids=["no faults", "faults"])
async def test_what_nodes_answer_at_once_is_linearizable(faults: float) -> None:
    first = random.randrange(10**6)
    for seed in range(first, first + repeats(1500, short=30)):
        await run(seed, faults)


def test_the_checker_finds_what_is_lost_and_what_is_seen_too_early() -> None:
    put = Call(PutAttributes(ID, {"a": stored_attribute(1)}), 3, 4, True)
    create = Call(CreateObject(ID, record_with("a", 0)), 1, 2, True)
    new, old = frozenset({("a", 1)}), frozenset({("a", 0)})
    assert is_linearizable([create, put, Call(None, 5, 6, new)])
    assert not is_linearizable([create, put, Call(None, 5, 6, old)])
    lost = Call(put.change, 3)
    assert is_linearizable([create, lost, Call(None, 5, 6, old), Call(None, 7, 8, new)])
    assert not is_linearizable([create, lost, Call(None, 5, 6, new), Call(None, 7, 8, old)])
    assert not is_linearizable([create, Call(DeleteObject(ID), 3, 4, True), Call(put.change, 5, 6, True)])


A, B, C = "/a.h5", "/m.h5", "/z.h5"
LINK, MOVED, NEW = "/k.h5", "/c.h5", "/n.h5"
MOVED_AGAIN = "/b.h5"


@dataclass(slots=True)
class Schedule:
    """Whose call is next: `waiting` has the calls that were made and are not carried out yet."""

    random: Random
    waiting: list[tuple[ScheduledStore, asyncio.Future[None]]] = field(default_factory=list)

    async def run(self, acts: list[asyncio.Future[Any]]) -> None:
        """Carry out calls until every act has ended, or its node is dead."""
        loop: Any = asyncio.get_running_loop()
        while not all(act.done() for act in acts):
            while loop._ready:  # noqa: ASYNC110 - all nodes go on until each waits for a call
                await asyncio.sleep(0)
            if not self.waiting:
                return
            store, call = self.waiting.pop(self.random.randrange(len(self.waiting)))
            store.calls_left -= 1
            if store.calls_left >= 0:
                call.set_result(None)
            await asyncio.sleep(0)


class ScheduledStore(StoreWrapper):
    """A node's store, whose calls wait for their turn in a schedule; the node dies after `calls_left` of them."""

    def __init__(self, store: ObjectStore, schedule: Schedule, calls_left: int) -> None:
        super().__init__(store)
        self.schedule = schedule
        self.calls_left = calls_left

    async def around(self, method: str, key: str, data: Buffer, call: Callable[[Buffer], Awaitable[R]]) -> R:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.schedule.waiting.append((self, turn))
        await turn
        return await call(data)


@dataclass(slots=True)
class Run:
    """The acts of a run by name, and what came of each: None while it is under way or when its node died."""

    world: World
    acts: dict[str, asyncio.Task[Any]] = field(default_factory=dict)

    def succeeded(self, name: str) -> bool:
        """Whether the act was made and acknowledged."""
        return name in self.acts and self._ended(name) and self.acts[name].exception() is None

    def may_have_deleted(self, name: str) -> bool:
        """Whether the act was made, unless it was answered that there is nothing to delete."""
        if name not in self.acts:
            return False
        error = self.acts[name].exception() if self._ended(name) else None
        return not (isinstance(error, HsparseError) and error.kind in MISSING_KINDS)

    def _ended(self, name: str) -> bool:
        return self.acts[name].done() and not self.acts[name].cancelled()


async def create_and_fill(world: World, node: Node) -> None:
    root = await node.create(NEW)
    world.datasets[root] = set()
    dataset = await node.fill(root)
    world.datasets[root] = {dataset}


ACTS: dict[str, Callable[[World, Node], Awaitable[object]]] = {
    "delete A": lambda world, node: node.delete(A),
    "delete A again": lambda world, node: node.delete(A),
    "move B": lambda world, node: node.move(B, MOVED),
    "move B on": lambda world, node: node.move(MOVED, MOVED_AGAIN),
    "link C": lambda world, node: node.create(LINK, linked_domain=C),
    "unlink C": lambda world, node: node.delete(C, keep_root=True),
    "remove the dataset of C": lambda world, node: node.remove(*world.datasets[world.root_c]),
    "create": create_and_fill,
    "sweep": lambda world, node: node.sweep(),
    "sweep too": lambda world, node: node.sweep(),
    "resume": lambda world, node: node.data.deletions.resume_all(0.0),
}


async def run_acts(seed: int, names: list[str], deaths: dict[str, int]) -> None:
    world = World()
    roots = {path: (await world.make(path))[0] for path in (A, B, C)}
    orphan, _ = await world.make("/orphan.h5")
    await world.store.delete("orphan.h5/.domain.json")
    del world.datasets[orphan]
    world.root_c = roots[C]
    world.pass_days()
    schedule = Schedule(Random(seed))
    run = Run(world)
    nodes = []
    for name in names:
        nodes.append(world.node(ScheduledStore(world.store, schedule, deaths.get(name, 10_000))))
        run.acts[name] = asyncio.ensure_future(ACTS[name](world, nodes[-1]))
    await schedule.run(list(run.acts.values()))
    for act in run.acts.values():
        if not act.done():
            act.cancel()
    await asyncio.wait(run.acts.values())
    for act in run.acts.values():
        if not act.cancelled() and (error := act.exception()) is not None:
            assert isinstance(error, HsparseError), error
    await check(run, roots)
    await world.settle()
    await check(run, roots)
    assert await world.is_gone(orphan)


async def check(run: Run, roots: dict[str, str]) -> None:
    """Check that what was acknowledged is there."""
    world = run.world
    domains = await world.domains()
    if not run.may_have_deleted("delete A") and not run.may_have_deleted("delete A again"):
        assert domains[A] == roots[A]
        assert await world.is_whole(roots[A])
    if run.succeeded("delete A") or run.succeeded("delete A again"):
        assert A not in domains
        assert await world.is_gone(roots[A])
    assert roots[B] in domains.values(), "a move loses no domain"
    assert await world.is_whole(roots[B])
    if run.succeeded("move B"):
        assert B not in domains
    if "unlink C" not in run.acts:
        assert domains[C] == roots[C]
    if run.succeeded("link C"):
        assert domains[LINK] == roots[C]
    if roots[C] in domains.values():
        if "remove the dataset of C" in run.acts:
            world.datasets[roots[C]] = set()
        assert await world.is_whole(roots[C])
    if run.succeeded("create"):
        assert await world.is_whole(domains[NEW])
    elif NEW not in domains:
        for root in set(world.datasets) - set(roots.values()):
            del world.datasets[root]


@pytest.fixture
def _young_notes_are_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sweeps join deletions that are under way: that must do no harm."""
    monkeypatch.setattr(sweep, "NOTE_AGE", 0.0)


NAMES = st.lists(st.sampled_from(list(ACTS)), min_size=2, max_size=6, unique=True)
DEATHS = st.dictionaries(st.sampled_from(list(ACTS)), st.integers(0, 40), max_size=2)


@pytest.mark.endurance
@pytest.mark.usefixtures("_young_notes_are_resumed")
def test_no_order_of_calls_loses_anything(request: pytest.FixtureRequest) -> None:
    asked: int | None = request.config.getoption("--examples")

    @settings(
        max_examples=asked or repeats(60, short=10),
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=list(Phase) if asked else [Phase.explicit, Phase.reuse, Phase.generate],
    )
    @given(seed=st.integers(0, 2**32), names=NAMES, deaths=DEATHS)
    def check_one(seed: int, names: list[str], deaths: dict[str, int]) -> None:
        asyncio.run(run_acts(seed, [*names, "sweep"] if "sweep" not in names else names, deaths))

    check_one()
