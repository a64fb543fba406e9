"""Random programs of changes and snapshots against a model: a copy of everything at each snapshot.

Datasets grow and shrink at their upper end, and those that have a lower bound at that too.
"""

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
LONGEST, LOWEST = 60, -40
LENGTHS = (0, 5, 10, 25, 45)


@dataclass(slots=True)
class Line:
    """A dataset of one dimension: its elements by place, and an attribute.

    One without a lower bound begins at 0. What nobody has written is not among the elements: nobody writes 0.
    """

    sparse: bool
    lower: int | None
    upper: int
    elements: dict[int, int] = field(default_factory=dict)
    a: int | None = None

    @property
    def places(self) -> range:
        return range(self.lower or 0, self.upper)

    def move(self, places: range) -> None:
        """Set the bounds; what falls outside is erased."""
        if self.lower is not None:
            self.lower = places.start
        self.upper = places.stop
        self.elements = {place: value for place, value in self.elements.items() if place in places}


Content = dict[str, Line]
"""Datasets by name."""


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
    changes: tuple[str, str] = ("", "")
    """The domain and the dataset that a move changes, no dataset for all of them."""
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
        moves = [self.write] * 6 + [self.resize, self.append] * 2 + [self.describe, self.create, self.remove]
        moves += [self.take] * 2 + [self.let_go, self.restore, self.restart]
        moves += [self.clone, self.clone, self.drop_clone, self.own_all]
        move, self.changes = self.random.choice(moves), ("", "")
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
        """Take as the model's what a move that was cut short has made of what it was to change, and of nothing else."""
        before = self.head
        self.head = await self.changed(DOMAIN, before)
        listed = (await self.server.done("GET", "/snapshots"))["snapshots"]
        numbers = {one["snapshot"] for one in listed}
        for clone in list(self.clones):
            reply = await self.server.rest("GET", "/", domain=clone)
            if reply.status == 200:
                self.clones[clone] = await self.changed(clone, self.clones[clone])
            else:
                del self.clones[clone]
        self.snapshots = {n: self.snapshots.get(n, before) for n in numbers}
        self.snapshots = {n: deepcopy(content) for n, content in self.snapshots.items()}
        for number, content in self.snapshots.items():
            await self.check(f"{DOMAIN}@{number}", content)

    async def changed(self, domain: str, before: Content) -> Content:
        """Return what is in a domain after a move that was cut short."""
        found, (of, name) = await self.content(domain), self.changes
        if (of, name) != (domain, ""):
            kept = [one for one in {*found, *before} if (of, one) != (domain, name)]
            assert [found.get(one) for one in kept] == [before.get(one) for one in kept], (domain, name)
        return found

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
            reply = await door("GET", f"/datasets/{id}", domain=domain, include_attrs=1)
            if reply.status == 410 or reply.status == 404:
                continue  # killed between the deletion and that of the link
            (length,), (lower,) = reply["shape"]["dims"], reply["shape"].get("lower", [None])
            sparse = reply["creationProperties"]["layout"]["class"] == SPARSE["class"]
            line = found[name] = Line(sparse, lower, (lower or 0) + length)
            line.a = reply["attributes"].get("a", {}).get("value")
            options: dict[str, Any] = {"domain": domain, "door": door, "places": "signed"}
            if sparse and self.random.random() < 0.5:
                line.elements = await self.defined(id, **options)
            elif length:
                read = zip(line.places, await self.server.read(id, **options), strict=True)
                line.elements = {place: int(value) for place, value in read if value}
        return found

    async def defined(self, id: str, **options: Any) -> dict[int, int]:
        """Return the elements that are there by the list of them."""
        reply = await self.server.done("GET", f"/datasets/{id}/value", sparse=1, **options)
        coords = reply["selection"].get("coordinates", [])
        return dict(zip((place for (place,) in coords), reply["value"], strict=True))

    # --- moves ----------------------------------------------------------------------------------------

    def _domain(self) -> tuple[str, Content]:
        return self.random.choice([(DOMAIN, self.head), *self.clones.items()])

    async def _some(self) -> tuple[Line, str, dict[str, Any]] | None:
        """Return a dataset, its path in requests, and the parameters of these, None if there is none."""
        domain, content = self._domain()
        door = self.door
        links = await self.server.links(door=door, domain=domain)
        names = [name for name in content if name in links]
        if not names:
            return None
        self.changes = domain, self.random.choice(names)
        options = {"door": door, "domain": domain, "places": "signed"}
        return content[self.changes[1]], f"/datasets/{links[self.changes[1]]}", options

    async def create(self) -> None:
        domain, content = self._domain()
        if len(content) > 3:
            return
        self.created += 1
        name = f"d{self.created}"
        self.changes = domain, name
        size, layout = self.random.choice((0, 15, 40)), self.random.choice((DENSE, SPARSE))
        lower = self.random.choice((None, -13, 3))
        await self.server.create(name, size, layout, lower, door=self.door, domain=domain)
        content[name] = Line(layout is SPARSE, lower, (lower or 0) + size)

    def _new(self, count: int) -> list[int]:
        return [self.random.randrange(1, 1000) for _ in range(count)]

    async def write(self) -> None:
        if (some := await self._some()) is None or not (places := some[0].places):
            return
        line, path, options = some
        start = self.random.choice(places)
        chosen = range(start, self.random.randint(start, places[-1]) + 1)
        new, select = self._new(len(chosen)), f"[{start}:{chosen.stop}]"
        if line.sparse and self.random.random() < 0.3:
            await self.server.done("DELETE", f"{path}/value", select=select, **options)
            line.elements = {at: value for at, value in line.elements.items() if at not in chosen}
        else:
            await self.server.write(path.removeprefix("/datasets/"), start, new, **options)
            line.elements |= dict(zip(chosen, new, strict=True))

    async def resize(self) -> None:
        """Set the upper end, the lower one of a dataset that has a lower bound, or both at once."""
        if (some := await self._some()) is None:
            return
        line, path, options = some
        low, high = line.places.start, line.places.stop
        if line.lower is None or self.random.random() < 0.3:
            high = low + self.random.choice(LENGTHS)
            body: dict[str, Any] = {"shape": [high - low]}
        else:
            low = max(LOWEST, high - LONGEST, low + self.random.randint(-12, 12))
            body = {"lower": [min(low, high)]}
            if low > high or self.random.random() < 0.5:
                high = low + self.random.choice(LENGTHS)
                body = {"lower": [low], "shape": [high - low]}
        await self.server.done("PUT", f"{path}/shape", body, **options)
        line.move(range(min(low, high), high))

    async def append(self) -> None:
        """Append, or grow by elements that are not there, at either end of a dataset that has a lower bound."""
        if (some := await self._some()) is None or len(some[0].places) > LENGTHS[-1]:
            return
        line, path, options = some
        low, high, count = line.places.start, line.places.stop, self.random.randint(1, 15)
        below = line.lower is not None and low > LOWEST and self.random.random() < 0.5
        new = range(low - count, low) if below else range(high, high + count)
        side = "lower" if below else "upper"
        if self.random.random() < 0.3:
            reply = await self.server.done(
                "PUT", f"{path}/shape", {"extend": count, "dim": 0, "side": side}, **options
            )
            values = {}
        else:
            body = {"append": count, "append_dim": 0, "append_side": side, "value": self._new(count)}
            reply = await self.server.done("PUT", f"{path}/value", body, **options)
            values = dict(zip(new, body["value"], strict=True))
        assert reply["selection"] == f"[{new.start}:{new.stop}]"
        line.move(range(min(low, new.start), max(high, new.stop)))
        line.elements |= values

    async def describe(self) -> None:
        if (some := await self._some()) is None:
            return
        line, path, options = some
        a = self.random.randrange(1000)
        body = {"type": "H5T_STD_I32LE", "value": a}
        await self.server.done("PUT", f"{path}/attributes/a", body, replace=1, **options)
        line.a = a

    async def remove(self) -> None:
        if (some := await self._some()) is None:
            return
        _, path, options = some
        domain, name = self.changes
        await self.server.done("DELETE", path, **options)
        root = (await self.server.done("GET", "/", **options))["root"]
        await self.server.done("DELETE", f"/groups/{root}/links/{name}", **options)
        del (self.head if domain == DOMAIN else self.clones[domain])[name]

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
        root, self.changes = (await self.server.done("GET", "/", domain=clone))["root"], (clone, "")
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
            number, self.changes = self.random.choice(list(self.snapshots)), (DOMAIN, "")
            done = await self.server.done("POST", f"/snapshots/{number}/restore", door=self.door)
            self.snapshots[done["snapshot"]] = self.head
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
