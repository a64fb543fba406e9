"""Snapshots beside writes by two owners: each is what was there at one moment, chunk by chunk, and stays so."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from tests.support.endurance import repeats
from tests.versions.conftest import DENSE, DOMAIN, SPARSE, Versioned

WRITERS, WRITES, SNAPSHOTS = 6, 25, 4


class Race:
    """Writers of one element each, some in the same chunk, whose values go up; and who takes snapshots beside them."""

    def __init__(self, server: Versioned, generator: random.Random) -> None:
        self.server, self.random = server, generator
        self.begun = [0] * WRITERS
        self.done = [0] * WRITERS
        self.seen: dict[int, list[int]] = {}
        self.bounds: dict[int, tuple[list[int], list[int]]] = {}

    async def around(self, method: str, key: str, data: Any, call: Any) -> Any:
        await self.pause(method)
        answer = await call(data)
        await self.pause(method)
        return answer

    async def pause(self, method: str) -> None:
        longest = 2000 if method == "put_if_match" and self.random.random() < 0.1 else 20
        for _ in range(self.random.choice((0, 0, 1, 3, longest))):
            await asyncio.sleep(0)

    async def write(self, writer: int, id: str) -> None:
        for value in range(1, WRITES + 1):
            self.begun[writer] = value
            door = self.random.choice(self.server.doors)
            await self.server.write(id, self.place(writer), [value], door=door)
            self.done[writer] = value

    @staticmethod
    def place(writer: int) -> int:
        return writer * 7

    async def take(self, id: str) -> None:
        for _ in range(SNAPSHOTS):
            for _ in range(self.random.randrange(200)):
                await asyncio.sleep(0)
            least = list(self.done)
            number = await self.server.snapshot(door=self.random.choice(self.server.doors))
            self.bounds[number] = least, list(self.begun)
            self.seen[number] = await self.read(number)

    async def read(self, number: int) -> list[int]:
        door = self.random.choice(self.server.doors)
        there = await self.server.links(domain=f"{DOMAIN}@{number}", door=door)
        values = await self.server.read(there["kept"], domain=f"{DOMAIN}@{number}", door=door)
        return [values[self.place(writer)] for writer in range(WRITERS)]

    def check(self, number: int, found: list[int]) -> None:
        least, most = self.bounds[number]
        assert found == self.seen[number], (number, found, self.seen[number])
        for low, value, high in zip(least, found, most, strict=True):
            assert low <= value <= high, (number, least, found, most)


@pytest.mark.endurance
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("nodes", [1, 2])
async def test_a_snapshot_beside_writes_is_what_was_there(nodes: int) -> None:
    for seed in range(repeats(60, short=1)):
        await race(seed, nodes)


async def race(seed: int, nodes: int) -> None:
    """Run the race of a seed."""
    server = Versioned(nodes)
    await server.open()
    await server.done("PUT", "/")
    generator = random.Random(seed)
    one = Race(server, generator)
    layout = generator.choice((DENSE, SPARSE))
    id = await server.create("kept", 60, layout)
    server.store.around = one.around  # type: ignore[assignment, method-assign]
    try:
        await asyncio.gather(*(one.write(writer, id) for writer in range(WRITERS)), one.take(id))
        for number in one.seen:
            one.check(number, await one.read(number))
        assert (await server.read(id))[one.place(1)] == WRITES
    except BaseException as error:
        error.add_note(f"seed {seed}, {nodes} nodes")
        raise
    finally:
        await server.close()
