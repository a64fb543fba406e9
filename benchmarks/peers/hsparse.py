"""This project's server, in this revision and an older one, started as users start it."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks.child import Child, free_port
from benchmarks.environment import Environment
from benchmarks.failure import Failed
from benchmarks.peers.server import Server
from benchmarks.report import OLDER, OURS

PROJECT = Path(__file__).resolve().parents[2]
HERE, ELSEWHERE = "127.0.0.1", "127.0.0.2"
"""Two loopback addresses. hsparse's client treats a server at the second one as on another machine."""


def version() -> str:
    """Return the installed version of hsparse."""
    return importlib.metadata.version("hsparse")


def commit(revision: str, project: Path = PROJECT) -> str:
    """Return the commit of a git `revision` in a checkout; raise `Failed` when there is none."""
    argv: list[str | Path] = [
        "git",
        "-C",
        project,
        "rev-parse",
        "--verify",
        "--quiet",
        f"{revision}^{{commit}}",
    ]
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode:
        raise Failed(f"{project} has no revision {revision!r}.")
    return str(done.stdout.strip())


def older_environment(bench: Path, commit: str, project: Path = PROJECT) -> Environment:
    """Return the environment of an older commit; pip ignores the extra if the commit does not have it."""
    source = project.as_uri().replace("file://", "file://localhost", 1)  # pip 23 refuses a URL without a host
    package = f"hsparse[server] @ git+{source}@{commit}"
    return Environment(bench / f"hsparse-{commit[:12]}", (package,))


@asynccontextmanager
async def serve(
    work: Path,
    arguments: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    *,
    python: Path = Path(sys.executable),
    name: str = OURS,
    host: str = HERE,
    store: Sequence[str] = (),
) -> AsyncIterator[Server]:
    """Run the `hsparse serve` beside `python` over a directory in `work`, which may exist, during the context.

    A client treats a server at the host `ELSEWHERE` as on another machine. `store` has flags for another
    store.
    """
    folder = name.replace(" ", "-")
    root = None if store else work / folder
    if root is not None:
        root.mkdir(parents=True, exist_ok=True)
        store = ("--root", str(root))
    port = free_port()
    command = python.with_name("hsparse")
    argv: list[str | Path] = [command, "serve", *store, "--host", host, "--port", str(port), *arguments]
    server = Server(name, f"http://{host}:{port}", durable=True, children=[], store=root)
    try:
        server.children.append(await Child.start(argv, work / f"{folder}.log", env))
        await server.wait_ready()
        yield server
    finally:
        await server.stop()


@asynccontextmanager
async def serve_older(
    bench: Path, commit: str, work: Path, arguments: Sequence[str] = ()
) -> AsyncIterator[Server]:
    """Run the server of an older commit with the same arguments during the context."""
    python = older_environment(bench, commit).python
    env = {"PYTHONPATH": ""}  # the variable may name this revision's checkout
    async with serve(work, arguments, env, python=python, name=OLDER) as server:
        yield server
