"""Nodes of a cluster as processes, each given the store and the token alone: started, stopped, killed, paused."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import TextIO

from tests.campaign.node_network import NetworkPlace, NodeNetwork
from tests.support.server_process import start_command

VARIABLES = {
    "HSPARSE_NODE_TOKEN": "campaign",
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
}
PORT = 6101
"""Of a data node in a network of its own."""
DRAIN_SECONDS = 2
"""The `--drain-time` of service nodes: the load balancer looks several times meanwhile."""
STOP_SECONDS = 30


@dataclass(slots=True, eq=False)
class NodeProcess:
    """A node's process, what it prints, its URL and, if it is in a network of its own, its place there."""

    process: ForkServerProcess
    lines: TextIO
    url: str
    place: NetworkPlace | None = None

    def send_signal(self, number: int) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    async def wait(self) -> int:
        """Wait for its end; return its exit status."""
        await asyncio.to_thread(self.process.join)
        self.lines.close()
        assert self.process.exitcode is not None
        return self.process.exitcode


@dataclass(slots=True)
class NodeProcesses:
    """The processes of one cluster over the store that `flags` and `variables` name; they log to the file `log`.

    With a network each data node is in a namespace of it.
    """

    flags: tuple[str, ...]
    log: Path
    network: NodeNetwork | None = None
    variables: dict[str, str] = field(default_factory=dict)
    data_nodes: list[NodeProcess] = field(default_factory=list)
    service_nodes: list[NodeProcess] = field(default_factory=list)
    stopped: list[int] = field(default_factory=list)
    """The exit statuses of the nodes that were told to stop."""

    @property
    def urls(self) -> list[str]:
        """The URLs of the service nodes, those too that are stopping."""
        return [node.url for node in self.service_nodes]

    async def start_data_node(self) -> None:
        if self.network is None:
            self.data_nodes.append(await self._start(("dn", "--port", "0")))
            return
        place = self.network.add()
        url = f"http://{place.address}:{PORT}"
        flags = ("dn", "--host", place.address, "--port", str(PORT), "--advertise", url)
        self.data_nodes.append(await self._start(flags, place))

    async def start_service_node(self) -> None:
        self.service_nodes.append(
            await self._start(("sn", "--port", "0", "--drain-time", str(DRAIN_SECONDS)))
        )

    async def _start(self, arguments: tuple[str, ...], place: NetworkPlace | None = None) -> NodeProcess:
        namespace = "" if place is None else place.path
        process, lines = await asyncio.to_thread(
            start_command, (*arguments, *self.flags), self.log, namespace, VARIABLES | self.variables
        )
        line = await asyncio.to_thread(lines.readline)
        node = NodeProcess(process, lines, line.rpartition(" on ")[2].partition(" ")[0].strip(), place)
        if " on http" not in line:
            raise RuntimeError(f"hsparse {arguments[0]} printed {line!r} and ended {await node.wait()}.")
        return node

    async def kill(self, node: NodeProcess) -> None:
        """End a data node as kill -9 does, and start another one."""
        self.data_nodes.remove(node)
        node.send_signal(signal.SIGKILL)
        await self._ended(node)
        await self.start_data_node()

    async def terminate(self, node: NodeProcess) -> None:
        """Start another data node, then end one as SIGTERM does."""
        await self.start_data_node()
        await self.stop(node)

    async def stop(self, node: NodeProcess) -> None:
        """End a data node as SIGTERM does."""
        self.data_nodes.remove(node)
        node.send_signal(signal.SIGTERM)
        self.stopped.append(await self._ended(node))

    async def upgrade(self) -> None:
        """Replace every node by a new one, one after the other, as a rolling upgrade does."""
        for node in tuple(self.data_nodes):
            await self.terminate(node)
        for node in tuple(self.service_nodes):
            await self.start_service_node()
            node.send_signal(signal.SIGTERM)
            self.stopped.append(await self._ended(node))
            self.service_nodes.remove(node)

    async def pause(self, node: NodeProcess, seconds: float) -> None:
        """Let a data node stand still, as SIGSTOP does."""
        node.send_signal(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        node.send_signal(signal.SIGCONT)

    async def cut(self, node: NodeProcess, kind: str, seconds: float) -> None:
        """Cut a data node off from the other nodes or from the store."""
        assert self.network is not None, "the processes have no network of their own"
        assert node.place is not None
        self.network.cut(node.place, kind)
        await asyncio.sleep(seconds)
        self.network.mend(node.place, kind)

    async def scale(self, count: int) -> None:
        """Start or stop data nodes until there are `count`."""
        while len(self.data_nodes) < count:
            await self.start_data_node()
        while len(self.data_nodes) > count:
            await self.stop(self.data_nodes[0])

    async def close(self) -> None:
        """End all nodes."""
        nodes = (*self.service_nodes, *self.data_nodes)
        for node in nodes:
            with suppress(ProcessLookupError):
                node.send_signal(signal.SIGCONT)
                node.send_signal(signal.SIGTERM)
        for node in nodes:
            await asyncio.to_thread(node.process.join, STOP_SECONDS)
            node.process.kill()
            await self._ended(node)

    async def _ended(self, node: NodeProcess) -> int:
        status = await node.wait()
        if self.network is not None and node.place is not None:
            self.network.remove(node.place)
        return status
