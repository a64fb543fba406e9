"""A cluster in this process: members over one store, each behind a link that can be cut, and service nodes' owners."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from hsparse.clock import SystemClock
from hsparse.cluster.membership_object import MembershipObject
from hsparse.dn.membership.member_node import MemberNode
from hsparse.dn.membership.ownership import Ownership
from hsparse.dn.service import DataService
from hsparse.errors import Unanswered, Unauthenticated
from hsparse.model.schema import Schema
from hsparse.sn.data_nodes.cluster_nodes import ClusterNodes
from hsparse.sn.data_nodes.owners import FixedNodes, Owners
from hsparse.storage.object_store import ObjectStore
from hsparse.wire.codec import MESSAGE_VERSION, check_version
from hsparse.wire.message import Message
from tests.testing.faulty_store import CrashingStore
from tests.testing.memory_store import MemoryStore

R = TypeVar("R")

TOKEN = "secret"
LEASE = 0.2


@dataclass(slots=True)
class Link:
    """`DataNode` of the member at a URL, as `sender` reaches it."""

    cluster: Cluster
    sender: str
    url: str

    async def send(self, message: Message[R], /) -> R:
        if (self.sender, self.url) in self.cluster.hung:
            await asyncio.Event().wait()
        member = self.cluster.members.get(self.url)
        if member is None or (self.sender, self.url) in self.cluster.cut:
            raise Unanswered(f"{self.url} does not answer.")
        if self.cluster.token(self.sender) != self.cluster.token(self.url):
            raise Unauthenticated(f"{self.url} has another token.")
        check_version(self.cluster.version(self.sender), self.cluster.version(self.url))
        reply: R = await member.send(message)
        if self.url not in self.cluster.members or (self.sender, self.url) in self.cluster.cut:
            raise Unanswered(f"{self.url} does not answer any more.")
        return reply

    async def close(self) -> None:
        """Nothing to do."""


@dataclass(slots=True)
class Cluster:
    """Members by their URLs; `cut` has pairs of a sender and the URL that it does not reach.

    Of those in `hung` it is not told that: nothing answers.
    """

    store: ObjectStore = field(default_factory=MemoryStore)
    members: dict[str, MemberNode] = field(default_factory=dict)
    stores: dict[str, CrashingStore] = field(default_factory=dict)
    cut: set[tuple[str, str]] = field(default_factory=set)
    hung: set[tuple[str, str]] = field(default_factory=set)
    started: int = 0
    dead: list[MemberNode] = field(default_factory=list)
    versions: dict[str, int] = field(default_factory=dict)
    """The versions of the messages of nodes, by URL or as senders, that speak another one."""
    tokens: dict[str, str] = field(default_factory=dict)
    """The tokens of nodes, by URL or as senders, that have another one."""
    extended: Callable[[ObjectStore, Ownership], tuple[ObjectStore, Ownership]] = lambda store, ownership: (
        store,
        ownership,
    )
    """Returns the store and the ownership of a node as extensions wrap them."""

    def token(self, node: str) -> str:
        """Return a node's token."""
        return self.tokens.get(node, TOKEN)

    def version(self, node: str) -> int:
        """Return the version of the messages that a node speaks."""
        return self.versions.get(node, MESSAGE_VERSION)

    def make(
        self,
        url: str,
        token: str = TOKEN,
        *,
        server: bool = False,
        buckets: Sequence[str] = (),
        schema: Callable[[], Awaitable[Schema]] | None = None,
        version: int = MESSAGE_VERSION,
    ) -> MemberNode:
        """Return a data node that has not joined."""
        self.versions[url] = version
        store = self.stores[url] = CrashingStore(self.store)
        if token not in ("", TOKEN):
            self.tokens[url] = token
        clock = SystemClock()

        def make(ownership: Ownership) -> DataService:
            extended, wrapped = self.extended(store, ownership)
            return DataService(extended, clock, ownership=wrapped)

        return MemberNode(
            make,
            store,
            clock,
            token,
            lambda other: Link(self, url, other),
            LEASE / 2,
            server=server,
            version=version,
            buckets=buckets,
            schema=schema,
        )

    async def start(self, *, buckets: Sequence[str] = ()) -> str:
        """Start a data node, which serves more `buckets`; return its URL once it owns something."""
        self.started += 1
        url = f"http://node-{self.started}"
        member = self.members[url] = self.make(url, buckets=buckets)
        await member.join(url)
        await self.in_force(url)
        return url

    async def serve(self) -> str:
        """Start a whole server; return its name once it is in force."""
        self.started += 1
        name = f"serve-{self.started}"
        member = self.members[name] = self.make(name, "", server=True)
        await member.join()
        await self.in_force(name)
        return name

    def server(self, name: str) -> Owners:
        """Return the owners as a whole server has them: its own data node."""
        return Owners(FixedNodes({name: self.members[name]}))

    async def in_force(self, *urls: str) -> None:
        """Wait until members own what the membership gives them."""
        async with asyncio.timeout(20):
            for url in urls:
                await self.members[url].wait_in_force()

    async def leave(self, url: str) -> None:
        """Stop a data node as SIGTERM does."""
        member = self.members[url]
        await member.leave()
        del self.members[url]
        await member.close()

    def kill(self, url: str) -> MemberNode:
        """Let a data node vanish, with what it had not sent to the store."""
        member = self.members.pop(url)
        self.stores[url].died.set()
        self.dead.append(member)
        return member

    def owners(
        self,
        sender: str = "sn",
        *,
        token: str = TOKEN,
        buckets: Sequence[str] = (),
        version: int = MESSAGE_VERSION,
    ) -> Owners:
        """Return the owners as a service node has them."""
        self.versions[sender] = version
        stored = MembershipObject(self.store, token, buckets, version)
        return Owners(ClusterNodes(stored, SystemClock(), lambda url: Link(self, sender, url)))


async def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds of which nobody tells."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@asynccontextmanager
async def cluster(count: int, store: ObjectStore | None = None) -> AsyncIterator[tuple[Cluster, list[str]]]:
    """Run a cluster of so many members while the context lasts; yield it and their URLs."""
    made = Cluster(store or MemoryStore())
    urls = [await made.start() for _ in range(count)]
    await made.in_force(*urls)
    try:
        yield made, urls
    finally:
        for member in list(made.members.values()):
            await member.close()
