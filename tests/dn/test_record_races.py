"""Nodes that change one record at once, with calls of the store in any order, lost ones, and nodes that die.

What they answer is linearizable: some order of the operations, in which none comes before one that had returned when it
began, explains all answers. An operation without an answer takes effect once, at any time, or never.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest

from hsparse.dn.data_settings import DataSettings
from hsparse.dn.membership.ownership import SoleOwnership
from hsparse.dn.service import DataService
from hsparse.errors import ErrorKind, StoreFailed
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
from tests.support.endurance import repeats
from tests.support.stored_attribute import stored_attribute
from tests.testing.manual_clock import ManualClock
from tests.testing.memory_store import MemoryStore
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


class World:
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
    world = World(seed, faults)
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
