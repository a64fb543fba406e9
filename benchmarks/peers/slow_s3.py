"""hsparse over an S3 server in a separate process, which has the latency of a real one."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from benchmarks.child import Child, free_port
from benchmarks.peers import hsparse
from benchmarks.peers.server import Server
from benchmarks.peers.slow_s3_server import BUCKET, COUNTS

KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}


@dataclass(frozen=True, slots=True)
class SlowS3:
    """The running S3 server at `url`, and hsparse that stores in it."""

    url: str
    hsparse: Server

    async def puts(self) -> int:
        """Return the number of puts so far."""
        async with aiohttp.ClientSession(self.url) as session, session.get(COUNTS) as answer:
            return int((await answer.json(content_type=None)).get("PUT", 0))


@asynccontextmanager
async def serve_from_s3(work: Path, arguments: tuple[str, ...] = ()) -> AsyncIterator[SlowS3]:
    """Run both servers during the context."""
    port = free_port()
    argv = [sys.executable, "-m", "benchmarks.peers.slow_s3_server", str(port)]
    child = await Child.start(argv, work / "s3.log", {"PYTHONPATH": str(hsparse.PROJECT)})
    try:
        url = f"http://127.0.0.1:{port}"
        await _has_bucket(child, url)
        store = ("--bucket", BUCKET, "--s3-endpoint", url)
        async with hsparse.serve(work, arguments, KEYS, store=store) as server:
            yield SlowS3(url, server)
    finally:
        await child.stop()


async def _has_bucket(child: Child, url: str) -> None:
    """Wait until the server has its bucket; raise `ChildFailed` if it ends before."""
    async with aiohttp.ClientSession(url) as session:
        while True:
            child.check()
            with suppress(aiohttp.ClientConnectionError):
                async with session.head(f"/{BUCKET}") as answer:
                    if answer.ok:
                        return
            await asyncio.sleep(0.1)
