"""A service node and data nodes in this process over a store in memory; messages and store requests are counted."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import urlencode

from aiohttp import web

from benchmarks.failure import Failed
from hsparse.cli.service_node import make_service, service_parts
from hsparse.clock import SystemClock
from hsparse.config import load_settings
from hsparse.dn.service import DataService
from hsparse.sn.app import create_app
from hsparse.sn.data_nodes.owners import FixedNodes, Owners
from hsparse.sn.server import AppRunner
from hsparse.wire.message import DataNode, Message, message_name
from tests.testing.memory_store import MemoryStore
from tests.testing.store_wrapper import CountingStore

R = TypeVar("R")

KINDS = {"get": "get", "get_range": "get", "delete": "delete", "delete_if_match": "delete", "list": "list"}
"""The kinds of store requests, as S3 bills them; methods not listed are puts."""
BINARY = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class Request:
    """A request; a body that is not bytes is sent as JSON."""

    method: str
    path: str
    body: Any = None
    params: dict[str, Any] = field(default_factory=dict)
    accept: str = "application/json"
    domain: str = "/scaling"

    def encoded(self, host: str) -> bytes:
        """Return the request as HTTP bytes."""
        is_json = self.body is not None and not isinstance(self.body, bytes)
        body = json.dumps(self.body).encode() if is_json else self.body or b""
        target = f"{self.path}?{urlencode({'domain': self.domain, **self.params})}"
        kind = "application/json" if is_json else BINARY
        head = (
            f"{self.method} {target} HTTP/1.1\r\nHost: {host}\r\nAccept: {self.accept}\r\n"
            f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + bytes(body)


class CountingNode:
    """A `DataNode` that counts its messages by their types."""

    def __init__(self, node: DataNode, messages: Counter[str]) -> None:
        self._node = node
        self._messages = messages

    async def send(self, message: Message[R], /) -> R:
        """Count the message and pass it on."""
        self._messages[message_name(message)] += 1
        return await self._node.send(message)

    async def close(self) -> None:
        """Close the wrapped node."""
        await self._node.close()


class Installation:
    """A server with `nodes` data nodes. A restart keeps the store. `store` and `messages` count since `reset`."""

    def __init__(self, nodes: int = 1) -> None:
        self.memory = MemoryStore()
        self.store = CountingStore(self.memory)
        self.messages: Counter[str] = Counter()
        self._count = nodes
        self._nodes: list[CountingNode] = []
        self._runner: AppRunner | None = None
        self._host = ""
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def __aenter__(self) -> Installation:
        await self._start()
        await self.ask(Request("PUT", "/"))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop()

    async def restart(self) -> None:
        """Restart the nodes with empty caches."""
        await self._stop()
        await self._start()

    def reset(self) -> None:
        """Set all counts to zero."""
        self.store.reset()
        self.messages.clear()

    @property
    def requests(self) -> Counter[str]:
        """The requests to the store since `reset`, by kind: get, put, delete, list."""
        found: Counter[str] = Counter()
        for call, count in self.store.calls.items():
            found[KINDS.get(call, "put")] += count
        return found

    async def ask(self, request: Request) -> Any:
        """Send a request; return the answer's JSON value or bytes; raise `Failed` unless the status is 200 or 201."""
        body = await self.exchange(request.encoded(self._host))
        return json.loads(body) if request.accept != BINARY and body[:1] in b"{[" else body

    async def exchange(self, request: bytes) -> bytes:
        """Send the bytes of a request over the one connection; return the answer's body."""
        assert self._streams is not None
        reader, writer = self._streams
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        if b"\r\ntransfer-encoding: chunked" in head:
            body = await _chunked(reader)
        else:
            length = head.partition(b"\r\ncontent-length: ")[2].partition(b"\r\n")[0]
            body = await reader.readexactly(int(length or 0))
        if not head.startswith((b"http/1.1 200", b"http/1.1 201")):
            raise Failed(f"{request[:200]!r} was answered {head[:40]!r}: {body[:300]!r}")
        return body

    def encoded(self, request: Request) -> bytes:
        """Return the bytes of a request to this server."""
        return request.encoded(self._host)

    async def _start(self) -> None:
        clock = SystemClock()
        names = [f"dn-{number}" for number in range(self._count)]
        self._nodes = [CountingNode(DataService(self.store, clock, id=id), self.messages) for id in names]
        owners = Owners(FixedNodes(dict(zip(names, self._nodes, strict=True))))
        settings = load_settings()
        settings = replace(settings, service=replace(settings.service, min_chunk_size=1))
        parts = service_parts(settings)
        service = make_service(settings, owners, (self.memory.name,), parts)
        self._runner = AppRunner(create_app(service, parts=parts))
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        self._host = f"{host}:{port}"
        self._streams = await asyncio.open_connection(host, port, limit=2**24)

    async def _stop(self) -> None:
        assert self._streams is not None
        assert self._runner is not None
        self._streams[1].close()
        await self._streams[1].wait_closed()
        await self._runner.cleanup()
        for node in self._nodes:
            await node.close()


async def _chunked(reader: asyncio.StreamReader) -> bytes:
    """Read a body in the transfer coding `chunked`."""
    pieces = []
    while size := int(await reader.readuntil(b"\r\n"), 16):
        pieces.append(await reader.readexactly(size))
        await reader.readexactly(2)
    await reader.readexactly(2)
    return b"".join(pieces)
