"""Connections to the members of a cluster, by their ids: made when they are used, closed when a member is gone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias, TypeVar

from hsparse.errors import Misdirected
from hsparse.wire.message import DataNode, Message

R = TypeVar("R")

Connect: TypeAlias = Callable[[str], DataNode]
"""Connects to the node at a URL."""


class MemberConnections:
    """Connections to the members of the newest membership, made by `connect` from their URLs."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._urls: Mapping[str, str] = {}
        self._nodes: dict[str, DataNode] = {}

    async def follow(self, urls: Mapping[str, str]) -> None:
        """Let the members be those with `urls`, by their ids; close the connections to others."""
        self._urls = urls
        gone = [self._nodes.pop(id) for id in self._nodes.keys() - urls.keys()]
        for node in gone:  # which takes a moment, and others may call this meanwhile
            await node.close()

    async def send(self, id: str, message: Message[R]) -> R:
        """Send a message to a member; `Misdirected` for a node that is none any more, `Unanswered` without a reply."""
        node = self._nodes.get(id)
        if node is None:
            if id not in self._urls:
                raise Misdirected(f"{id} is no member of the cluster.")
            node = self._nodes[id] = self._connect(self._urls[id])
        return await node.send(message)

    async def close(self) -> None:
        """Close all connections; later messages make none."""
        await self.follow({})
