"""This project's server, of this revision and of an older one, started as a user starts it."""

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
"""Addresses of this machine: the first one is known to be its own."""


def version() -> str:
    """Return the installed version."""
    return importlib.metadata.version("hsparse")


def commit(revision: str, project: Path = PROJECT) -> str:
    """Return the commit that git knows as `revision` in a checkout; `Failed` when there is none."""
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
    """Return the environment of an older commit; pip takes no notice of the extra where it is not known yet."""
    source = project.as_uri().replace("file://", "file://localhost", 1)  # pip 23 takes no URL without a host
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
    """Start the `hsparse serve` beside `python` over a directory of `work`, which may be there; stop it at the end.

    To the client a server at the host `ELSEWHERE` is one of another machine. `store` names another store by its flags.
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
    """Start the server of an older commit with the same arguments; stop it at the end."""
    python = older_environment(bench, commit).python
    env = {"PYTHONPATH": ""}  # which may name this revision's checkout
    async with serve(work, arguments, env, python=python, name=OLDER) as server:
        yield server
