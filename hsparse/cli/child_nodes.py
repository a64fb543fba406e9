"""Data nodes as child processes of `hsparse serve --dn N`, restarted when they die.

Tests: tests/cli/test_serve.py.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from hsparse.cluster.membership import node_ids
from hsparse.config import Settings, child_environment
from hsparse.setting import declared_settings

log = logging.getLogger(__name__)

GRACE_SECONDS = 8.0


@dataclass(slots=True)
class ChildNode:
    """The process of one data node. The parent owns its socket, so that connections wait during a restart."""

    id: str
    listener: socket.socket
    process: asyncio.subprocess.Process | None = None
    restarts: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}"


@dataclass(slots=True)
class ChildNodes:
    """The processes of all data nodes."""

    settings: Settings
    token: str
    children: list[ChildNode]
    stopping: bool = False
    watchers: list[asyncio.Task[None]] = field(default_factory=list)

    @property
    def urls(self) -> tuple[str, ...]:
        return tuple(child.url for child in self.children)

    async def start(self, child: ChildNode) -> None:
        """Start a data node. It ends when its standard input closes, however this process ends."""
        child.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "hsparse.cli.main", "dn", "--node-id", child.id),
            *("--nodes", ",".join(self.urls), "--listen-fd", str(child.listener.fileno())),
            *_inherited_flags(self.settings),
            stdin=asyncio.subprocess.PIPE,
            pass_fds=[child.listener.fileno()],
            env=child_environment(self.token),
        )

    async def watch(self, child: ChildNode) -> None:
        """Restart a child that ends before `stop`."""
        while True:
            assert child.process is not None
            status = await child.process.wait()
            if self.stopping:
                return
            child.restarts += 1
            log.error("data node %s ended with status %s; starting it again", child.id, status)
            await self.start(child)

    async def stop(self) -> None:
        """End every child after its accepted requests."""
        self.stopping = True
        processes = [child.process for child in self.children if child.process is not None]
        for process in processes:
            if process.stdin is not None:
                process.stdin.close()
        done = asyncio.gather(*(process.wait() for process in processes))
        try:
            await asyncio.wait_for(done, GRACE_SECONDS)
        except TimeoutError:
            for process in processes:
                if process.returncode is None:
                    process.kill()
        await asyncio.gather(*self.watchers)
        for child in self.children:
            child.listener.close()


@asynccontextmanager
async def child_nodes(settings: Settings, token: str) -> AsyncIterator[ChildNodes]:
    """Run `--dn` data nodes while the context lasts."""
    children = [ChildNode(id, _listener()) for id in node_ids(settings.cluster.dn)]
    nodes = ChildNodes(settings, token, children)
    try:
        for child in children:
            await nodes.start(child)
            nodes.watchers.append(asyncio.create_task(nodes.watch(child)))
        yield nodes
    finally:
        await nodes.stop()


def _listener() -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", 0))
    listener.listen(1024)
    return listener


def _inherited_flags(settings: Settings) -> list[str]:
    """Return the flags that give a data node the store, the limits and the log of this process."""
    server = settings.server
    flags = ["--log-level", server.log_level, "--log-format", server.log_format]
    flags += ["--slow-request", str(server.slow_request)]
    for section in (settings.store, settings.data):
        for name, one in declared_settings(type(section)).items():
            flags += _flag(one.flag, getattr(section, name))
    return flags


def _flag(flag: str, value: object) -> list[str]:
    if value is None:
        return []
    if isinstance(value, bool):
        return [flag if value else flag.replace("--", "--no-", 1)]
    if isinstance(value, tuple):
        return [part for item in value for part in (flag, str(item))]
    return [flag, str(value)]
