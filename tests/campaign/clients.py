"""Clients of a campaign: each writes and reads elements and attributes of its own, and knows what it must find."""

from __future__ import annotations

import asyncio
import itertools
import random
from dataclasses import dataclass, field
from typing import Any

from tests.campaign.load_balancer import LoadBalancer
from tests.support.driver import NotDone
from tests.support.rest_client import Reply

SIDE, CHUNK = 64, 8
DOMAIN = "/home/admin/campaign.h5"
TRIES = 3
"""The first request and two retries."""
DATASET = {
    "type": "H5T_STD_I64LE",
    "shape": [SIDE, SIDE],
    "creationProperties": {
        "layout": {"class": "H5D_STRUCT_CHUNK", "dims": [CHUNK, CHUNK], "flags": ["H5D_SPARSE_DATA"]}
    },
}


@dataclass(slots=True)
class Tally:
    """What happened: the times of successes, requests that failed after retries, and answers that were wrong."""

    done: list[float] = field(default_factory=list, repr=False)
    failed: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    retried: int = 0

    def longest_gap(self, start: float, stop: float) -> float:
        """Return the longest time without a success, in seconds."""
        times = [start, *(time for time in self.done if start <= time <= stop), stop]
        return max(after - before for before, after in itertools.pairwise(times))

    def rate(self, start: float, stop: float) -> float:
        """Return the successes a second."""
        return sum(start <= time <= stop for time in self.done) / (stop - start)


class Client:
    """Client number `number` of so many, through any of the service nodes; it owns every `count`-th row."""

    def __init__(self, number: int, count: int, balancer: LoadBalancer, dataset: str, tally: Tally) -> None:
        self._generator = random.Random(number)
        self._rows = range(number, SIDE, count)
        self._number = number
        self._balancer = balancer
        self._dataset = dataset
        self._tally = tally
        self._value = 0
        self.elements: dict[tuple[int, int], int] = {}
        self.attribute: int | None = None

    async def run(self, stop: asyncio.Event) -> None:
        """Send requests until `stop` is set."""
        while not stop.is_set():
            await self._generator.choice((self._write, self._read, self._read, self._describe))()

    async def check(self) -> None:
        """Read all that was acknowledged."""
        for row, column in list(self.elements):
            await self._compare(row, column)

    async def _write(self) -> None:
        self._value += 1
        row, column = self._generator.choice(self._rows), self._generator.randrange(SIDE)
        body = {"points": [[row, column]], "value": [self._value]}
        if await self._send("PUT", f"/datasets/{self._dataset}/value", body) is not None:
            self.elements[row, column] = self._value
        else:
            self.elements.pop((row, column), None)  # it may have either value

    async def _read(self) -> None:
        if self.elements:
            await self._compare(*self._generator.choice(list(self.elements)))

    async def _compare(self, row: int, column: int) -> None:
        select = f"[{row}:{row + 1},{column}:{column + 1}]"
        reply = await self._send("GET", f"/datasets/{self._dataset}/value", select=select)
        expected = self.elements[row, column]
        if reply is not None and reply["value"] != [[expected]]:
            self._tally.wrong.append(f"element {row}, {column}: {reply['value']}, not {expected}")

    async def _describe(self) -> None:
        path = f"/datasets/{self._dataset}/attributes/client{self._number}"
        if self.attribute is not None and self._generator.random() < 0.5:
            reply = await self._send("GET", path)
            if reply is not None and reply["value"] != self.attribute:
                self._tally.wrong.append(f"attribute: {reply['value']}, not {self.attribute}")
            return
        self._value += 1
        body = {"type": "H5T_STD_I64LE", "value": self._value}
        done = await self._send("PUT", path, body, replace=1)
        self.attribute = self._value if done is not None else None

    async def _send(self, method: str, path: str, body: Any = None, **options: Any) -> Reply | None:
        """Return the reply, None if a request and its retries failed."""
        last = ""
        for number in range(TRIES):
            self._tally.retried += number > 0
            try:
                reply = await self._balancer(method, path, body, **options)
            except (NotDone, TimeoutError) as error:
                last = str(error)
                continue
            if reply.status < 400:
                self._tally.done.append(asyncio.get_running_loop().time())
                return reply
            last = f"{reply.status}: {reply.body}"
        self._tally.failed.append(f"{method} {path}: {last}")
        return None
