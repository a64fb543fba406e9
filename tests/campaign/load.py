"""A load of requests that costs its sender little: made beforehand, sent over kept connections, hardly parsed.

Closed loop: so many clients send a request when the last one is answered. Open loop: requests are sent at a rate,
whatever becomes of those before, as by very many clients; the time of each counts from when it was due, so that a
sender that is late makes the figures worse, not better.
"""

from __future__ import annotations

import asyncio
import base64
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import process_time
from urllib.parse import urlsplit

OK, MULTIPLE_CHOICES = 200, 300
SERVICE_UNAVAILABLE = 503
LOST = 0
"""The status of a request whose connection ended before the answer did."""
HEAD_END = b"\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"
CONNECTIONS = 256
"""A request without a free one waits here, and its time counts. Opening one costs more than an answer."""


@dataclass(slots=True)
class Outcomes:
    """What became of requests: seconds of those that were answered well, the others by status."""

    seconds: list[float] = field(default_factory=list)
    failed: dict[int, int] = field(default_factory=dict)
    without_retry_after: int = 0
    duration: float = 0.0
    sender: float = 0.0
    """Seconds of CPU of this process, which sends and receives."""
    server: float = 0.0
    """Seconds of CPU of the server's processes."""

    def note(self, status: int, seconds: float, retry_after: bool) -> None:
        if OK <= status < MULTIPLE_CHOICES:
            self.seconds.append(seconds)
            return
        self.failed[status] = self.failed.get(status, 0) + 1
        self.without_retry_after += not retry_after

    @property
    def rate(self) -> float:
        """The requests answered well a second."""
        return len(self.seconds) / self.duration

    def percentile(self, part: float) -> float:
        """Return the seconds in which this part of them was answered."""
        ordered = sorted(self.seconds)
        return ordered[int(part * (len(ordered) - 1))]

    @property
    def cost(self) -> float:
        """The server's seconds of CPU for each request answered well, which others on the machine change less."""
        return self.server / len(self.seconds)

    @property
    def text(self) -> str:
        parts = [
            f"{self.rate:7.1f}/s, median {1000 * self.percentile(0.5):.1f} ms",
            f"p99 {1000 * self.percentile(0.99):.1f} ms",
            *(f"{count} of {status}" for status, count in sorted(self.failed.items())),
        ]
        if self.server:
            cores = self.sender / self.duration, self.server / self.duration
            parts.append(
                f"CPU of sender {cores[0]:.2f}, of server {cores[1]:.2f}, {1000 * self.cost:.2f} ms an answer"
            )
        return ", ".join(parts)


class _Connection(asyncio.Protocol):
    """A connection that carries one request at a time; the answer is its status, and whether it has Retry-After."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[tuple[int, bool]] | None = None
        self.open = True
        self._head = b""
        self._left = 0
        self._chunked = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def send(self, request: bytes) -> asyncio.Future[tuple[int, bool]]:
        self._head, self._left, self._chunked = b"", 0, False
        self.answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self.answer

    def data_received(self, data: bytes) -> None:
        if self._left > 0:
            self._left -= len(data)
        elif self._chunked:
            self._tail = (self._tail + data)[-len(LAST_CHUNK) :]
        else:
            head, found, body = (self._head + data).partition(HEAD_END)
            self._head = head + found
            if not found:
                return
            self._begin(self._head.lower(), body)
        if self._chunked and self._tail != LAST_CHUNK:
            return
        if self._left <= 0 and self.answer is not None and not self.answer.done():
            head = self._head.lower()
            self.open = b"connection: close" not in head
            self.answer.set_result((int(head[9:12]), b"\r\nretry-after:" in head))

    def _begin(self, head: bytes, body: bytes) -> None:
        _, found, rest = head.partition(b"\r\ncontent-length:")
        self._chunked = not found and b"transfer-encoding" in head
        self._left = int(rest.partition(b"\r\n")[0]) - len(body) if found else 0
        self._tail = body[-len(LAST_CHUNK) :]

    def connection_lost(self, exc: Exception | None) -> None:
        self.open = False
        if self.answer is not None and not self.answer.done():
            self.answer.set_result((LOST, True))

    def close(self) -> None:
        self._transport.close()


class Load:
    """Requests to the server at `url`, whose processes these are, over `CONNECTIONS` at most, as through a proxy."""

    def __init__(self, url: str, processes: Sequence[int]) -> None:
        self.url = url
        self.processes = tuple(processes)
        parts = urlsplit(url)
        self._host, self._port = parts.hostname, parts.port
        self._idle: list[_Connection] = []
        self._free = asyncio.Semaphore(CONNECTIONS)

    async def request(self, request: bytes, outcomes: Outcomes, due: float | None = None) -> None:
        """Send a request, and note what became of it; the time counts from when it was due, else from the call."""
        loop = asyncio.get_running_loop()
        began = loop.time() if due is None else due
        async with self._free:
            connection = await self._connected()
            status, retry_after = await connection.send(request)
            outcomes.note(status, loop.time() - began, retry_after)
            if connection.open:
                self._idle.append(connection)
            else:
                connection.close()

    async def closed(self, clients: int, requests: Sequence[bytes], seconds: float) -> Outcomes:
        """Send requests chosen at random from so many clients for so long."""
        loop, outcomes = asyncio.get_running_loop(), Outcomes()
        began, used = loop.time(), self._cpu()

        async def client(number: int) -> None:
            generator = random.Random(number)
            while loop.time() < began + seconds:
                await self.request(generator.choice(requests), outcomes)

        await asyncio.gather(*(client(number) for number in range(clients)))
        self._end(outcomes, began, used)
        return outcomes

    async def open(self, rate: float, requests: Sequence[bytes], seconds: float, seed: int = 0) -> Outcomes:
        """Send `rate` requests a second, chosen at random, for so long, and wait for the answers."""
        loop, outcomes, generator = asyncio.get_running_loop(), Outcomes(), random.Random(seed)
        began = due = loop.time()
        used = self._cpu()
        tasks: set[asyncio.Task[None]] = set()
        while due < began + seconds:
            await asyncio.sleep(max(0.0, due - loop.time()))
            task = asyncio.create_task(self.request(generator.choice(requests), outcomes, due))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            due += generator.expovariate(rate)
        await asyncio.gather(*tasks)
        self._end(outcomes, began, used)
        return outcomes

    def _end(self, outcomes: Outcomes, began: float, used: tuple[float, float]) -> None:
        """Note the time since a load began, and the CPU used since."""
        outcomes.duration = asyncio.get_running_loop().time() - began
        sender, server = self._cpu()
        outcomes.sender, outcomes.server = sender - used[0], server - used[1]

    def _cpu(self) -> tuple[float, float]:
        """Return the seconds of CPU used so far, here and by the server."""
        return process_time(), sum(cpu_seconds(process) for process in self.processes)

    async def _connected(self) -> _Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.open:
                return connection
        _, made = await asyncio.get_running_loop().create_connection(_Connection, self._host, self._port)
        return made

    def close(self) -> None:
        for connection in self._idle:
            connection.close()


def cpu_seconds(process: int) -> float:
    """Return the seconds of CPU that a process has used, by proc(5)."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def http_request(
    method: str,
    target: str,
    body: bytes = b"",
    *,
    media: str = "application/json",
    user: str = "",
    accept: str = "",
) -> bytes:
    """Return the bytes of a request of a user, whose password is the name."""
    lines = [f"{method} {target} HTTP/1.1", "Host: localhost"]
    if user:
        lines.append("Authorization: Basic " + base64.b64encode(f"{user}:{user}".encode()).decode())
    if accept:
        lines.append(f"Accept: {accept}")
    if body:
        lines += [f"Content-Type: {media}", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + body
