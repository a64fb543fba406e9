"""Connections follow the membership: made once, on use, and closed when their member is gone."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from hsparse.errors import Misdirected
from hsparse.wire.message import GetInfo, Message
from hsparse.wire.remote_node import MemberConnections


@dataclass(slots=True)
class Node:
    url: str
    closed: bool = False

    async def send(self, message: Message[Any], /) -> Any:
        assert not self.closed
        return self.url

    async def close(self) -> None:
        assert not self.closed
        self.closed = True
        await asyncio.sleep(0)


@dataclass(slots=True)
class Network:
    made: list[Node] = field(default_factory=list)

    def connect(self, url: str) -> Node:
        self.made.append(Node(url))
        return self.made[-1]


async def test_a_connection_is_made_once_and_on_use() -> None:
    network = Network()
    connections = MemberConnections(network.connect)
    await connections.follow({"a": "http://a", "b": "http://b"})
    for _ in range(2):
        assert await connections.send("a", GetInfo()) == "http://a"
    assert [node.url for node in network.made] == ["http://a"]


async def test_members_may_be_followed_by_many_at_once() -> None:
    network = Network()
    connections = MemberConnections(network.connect)
    urls = {name: f"http://{name}" for name in "abc"}
    await connections.follow(urls)
    for name in urls:
        await connections.send(name, GetInfo())
    await asyncio.gather(*(connections.follow({}) for _ in range(3)))
    assert all(node.closed for node in network.made)


async def test_a_member_that_is_gone_is_disconnected_and_never_connected_again() -> None:
    network = Network()
    connections = MemberConnections(network.connect)
    with pytest.raises(Misdirected):
        await connections.send("a", GetInfo())
    await connections.follow({"a": "http://a", "b": "http://b"})
    await connections.send("a", GetInfo())
    await connections.send("b", GetInfo())
    await connections.follow({"b": "http://b"})
    assert [node.closed for node in network.made] == [True, False]
    with pytest.raises(Misdirected):
        await connections.send("a", GetInfo())
    await connections.close()
    assert all(node.closed for node in network.made)
    with pytest.raises(Misdirected):
        await connections.send("b", GetInfo())
    assert len(network.made) == 2
