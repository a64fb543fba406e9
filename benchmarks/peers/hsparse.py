"""This project's server, started as a user starts it."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks.child import Child, free_port
from benchmarks.peers.server import Server


def version() -> str:
    """Return the installed version."""
    return importlib.metadata.version("hsparse")


@asynccontextmanager
async def serve(
    work: Path, arguments: Sequence[str] = (), env: Mapping[str, str] | None = None
) -> AsyncIterator[Server]:
    """Start `hsparse serve` over a directory of `work`; stop it at the end."""
    store = work / "hsparse"
    store.mkdir(parents=True)
    port = free_port()
    command = Path(sys.executable).with_name("hsparse")
    argv: list[str | Path] = [command, "serve", "--root", store, "--port", str(port), *arguments]
    server = Server("hsparse", f"http://127.0.0.1:{port}", durable=True, children=[], store=store)
    try:
        server.children.append(await Child.start(argv, work / "hsparse.log", env))
        await server.wait_ready()
        yield server
    finally:
        await server.stop()
