"""What stands before service nodes: it sends requests to those that are ready, over connections that it keeps.

It looks at `/readyz` now and then, as load balancers do. A request whose connection was refused goes to another node,
because nothing of it was sent; all else that fails is the client's to repeat.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from tests.support.driver import NotDone
from tests.support.rest_client import RemoteRest, Reply

PERIOD = 0.25
"""Seconds between two looks."""
READY_SECONDS = 30.0
"""The most seconds until a service node is ready: it looks for data nodes once a second."""


class LoadBalancer:
    """Requests about `domain` to the nodes that `urls` returns, in turn."""

    def __init__(self, urls: Callable[[], list[str]], domain: str) -> None:
        self._urls = urls
        self._domain = domain
        self._rests: dict[str, RemoteRest] = {}
        self.found = asyncio.Event()
        """Set once a node is ready."""
        self._ready: list[str] = []
        self._turns = itertools.count()
        self.refused = 0

    async def __call__(self, method: str, path: str, body: Any = None, **options: Any) -> Reply:
        """Send a request to a node that is ready; raises as `RemoteRest`."""
        tried: set[str] = set()
        while True:
            nodes = [url for url in self._ready if url not in tried]
            if not nodes:
                raise NotDone("No service node is ready.")
            url = nodes[next(self._turns) % len(nodes)]
            try:
                return await self._rests[url](method, path, body, **options)
            except NotDone as error:
                if not isinstance(error.__cause__, aiohttp.ClientConnectorError):
                    raise
                self.refused += 1
                tried.add(url)

    async def look(self) -> None:
        """Find out which nodes are ready."""
        urls = self._urls()
        for url in urls:
            if url not in self._rests:
                self._rests[url] = RemoteRest(url)
                self._rests[url].domain = self._domain
        found = await asyncio.gather(*(self._is_ready(url) for url in urls))
        self._ready = [url for url, ready in zip(urls, found, strict=True) if ready]
        if self._ready:
            self.found.set()

    async def _is_ready(self, url: str) -> bool:
        try:
            reply = await self._rests[url]("GET", "/readyz")
        except (NotDone, TimeoutError):
            return False
        return reply.status == 200

    async def go_on(self) -> None:
        """Look again and again."""
        while True:
            await self.look()
            await asyncio.sleep(PERIOD)

    async def close(self) -> None:
        for rest in self._rests.values():
            await rest.close()


@asynccontextmanager
async def load_balancer(urls: Callable[[], list[str]], domain: str) -> AsyncIterator[LoadBalancer]:
    """Hold a load balancer that looks at its nodes while the context lasts."""
    made = LoadBalancer(urls, domain)
    looking = asyncio.create_task(made.go_on())
    try:
        async with asyncio.timeout(READY_SECONDS):
            await made.found.wait()
        yield made
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
        await made.close()
