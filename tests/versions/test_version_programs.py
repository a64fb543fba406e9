"""Random programs of changes and snapshots against a model: a copy of everything at each snapshot."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest

from hsparse.clock import SystemClock
from hsparse.dn.sweep import Sweep
from hsparse.errors import StoreFailed
from hsparse.storage.object_store import Buffer
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
    clones: dict[str, Content] = field(default_factory=dict)
    pins: dict[str, int] = field(default_factory=dict)
    created: int = 0
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
        for clone, content in list(self.clones.items()):
            await self.check(clone, content)
            await self.drop(clone)
        await self.sweep()
        for number in list(self.snapshots):
            await self.server.done("DELETE", f"/snapshots/{number}", door=self.door)
        await self.sweep()
        left = [key for key in await self.server.keys() if "/.history/" in key or ".versions.json" in key]
        assert not left
        assert not [key for key in await self.server.keys() if key.startswith(("db/.bases/", "db/c10e"))]

    async def sweep(self) -> None:
        if self.crashes:
            await Sweep(self.server.versioned, SystemClock(), min_age=0.0).run()

    async def move(self) -> None:
        moves = [self.write] * 6 + [self.resize] * 2 + [self.describe, self.create, self.remove]
        moves += [self.take] * 2 + [self.let_go, self.restore, self.restart]
        moves += [self.clone, self.clone, self.drop_clone, self.own_all]
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
        for clone in list(self.clones):
            reply = await self.server.rest("GET", "/", domain=clone)
            if reply.status == 200:
                self.clones[clone] = await self.content(clone)
            else:
                del self.clones[clone]
        self.snapshots = {n: self.snapshots.get(n, self.head) for n in numbers}
        self.snapshots = {n: deepcopy(content) for n, content in self.snapshots.items()}

    # --- what is looked at ----------------------------------------------------------------------------

    async def check_one(self) -> None:
        for clone in self.random.sample(list(self.clones), min(1, len(self.clones))):
            await self.check(clone, self.clones[clone])
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

    def _domain(self) -> tuple[str, Content]:
        return self.random.choice([(DOMAIN, self.head), *self.clones.items()])

    async def _some(self) -> tuple[Content, str, str, str] | None:
        domain, content = self._domain()
        links = await self.server.links(door=self.door, domain=domain)
        names = [name for name in content if name in links]
        if not names:
            return None
        name = self.random.choice(names)
        return content, name, links[name], domain

    async def create(self) -> None:
        domain, content = self._domain()
        if len(content) > 3:
            return
        self.created += 1
        name = f"d{self.created}"
        size = self.random.choice((0, 15, 40))
        layout = self.random.choice((DENSE, SPARSE))
        await self.server.create(name, size, layout, door=self.door, domain=domain)
        content[name] = {"values": [0] * size, "a": None}

    async def write(self) -> None:
        if (some := await self._some()) is None or not (values := some[0][some[1]]["values"]):
            return
        start = self.random.randrange(len(values))
        new = [self.random.randrange(1, 1000) for _ in range(self.random.randint(1, len(values) - start))]
        await self.server.write(some[2], start, new, door=self.door, domain=some[3])
        values[start : start + len(new)] = new

    async def resize(self) -> None:
        if (some := await self._some()) is None:
            return
        content, name, id, domain = some
        values, size = content[name]["values"], self.random.choice((0, 5, 10, 25, 45))
        await self.server.done(
            "PUT", f"/datasets/{id}/shape", {"shape": [size]}, door=self.door, domain=domain
        )
        values[:] = (values + [0] * 50)[:size]

    async def describe(self) -> None:
        if (some := await self._some()) is None:
            return
        content, name, id, domain = some
        a = self.random.randrange(1000)
        body = {"type": "H5T_STD_I32LE", "value": a}
        path = f"/datasets/{id}/attributes/a"
        await self.server.done("PUT", path, body, replace=1, door=self.door, domain=domain)
        content[name]["a"] = a

    async def remove(self) -> None:
        if (some := await self._some()) is None:
            return
        content, name, id, domain = some
        await self.server.done("DELETE", f"/datasets/{id}", door=self.door, domain=domain)
        root = (await self.server.done("GET", "/", door=self.door, domain=domain))["root"]
        await self.server.done("DELETE", f"/groups/{root}/links/{name}", door=self.door, domain=domain)
        del content[name]

    async def clone(self) -> None:
        if not self.snapshots or len(self.clones) > 2:
            return
        number, path = (
            self.random.choice(list(self.snapshots)),
            f"/home/admin/c{self.random.randrange(10**6)}",
        )
        self.clones[path] = deepcopy(self.snapshots[number])  # also if the reply is lost
        self.pins[path] = number
        await self.server.done("POST", "/clones", {"target": path, "snapshot": number}, door=self.door)

    async def drop_clone(self) -> None:
        if self.clones:
            await self.drop(self.random.choice(list(self.clones)))

    async def drop(self, clone: str) -> None:
        root = (await self.server.done("GET", "/", domain=clone))["root"]
        await self.server.done("DELETE", "/", domain=clone, wait=10, door=self.door)
        del self.clones[clone]
        self.pins.pop(clone, None)
        if not self.crashes:
            assert not [key for key in await self.server.keys() if root[2:19] in key]

    async def own_all(self) -> None:
        if self.clones:
            clone = self.random.choice(list(self.clones))
            await self.server.done("POST", "/clones/materialize", {}, domain=clone, door=self.door)
            self.pins.pop(clone, None)

    async def take(self) -> None:
        if len(self.snapshots) < 5:
            self.snapshots[await self.server.snapshot(door=self.door)] = deepcopy(self.head)

    async def let_go(self) -> None:
        if self.snapshots:
            number = self.random.choice(list(self.snapshots))
            reply = await self.door("DELETE", f"/snapshots/{number}")
            if number in self.pins.values() and not self.crashes:
                assert (reply.status, "needs snapshot" in str(reply.body)) == (409, True), reply
            if reply.status != 409:
                assert reply.status == 200, reply
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
    for seed in range(repeats(SEEDS // 4, short=1)):
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
