"""Nodes of a cluster as processes, each given the store and the token alone: started, stopped, killed and paused."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass, field

TOKEN = "campaign"
STOP_SECONDS = 30


@dataclass(slots=True)
class NodeProcesses:
    """The processes of one cluster over the store that `flags` name."""

    flags: tuple[str, ...]
    data_nodes: list[asyncio.subprocess.Process] = field(default_factory=list)
    service_nodes: list[asyncio.subprocess.Process] = field(default_factory=list)
    urls: list[str] = field(default_factory=list)
    """The URLs of the service nodes."""
    stopped: list[int] = field(default_factory=list)
    """The exit statuses of the nodes that were told to stop."""

    async def start_data_node(self) -> None:
        process, _ = await self._start("dn")
        self.data_nodes.append(process)

    async def start_service_node(self) -> None:
        process, url = await self._start("sn")
        self.service_nodes.append(process)
        self.urls.append(url)

    async def _start(self, command: str) -> tuple[asyncio.subprocess.Process, str]:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "hsparse.cli.main", command, "--port", "0"),
            *self.flags,
            stdout=asyncio.subprocess.PIPE,
            env={
                **os.environ,
                "HSPARSE_NODE_TOKEN": TOKEN,
                "AWS_ACCESS_KEY_ID": "test",
                "AWS_SECRET_ACCESS_KEY": "test",
            },
        )
        assert process.stdout is not None
        line = (await process.stdout.readline()).decode()
        if " on http" not in line:
            raise RuntimeError(f"hsparse {command} printed {line!r} and ended {await process.wait()}.")
        return process, line.rpartition(" on ")[2].split()[0]

    async def kill(self, process: asyncio.subprocess.Process) -> None:
        """End a data node as kill -9 does, and start another one."""
        self.data_nodes.remove(process)
        process.kill()
        await process.wait()
        await self.start_data_node()

    async def terminate(self, process: asyncio.subprocess.Process) -> None:
        """Start another data node, then end one as SIGTERM does."""
        await self.start_data_node()
        await self.stop(process)

    async def stop(self, process: asyncio.subprocess.Process) -> None:
        """End a data node as SIGTERM does."""
        self.data_nodes.remove(process)
        process.terminate()
        self.stopped.append(await process.wait())

    async def pause(self, process: asyncio.subprocess.Process, seconds: float) -> None:
        """Let a data node stand still, as SIGSTOP does."""
        process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        process.send_signal(signal.SIGCONT)

    async def scale(self, count: int) -> None:
        """Start or stop data nodes until there are `count`."""
        while len(self.data_nodes) < count:
            await self.start_data_node()
        while len(self.data_nodes) > count:
            await self.stop(self.data_nodes[0])

    async def close(self) -> None:
        """End all nodes."""
        for process in (*self.service_nodes, *self.data_nodes):
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
                process.terminate()
        for process in (*self.service_nodes, *self.data_nodes):
            try:
                await asyncio.wait_for(process.wait(), STOP_SECONDS)
            except TimeoutError:
                process.kill()
                await process.wait()
