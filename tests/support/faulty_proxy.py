"""Proxies that lose, delay, cut and repeat what they pass on."""

from __future__ import annotations

import asyncio
import random
import re
import socket
import struct
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import BinaryIO
from urllib.parse import urlsplit


@dataclass(slots=True, eq=False)
class Loss:
    """What happens to the next request of `method`.

    It is forwarded, unless `forward` is False; a `late` one when `release` is called, after the client has
    lost its connection. Then `after` is awaited, and the client gets `answer` (bytes of a reply) or the
    reply, of which only the first `keep` bytes, and the connection is closed. One that `hang`s waits for
    `release` before all that, another one `delay` seconds. One that is sent `twice` is forwarded again when its
    reply has come, and the second reply is taken: some proxies do so when they lose the first one. `met` is set
    when the request has come, `done` when it has been forwarded.
    """

    method: str
    forward: bool = True
    late: bool = False
    hang: bool = False
    delay: float = 0.0
    twice: bool = False
    keep: int | None = None
    answer: bytes | None = None
    after: Callable[[], Awaitable[object]] | None = None
    met: asyncio.Event = field(default_factory=asyncio.Event)
    released: asyncio.Event = field(default_factory=asyncio.Event)
    done: asyncio.Event = field(default_factory=asyncio.Event)

    async def release(self) -> None:
        """Let a late request go on, and wait until the server has answered it."""
        self.released.set()
        await self.done.wait()


def error_reply(status: int, code: str) -> bytes:
    """Return an S3 error reply."""
    body = f"<Error><Code>{code}</Code><Message>scripted</Message></Error>".encode()
    head = f"HTTP/1.1 {status} scripted\r\ncontent-type: application/xml\r\nconnection: close\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


@dataclass(frozen=True, slots=True)
class Weather:
    """Draws losses: the part of the requests that are delayed, lost, answered without the reply, or sent twice."""

    generator: random.Random
    delayed: float = 0.05
    longest_delay: float = 0.1
    """Seconds."""
    lost: float = 0.005
    unanswered: float = 0.005
    twice: float = 0.01

    def __call__(self, method: str) -> Loss:
        draw = self.generator.random
        delay = self.longest_delay * draw() if draw() < self.delayed else 0.0
        if draw() < self.lost:
            return Loss(method, forward=False, delay=delay, keep=0)
        return Loss(
            method, delay=delay, twice=draw() < self.twice, keep=0 if draw() < self.unanswered else None
        )


class FaultyProxy:
    """A proxy before the server at `upstream`; `script` has what it does to requests, in order.

    To a request that the script has nothing about it does what `draw` returns. `requests` lists what came, as
    `"PUT /bucket/key"`; one connection serves one request.
    """

    def __init__(self, upstream: str, draw: Callable[[str], Loss] = Loss) -> None:
        self.draw = draw
        self.script: list[Loss] = []
        self.requests: list[str] = []
        self.url = ""
        address = urlsplit(upstream)
        self._upstream = (address.hostname or "", address.port or 80)
        self._tasks: set[asyncio.Task[None]] = set()

    def lose(self, loss: Loss) -> Loss:
        """Add a line to the script and return it."""
        self.script.append(loss)
        return loss

    def methods(self) -> list[str]:
        """Return the methods of the requests that came."""
        return [request.split()[0] for request in self.requests]

    @asynccontextmanager
    async def serving(self, host: str = "127.0.0.1") -> AsyncIterator[FaultyProxy]:
        """Serve for the duration of the context."""
        server = await asyncio.start_server(self._accept, host, 0)
        host, port = server.sockets[0].getsockname()
        self.url = f"http://{host}:{port}"
        try:
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._serve(reader, writer)
        except asyncio.CancelledError:
            return  # the proxy closes while the request hangs
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await self._read(reader, writer)
        loss = self._next(request)
        loss.met.set()
        if loss.hang:
            await loss.released.wait()
        if loss.late:
            writer.close()
            await loss.released.wait()
        if loss.delay:
            await asyncio.sleep(loss.delay)
        reply = await self._forward(request) if loss.forward else b""
        if loss.twice:
            reply = await self._forward(request)
        loss.done.set()
        if loss.after is not None:
            await loss.after()
        reply = reply if loss.answer is None else loss.answer
        if not loss.late:
            writer.write(reply if loss.keep is None else reply[: loss.keep])
            await writer.drain()

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        """Return a whole request, with `Connection: close` in place of its own connection headers."""
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[:-2]
        method, target, _ = first.decode().split(" ")
        self.requests.append(f"{method} {target}")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)}
        if headers.pop(b"expect", None) is not None:
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        headers[b"connection"] = b"close"
        body = await reader.readexactly(int(headers.get(b"content-length", b"0")))
        return b"\r\n".join([first, *(b"%b: %b" % item for item in headers.items()), b"", body])

    def _next(self, request: bytes) -> Loss:
        method = request.split(b" ", 1)[0].decode()
        for loss in self.script:
            if loss.method == method:
                self.script.remove(loss)
                return loss
        return self.draw(method)

    async def _forward(self, request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection(*self._upstream)
        try:
            writer.write(request)
            return await reader.read()
        finally:
            writer.close()
            await writer.wait_closed()


PAGE = b"<html><body>something else</body></html>"
STATUSES = {
    "301": "301 Moved Permanently\r\nLocation: https://elsewhere.example.org/",
    "401": "401 Unauthorized",
    "403": "403 Forbidden",
    "404": "404 Not Found",
    "200": "200 OK",
    "204": "204 No Content",
    "429": "429 Too Many Requests\r\nRetry-After: 0",
    "500": "500 Internal Server Error",
    "502": "502 Bad Gateway",
    "503": "503 Service Unavailable\r\nRetry-After: 0",
    "504": "504 Gateway Timeout",
    "520": "520 Web Server Returned an Unknown Error",
}
"""The answers of a proxy itself; all have a page in HTML."""
BROKEN = ("cut", "reset", "stall", "slow")
FAULTS = (*BROKEN, *STATUSES)
PASSING = (*BROKEN, "429", "500", "502", "503", "504", "520")
"""The faults after which a request that only reads is sent again."""


@dataclass
class FaultyServer:
    """The URL of the proxy, and its fault: the `fault` is done to request number `at`, once.

    With `passed_on` the server has carried the request out. `requests` are the lines of what came since `set`.
    """

    url: str
    requests: list[str] = field(default_factory=list)
    fault: str = ""
    at: int = 0
    passed_on: bool = True
    met: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)
    released: threading.Event = field(default_factory=threading.Event)

    def set(self, fault: str = "", at: int = 0, *, passed_on: bool = True) -> None:
        """Do a fault to the request number `at` from now on, or none."""
        self.released.set()  # the one before stalls no more
        with self.lock:
            self.requests.clear()
            self.fault, self.at, self.passed_on, self.met = fault, at, passed_on, False
            self.released = threading.Event()

    def next(self, line: str) -> str:
        """Return what is done to a request."""
        with self.lock:
            self.requests.append(line)
            if self.met or len(self.requests) <= self.at:
                return ""
            self.met = bool(self.fault)
            return self.fault


@contextmanager
def proxy_with_faults(upstream: str) -> Iterator[FaultyServer]:
    """Serve while the context lasts; a connection serves one request."""
    parts = urlsplit(upstream)
    place = parts.hostname or "", parts.port or 80
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        server = FaultyServer(f"http://127.0.0.1:{listener.getsockname()[1]}")
        thread = threading.Thread(target=_accept, args=(listener, place, server), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.released.set()
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def _accept(listener: socket.socket, place: tuple[str, int], server: FaultyServer) -> None:
    while True:
        try:
            peer, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_serve, args=(peer, place, server), daemon=True).start()


def _serve(peer: socket.socket, place: tuple[str, int], server: FaultyServer) -> None:
    with peer, peer.makefile("rb") as reader, suppress(OSError):
        head, body = _request(reader)
        if not head:
            return
        fault, released = server.next(head.split(b"\r\n", 1)[0].decode().rsplit(" ", 1)[0]), server.released
        answer = _forwarded(place, head, body) if server.passed_on or fault in ("", *BROKEN) else b""
        _answer(peer, fault, answer, head.startswith(b"HEAD "), released)


def _answer(peer: socket.socket, fault: str, answer: bytes, is_head: bool, released: threading.Event) -> None:
    if fault == "stall":
        peer.sendall(answer[: len(answer) // 2])
        released.wait()
    elif fault == "reset":
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    elif fault == "cut":
        start = answer.index(b"\r\n\r\n") + 4
        peer.sendall(
            answer[: start + (len(answer) - start) // 2] if len(answer) > start else answer[: start - 3]
        )
    elif fault == "slow":
        for at in range(0, len(answer), len(answer) // 3 + 1):
            peer.sendall(answer[at : at + len(answer) // 3 + 1])
    elif fault:
        body = b"" if fault == "204" else PAGE
        about = "" if fault == "204" else f"Content-Type: text/html\r\nContent-Length: {len(body)}\r\n"
        own = f"HTTP/1.1 {STATUSES[fault]}\r\n{about}Connection: close\r\n\r\n"
        peer.sendall(own.encode() + (b"" if is_head else body))
    else:
        peer.sendall(answer)


def _request(reader: BinaryIO) -> tuple[bytes, bytes]:
    """Return the head of a request, with `Connection: close` in it, and its body."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        line = reader.readline()
        if not line:
            return b"", b""
        if not line.lower().startswith(b"connection:"):
            head += line
    length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
    return head[:-2] + b"Connection: close\r\n\r\n", reader.read(int(length[1])) if length else b""


def _forwarded(place: tuple[str, int], head: bytes, body: bytes) -> bytes:
    with socket.create_connection(place) as upstream:
        upstream.sendall(head + body)
        pieces = []
        while piece := upstream.recv(1 << 16):
            pieces.append(piece)
    return b"".join(pieces)
