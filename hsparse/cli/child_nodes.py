"""Data nodes as child processes of `hsparse serve --dn N`, restarted when they exit."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from hsparse.config import Settings, child_environment
from hsparse.setting import declared_settings

log = logging.getLogger(__name__)

GRACE_SECONDS = 8.0


@dataclass(slots=True)
class ChildNodes:
    """The data nodes that run as child processes."""

    settings: Settings
    token: str
    processes: list[asyncio.subprocess.Process] = field(default_factory=list)
    stopping: bool = False
    watchers: list[asyncio.Task[None]] = field(default_factory=list)

    async def start(self) -> asyncio.subprocess.Process:
        """Start a data node. The node exits when its standard input closes, even because this process is killed."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "hsparse.cli.main", "dn", "--with-parent", "--port", "0"),
            *inherited_flags(self.settings),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            env=child_environment(self.token),
        )
        self.processes.append(process)
        return process

    async def watch(self, process: asyncio.subprocess.Process) -> None:
        """Start a new data node whenever the running one exits; return after `stop` was called."""
        while True:
            status = await process.wait()
            self.processes.remove(process)
            if self.stopping:
                return
            log.error("a data node exited with status %s; starting another data node", status)
            process = await self.start()

    async def stop(self) -> None:
        """Tell all data nodes to finish their accepted requests and exit; kill nodes that run after `GRACE_SECONDS`."""
        self.stopping = True
        running = list(self.processes)
        for process in running:
            if process.stdin is not None:
                process.stdin.close()
        done = asyncio.gather(*(process.wait() for process in running))
        try:
            await asyncio.wait_for(done, GRACE_SECONDS)
        except TimeoutError:
            for process in running:
                if process.returncode is None:
                    process.kill()
        await asyncio.gather(*self.watchers)


@asynccontextmanager
async def child_nodes(settings: Settings, token: str) -> AsyncIterator[ChildNodes]:
    """Run `--dn` data nodes while the context lasts."""
    nodes = ChildNodes(settings, token)
    try:
        for _ in range(settings.cluster.dn):
            nodes.watchers.append(asyncio.create_task(nodes.watch(await nodes.start())))
        yield nodes
    finally:
        await nodes.stop()


def inherited_flags(settings: Settings) -> list[str]:
    """Return the flags of a data node: the store, log and lease of this process, and a share of its memory limits."""
    server = settings.server
    flags = ["--log-level", server.log_level, "--log-format", server.log_format]
    flags += ["--slow-request", str(server.slow_request), "--lease", str(settings.cluster.lease)]
    data, count = settings.data, settings.cluster.dn
    data = replace(data, cache_size=data.cache_bytes(count), chunk_memory=data.chunk_bytes(count))
    for section in (settings.store, data, *settings.added.values()):
        for name, one in declared_settings(type(section)).items():
            if one.commands is None or "dn" in one.commands:
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
