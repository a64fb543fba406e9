"""Random programs of changes and snapshots against a model: a copy of everything at each snapshot."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest

from hsparse.errors import StoreFailed
from hsparse.storage.object_store import Buffer
from hsparse.wire.record_message import AskStore
from tests.support.endurance import repeats
from tests.versions.conftest import DENSE, DOMAIN, SPARSE, Versioned

R = TypeVar("R")
MOVES = 30
SEEDS = 2000
Content = dict[str, Any]
"""By the name of a dataset: the values, and an attribute."""


class Stopped(StoreFailed):
    """The process was killed at a request to the store."""


@dataclass(eq=False)
class World:
    """A server, and the model of its domain and of each snapshot."""

    server: Versioned
    random: random.Random
    crashes: bool = False
    head: Content = field(default_factory=dict)
    snapshots: dict[int, Content] = field(default_factory=dict)
    left: int = -1
    """Requests to the store until the process is killed; negative for never."""

    async def around(self, method: str, key: str, data: Buffer, call: Callable[[Buffer], Awaitable[R]]) -> R:
        if self.left == 0:
            raise Stopped("killed")
        if self.left > 0:
            self.left -= 1
            if self.left == 0 and self.random.random() < 0.5:
                await call(data)  # and the reply is lost
                raise Stopped("killed")
        return await call(data)

    @property
    def door(self) -> Any:
        return self.random.choice(self.server.doors)

    async def run(self, moves: int) -> None:
        self.server.store.around = self.around  # type: ignore[assignment]
        for _ in range(moves):
            await self.move()
            await self.check_one()
        await self.check(DOMAIN, self.head)
        for number, content in self.snapshots.items():
            await self.check(f"{DOMAIN}@{number}", content)
        for number in list(self.snapshots):
            await self.server.done("DELETE", f"/snapshots/{number}", door=self.door)
        if self.crashes:
            await self.server.nodes[0].send(AskStore("sweep", {"min_age": 0.0, "dry_run": False}))
        left = [key for key in await self.server.keys() if "/.history/" in key or ".versions.json" in key]
        assert not left
        assert not [key for key in await self.server.keys() if key.startswith("db/.bases/")]

    async def move(self) -> None:
        moves = [self.write] * 6 + [self.resize] * 2 + [self.describe, self.create, self.remove]
        moves += [self.take] * 2 + [self.let_go, self.restore, self.restart]
        move = self.random.choice(moves)
        if not self.crashes or self.random.random() < 0.7:
            await move()
            return
        self.left = self.random.randrange(1, 12)
        try:
            await move()
        except AssertionError:
            if self.left:
                raise
        finally:
            killed, self.left = self.left == 0, -1
        if killed:
            self.left = 0
            await self.server.close()
            self.left = -1
            await self.server.open()
            await self.adopt()

    async def adopt(self) -> None:
        """Take as the model's what a move that was cut short has made of the domain."""
        self.head = await self.content(DOMAIN)
        listed = (await self.server.done("GET", "/snapshots"))["snapshots"]
        numbers = {one["snapshot"] for one in listed}
        self.snapshots = {n: self.snapshots.get(n, self.head) for n in numbers}
        self.snapshots = {n: deepcopy(content) for n, content in self.snapshots.items()}

    # --- what is looked at ----------------------------------------------------------------------------

    async def check_one(self) -> None:
        numbers = [0, *self.snapshots]
        number = self.random.choice(numbers)
        if number:
            await self.check(f"{DOMAIN}@{number}", self.snapshots[number])
        else:
            await self.check(DOMAIN, self.head)

    async def check(self, domain: str, expected: Content) -> None:
        assert await self.content(domain) == expected, domain

    async def content(self, domain: str) -> Content:
        door, found = self.door, {}
        for name, id in (await self.server.links(domain=domain, door=door)).items():
            reply = await door("GET", f"/datasets/{id}", domain=domain)
            if reply.status == 410 or reply.status == 404:
                continue  # killed between the deletion and that of the link
            values = (
                await self.server.read(id, domain=domain, door=door) if reply["shape"]["dims"] != [0] else []
            )
            unit = await door("GET", f"/datasets/{id}/attributes/a", domain=domain)
            a = unit["value"] if unit.status == 200 else None
            found[name] = {"values": [int(one) for one in values], "a": a}
        return found

    # --- moves ----------------------------------------------------------------------------------------

    async def _some(self) -> tuple[str, str] | None:
        links = await self.server.links(door=self.door)
        names = [name for name in self.head if name in links]
        if not names:
            return None
        name = self.random.choice(names)
        return name, links[name]

    async def create(self) -> None:
        if len(self.head) > 3:
            return
        name = f"d{self.random.randrange(10_000)}"
        size = self.random.choice((0, 15, 40))
        await self.server.create(name, size, self.random.choice((DENSE, SPARSE)), door=self.door)
        self.head[name] = {"values": [0] * size, "a": None}

    async def write(self) -> None:
        if (some := await self._some()) is None or not (values := self.head[some[0]]["values"]):
            return
        start = self.random.randrange(len(values))
        new = [self.random.randrange(1, 1000) for _ in range(self.random.randint(1, len(values) - start))]
        await self.server.write(some[1], start, new, door=self.door)
        values[start : start + len(new)] = new

    async def resize(self) -> None:
        if (some := await self._some()) is None:
            return
        values, size = self.head[some[0]]["values"], self.random.choice((0, 5, 10, 25, 45))
        await self.server.done("PUT", f"/datasets/{some[1]}/shape", {"shape": [size]}, door=self.door)
        values[:] = (values + [0] * 50)[:size]

    async def describe(self) -> None:
        if (some := await self._some()) is None:
            return
        a = self.random.randrange(1000)
        body = {"type": "H5T_STD_I32LE", "value": a}
        await self.server.done("PUT", f"/datasets/{some[1]}/attributes/a", body, replace=1, door=self.door)
        self.head[some[0]]["a"] = a

    async def remove(self) -> None:
        if (some := await self._some()) is None:
            return
        await self.server.done("DELETE", f"/datasets/{some[1]}", door=self.door)
        root = (await self.server.done("GET", "/", door=self.door))["root"]
        await self.server.done("DELETE", f"/groups/{root}/links/{some[0]}", door=self.door)
        del self.head[some[0]]

    async def take(self) -> None:
        if len(self.snapshots) < 5:
            self.snapshots[await self.server.snapshot(door=self.door)] = deepcopy(self.head)

    async def let_go(self) -> None:
        if self.snapshots:
            number = self.random.choice(list(self.snapshots))
            await self.server.done("DELETE", f"/snapshots/{number}", door=self.door)
            del self.snapshots[number]

    async def restore(self) -> None:
        if self.snapshots:
            number = self.random.choice(list(self.snapshots))
            await self.server.done("POST", f"/snapshots/{number}/restore", door=self.door)
            self.head = deepcopy(self.snapshots[number])

    async def restart(self) -> None:
        await self.server.restart()


@pytest.mark.endurance
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("crashes", [False, True])
async def test_every_snapshot_is_what_was_there(nodes: int, crashes: bool) -> None:
    for seed in range(repeats(SEEDS // 4, short=2)):
        await run(seed, nodes, crashes)


async def run(seed: int, nodes: int, crashes: bool) -> None:
    """Run the program of a seed."""
    server = Versioned(nodes)
    await server.open()
    await server.done("PUT", "/")
    try:
        await World(server, random.Random(seed), crashes).run(MOVES)
    except BaseException as error:
        error.add_note(f"seed {seed}, {nodes} nodes, crashes {crashes}")
        raise
    finally:
        await server.close()
    await asyncio.sleep(0)
