"""Clients of a campaign: each knows what it must find, in what is its own and in what all of them change.

Requests are repeated as a client may repeat them: what sets something is sent again, what appends or extends is sent
again with its `Idempotency-Key`, and what is created has an id of the client's choice.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from dataclasses import dataclass, field
from typing import Any

from hsparse.model.ids import derived_id
from tests.campaign.load_balancer import LoadBalancer
from tests.campaign.shared_objects import INTEGERS, SIDE, SharedObjects, places
from tests.support.driver import NotDone
from tests.support.rest_client import Reply

DOMAIN = "/home/admin/campaign.h5"
TRIES = 3
"""The first request and two retries."""


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

    def __init__(
        self, number: int, count: int, balancer: LoadBalancer, shared: SharedObjects, tally: Tally
    ) -> None:
        self._generator = random.Random(number)
        self._rows = range(number, SIDE, count)
        self._number = number
        self._balancer = balancer
        self._shared = shared
        self._values = f"/datasets/{shared.rows}/value"
        self._tally = tally
        self._value = 0
        self.elements: dict[tuple[int, int], int] = {}
        self.attribute: int | None = None
        self.links: dict[str, str] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Send requests until `stop` is set."""
        often = (self._write, self._read, self._read, self._describe, self._count, self._watch)
        seldom = (self._append, self._extend, self._erase, self._create)
        while not stop.is_set():
            await self._generator.choice((*often, *often, *seldom))()

    async def check(self) -> None:
        """Read all that was acknowledged."""
        for row, column in list(self.elements):
            await self._compare(row, column)
        for title, id in self.links.items():
            reply = await self._send("GET", f"/groups/{self._shared.root}/links/{title}")
            if reply is not None and reply["link"]["id"] != id:
                self._wrong(f"link {title}: {reply['link']}, not {id}")

    # --- what is its own ------------------------------------------------------------------------------

    async def _write(self) -> None:
        row, column = self._generator.choice(self._rows), self._generator.randrange(SIDE)
        value = self._next()
        await self._change((row, column), value, "PUT", {"points": [[row, column]], "value": [value]})

    async def _erase(self) -> None:
        if self.elements:
            place = self._generator.choice(list(self.elements))
            await self._change(place, 0, "DELETE", None, select=_element(*place))

    async def _change(
        self, place: tuple[int, int], value: int, method: str, body: Any, **options: Any
    ) -> None:
        if await self._send(method, self._values, body, **options) is not None:
            self.elements[place] = value
        else:
            self.elements.pop(place, None)  # it may have either value

    async def _read(self) -> None:
        if self.elements:
            await self._compare(*self._generator.choice(list(self.elements)))

    async def _compare(self, row: int, column: int) -> None:
        reply = await self._send("GET", self._values, select=_element(row, column))
        expected = self.elements[row, column]
        if reply is not None and reply["value"] != [[expected]]:
            self._wrong(f"element {row}, {column}: {reply['value']}, not {expected}")

    async def _describe(self) -> None:
        path = f"/datasets/{self._shared.rows}/attributes/client{self._number}"
        if self.attribute is not None and self._generator.random() < 0.5:
            reply = await self._send("GET", path)
            if reply is not None and reply["value"] != self.attribute:
                self._wrong(f"attribute: {reply['value']}, not {self.attribute}")
            return
        value = self._next()
        done = await self._send("PUT", path, {"type": INTEGERS, "value": value}, replace=1)
        self.attribute = value if done is not None else None

    async def _create(self) -> None:
        """Create a group, and link it; what is there already was created by an attempt without an answer."""
        title, root = f"client{self._number}-{self._next()}", self._shared.root
        id = derived_id("groups", root, self._generator.randbytes(8))
        made = await self._send("POST", "/groups", {"id": id}, repeated=(409,))
        if made is None:
            return
        link = {"id": id}
        if await self._send("PUT", f"/groups/{root}/links/{title}", link) is not None:
            self.links[title] = id

    # --- what all clients change ----------------------------------------------------------------------

    async def _count(self) -> None:
        register = self._shared.registers[self._number]
        value = register.sent = register.sent + 1
        body = {"points": [self._number], "value": [value]}
        if await self._send("PUT", f"/datasets/{self._shared.counters}/value", body) is not None:
            register.acknowledged = value

    async def _watch(self) -> None:
        """Read the counters of all clients: none goes back, not even a moment after it was acknowledged."""
        least = [register.acknowledged for register in self._shared.registers]
        reply = await self._send("GET", f"/datasets/{self._shared.counters}/value")
        if reply is None:
            return
        for number, value in enumerate(reply["value"]):
            most = self._shared.registers[number].sent
            if not least[number] <= value <= most:
                self._wrong(f"counter {number}: {value}, not from {least[number]} to {most}")

    async def _append(self) -> None:
        values = [1_000_000 * self._number + self._next() for _ in range(self._generator.randint(1, 3))]
        body = {"append": len(values), "value": values}
        reply = await self._send("PUT", f"/datasets/{self._shared.log}/value", body, headers=self._key())
        if reply is None:
            self._shared.unsure.update(values)
        else:
            start, _ = places(reply["selection"])
            self._shared.appended.update({value: start + place for place, value in enumerate(values)})

    async def _extend(self) -> None:
        body = {"extend": self._generator.randint(1, 3)}
        reply = await self._send("PUT", f"/datasets/{self._shared.grown}/shape", body, headers=self._key())
        if reply is None:
            self._shared.sure_of_extent = False
        else:
            self._shared.extended.append(places(reply["selection"]))

    async def check_shared(self) -> None:
        """Read what all clients have changed, after they have ended."""
        await self._watch()
        log = await self._send("GET", f"/datasets/{self._shared.log}/value")
        grown = await self._send("GET", f"/datasets/{self._shared.grown}/shape")
        assert log is not None
        assert grown is not None
        self._tally.wrong += self._shared.wrong_log(log["value"])
        self._tally.wrong += self._shared.wrong_extent(grown["shape"]["dims"][0])

    # --- requests -------------------------------------------------------------------------------------

    def _next(self) -> int:
        self._value += 1
        return self._value

    def _key(self) -> dict[str, str]:
        return {"Idempotency-Key": f'"{self._number}-{self._next()}"'}

    def _wrong(self, what: str) -> None:
        self._tally.wrong.append(what)

    async def _send(
        self, method: str, path: str, body: Any = None, *, repeated: tuple[int, ...] = (), **options: Any
    ) -> Reply | None:
        """Return the reply, None if a request and its retries failed; retries may be answered `repeated`, too."""
        last = ""
        for number in range(TRIES):
            self._tally.retried += number > 0
            try:
                reply = await self._balancer(method, path, body, **options)
            except (NotDone, TimeoutError) as error:
                last = str(error)
                continue
            if reply.status < 400 or (number and reply.status in repeated):
                self._tally.done.append(asyncio.get_running_loop().time())
                return reply
            last = f"{reply.status}: {reply.body}"
        self._tally.failed.append(f"{method} {path}: {last}")
        return None


def _element(row: int, column: int) -> str:
    return f"[{row}:{row + 1},{column}:{column + 1}]"
