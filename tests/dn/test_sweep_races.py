"""Nodes that delete, move, link, create and sweep at the same time, in any order of their calls of the store.

A schedule says which node's call is carried out next, and which nodes die at which of their calls. Whatever it is, what
was acknowledged and not deleted is there, whole; and a later sweep leaves nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from hsparse.dn import sweep
from hsparse.errors import MISSING_KINDS, HsparseError
from hsparse.storage.object_store import Buffer, ObjectStore
from tests.support.deletion_world import Node, World
from tests.support.endurance import repeats
from tests.testing.store_wrapper import StoreWrapper

R = TypeVar("R")
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


@pytest.fixture(autouse=True)
def _young_notes_are_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sweeps join deletions that are under way: that must do no harm."""
    monkeypatch.setattr(sweep, "NOTE_AGE", 0.0)


NAMES = st.lists(st.sampled_from(list(ACTS)), min_size=2, max_size=6, unique=True)
DEATHS = st.dictionaries(st.sampled_from(list(ACTS)), st.integers(0, 40), max_size=2)


@pytest.mark.endurance
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
