"""Tiled: its own server over a directory of HDF5 files, in an environment of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from benchmarks.child import Child, ChildFailed, free_port
from benchmarks.environment import Environment
from benchmarks.peers.server import Server

VERSION = "0.2.20"
TIMEOUT = 90.0


def environment(bench: Path) -> Environment:
    """Return Tiled's environment, with the packages of its adapter of HDF5 files."""
    return Environment(bench / "tiled", (f"tiled[server,client]=={VERSION}", "h5py"))


@asynccontextmanager
async def serve(bench: Path, work: Path, folder: Path) -> AsyncIterator[Server]:
    """Serve the files of `folder` without authentication; enter the context when the server answers."""
    port = free_port()
    python = environment(bench).python
    server = Server("Tiled", f"http://127.0.0.1:{port}", durable=True, children=[])
    argv: list[str | Path] = [
        python.with_name("tiled"),
        "serve",
        "directory",
        "--public",
        "--port",
        str(port),
    ]
    try:
        server.children.append(await Child.start([*argv, folder], work / "tiled.log"))
        await _answered(server)
        yield server
    finally:
        await server.stop()


async def _answered(server: Server) -> None:
    deadline = time.monotonic() + TIMEOUT
    async with aiohttp.ClientSession(server.base) as session:
        while time.monotonic() < deadline:
            server.children[0].check()
            try:
                async with session.get("/api/v1/") as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientConnectionError:
                pass
            await asyncio.sleep(0.2)
    raise ChildFailed(f"Tiled was not ready after {TIMEOUT:.0f} s: {server.children[0].tail()}")
