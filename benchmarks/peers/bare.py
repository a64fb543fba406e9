"""A bare aiohttp handler in a separate process: no server written with aiohttp can be faster."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks.child import Child, free_port
from benchmarks.peers.server import Server


@asynccontextmanager
async def serve(work: Path) -> AsyncIterator[Server]:
    """Run the handler during the context. It stores nothing, and serves the files of `work`."""
    port = free_port()
    server = Server("bare", f"http://127.0.0.1:{port}", durable=False, children=[])
    try:
        script = Path(__file__).with_name("bare_server.py")
        server.children.append(
            await Child.start([sys.executable, "-P", script, str(port)], work / "bare.log")
        )
        await server.wait_ready()
        yield server
    finally:
        await server.stop()
