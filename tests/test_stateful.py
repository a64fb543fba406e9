"""The machines against every store, above HTTP and below it."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from hsparse.sn.values import append
from hsparse.storage.object_store import Buffer, ObjectStore
from hsparse.storage.posix import PosixStore
from hsparse.storage.s3.s3_store import S3Store
from hsparse.stripes.joining import joined
from tests.support.dataset_subject import SIGNED
from tests.support.endurance import repeats
from tests.support.s3_servers import make_bucket
from tests.support.stateful import SparseMachine, TwoOwnersMachine, VersionsMachine, World
from tests.testing.memory_store import MemoryStore
from tests.testing.store_wrapper import StoreWrapper

NUMBERS = itertools.count()
STEPS = {"s3": repeats(25, short=10)}
"""Steps of an example where a step is hundreds of requests, most of them reads that check the whole dataset."""
OpenWorld = Callable[..., World]


@pytest.fixture
def open_world(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[OpenWorld]:
    """A function that returns a world over a store of a kind, to be closed for it.

    Others do not wait for an append that has died: how often they look must not depend on time.
    """
    monkeypatch.setattr(append, "LEASE_SECONDS", -1.0)
    monkeypatch.setattr(append, "EXPIRY_CHECK_SECONDS", -1.0)
    worlds: list[World] = []

    def open_world(
        kind: str,
        *,
        rest: bool = False,
        wrap: Callable[[ObjectStore], ObjectStore] = lambda store: store,
        **options: Any,
    ) -> World:
        async def open_store() -> ObjectStore:
            if kind == "striped":
                return wrap(joined([MemoryStore(name, page_size=3) for name in ("hsparse", "b", "c")])[0])
            if kind == "memory":
                return wrap(MemoryStore())
            if kind == "posix":
                return wrap(PosixStore(tmp_path / "store", fsync=False))
            bucket = f"machine-{next(NUMBERS)}"
            endpoint = request.getfixturevalue("moto_endpoint")
            make_bucket(endpoint, bucket)
            store = S3Store(
                bucket, endpoint=endpoint, region="us-east-1", access_key="test", secret_key="test"
            )
            return wrap(await store.open())

        places = ("c", "b/deep", "b") if kind == "striped" else ()
        worlds.append(World(open_store, rest=rest, places=places, **options))
        return worlds[-1]

    yield open_world
    for world in worlds:
        world.close()


def run(
    request: pytest.FixtureRequest,
    machine: Callable[[], RuleBasedStateMachine],
    examples: int,
    steps: int = 25,
) -> None:
    asked: int | None = request.config.getoption("--examples")
    # A failure is made small only in long runs: that takes minutes, and the example database keeps it.
    quick = [Phase.explicit, Phase.reuse, Phase.generate]
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=asked or examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            phases=list(Phase) if asked else quick,
            report_multiple_bugs=False,
        ),
    )


@pytest.mark.endurance
@pytest.mark.parametrize(
    ("kind", "rest", "examples"),
    [
        ("memory", False, repeats(40, short=3)),
        ("striped", False, repeats(20, short=2)),
        ("posix", False, repeats(20, short=2)),
        ("s3", False, repeats(5, short=1)),
        ("memory", True, repeats(12, short=2)),
        ("striped", True, repeats(12, short=2)),
        ("posix", True, repeats(10, short=2)),
        ("s3", True, repeats(4, short=1)),
    ],
)
def test_one_node(
    request: pytest.FixtureRequest, open_world: OpenWorld, kind: str, rest: bool, examples: int
) -> None:
    world = open_world(kind, rest=rest)
    run(request, lambda: SparseMachine(world), examples, STEPS.get(kind, 25))


@pytest.mark.endurance
@pytest.mark.parametrize(
    ("kind", "rest", "examples"),
    [
        ("memory", False, repeats(40, short=2)),
        ("memory", True, repeats(20, short=1)),
        ("striped", True, repeats(20, short=1)),
    ],
)
def test_lower_bounds(
    request: pytest.FixtureRequest, open_world: OpenWorld, kind: str, rest: bool, examples: int
) -> None:
    world = open_world(kind, rest=rest, names=SIGNED)
    run(request, lambda: SparseMachine(world), examples)


@pytest.mark.endurance
@pytest.mark.parametrize(
    ("kind", "examples"),
    [
        ("memory", repeats(40, short=4)),
        ("striped", repeats(20, short=2)),
        ("posix", repeats(10, short=2)),
        ("s3", repeats(3, short=1)),
    ],
)
def test_two_nodes_that_own_the_same(
    request: pytest.FixtureRequest, open_world: OpenWorld, kind: str, examples: int
) -> None:
    world = open_world(kind)
    run(request, lambda: TwoOwnersMachine(world), examples, STEPS.get(kind, 25))


@pytest.mark.endurance
def test_snapshots_and_clones(request: pytest.FixtureRequest, open_world: OpenWorld) -> None:
    world = open_world("memory", rest=True)
    run(request, lambda: VersionsMachine(world), repeats(30, short=1))


class LyingStore(StoreWrapper):
    """A store that answers some replacements of a chunk, by their bytes, without storing them."""

    async def put_if_match(self, key: str, data: Buffer, etag: str) -> str:
        if not key.endswith(".json") and zlib.crc32(data) % 4 == 0:
            return etag
        return await super().put_if_match(key, data, etag)


class CarelessStore(StoreWrapper):
    """A store that ignores conditions."""

    async def put_if_match(self, key: str, data: Buffer, etag: str) -> str:
        return await self.put(key, data)

    async def put_if_absent(self, key: str, data: Buffer) -> str:
        return await self.put(key, data)


@pytest.mark.parametrize(
    ("machine", "store"), [(SparseMachine, LyingStore), (TwoOwnersMachine, CarelessStore)]
)
def test_a_machine_finds_lost_updates(
    open_world: OpenWorld,
    machine: Callable[[World], RuleBasedStateMachine],
    store: Callable[[ObjectStore], ObjectStore],
) -> None:
    world = open_world("memory", wrap=store)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(
            lambda: machine(world),
            settings=settings(
                max_examples=200,
                stateful_step_count=25,
                deadline=None,
                database=None,
                suppress_health_check=list(HealthCheck),
                phases=[Phase.generate],
                report_multiple_bugs=False,
            ),
        )
