"""A data node as a member of a cluster: it joins through the store, answers by the newest membership, and leaves.

A message of an older epoch is refused before any work. While the node owns nothing (`AdoptedMembership`), it confirms
its reads with the store, and changes wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar, cast

from hsparse.clock import Clock
from hsparse.cluster.lease_object import LeaseObjects
from hsparse.cluster.membership import Membership
from hsparse.cluster.membership_object import MembershipObject
from hsparse.dn.membership.adopted_membership import AdoptedMembership
from hsparse.dn.membership.eviction import AbsentMembers, Eviction
from hsparse.dn.membership.keyed_changes import KeyedChanges
from hsparse.dn.membership.lease_keeper import LeaseKeeper
from hsparse.dn.membership.member_ownership import Accepted, MemberOwnership, OwningService, Resent
from hsparse.dn.membership.ownership import Ownership
from hsparse.dn.membership.peers import NodeTasks, Peers, Witnesses
from hsparse.errors import HsparseError, Misconfigured, Misdirected, Unanswered
from hsparse.model.schema import FIRST_SCHEMA, Schema
from hsparse.storage.object_store import ObjectStore
from hsparse.wire.codec import MESSAGE_VERSION
from hsparse.wire.message import AdoptMembership, CheckMember, GetInfo, Message, NodeInfo, Routed
from hsparse.wire.remote_node import Connect

log = logging.getLogger(__name__)

R = TypeVar("R")


RECOVERY_LEASES = 2
"""How many lease durations a node waits for its eviction before it takes a revoked lease back."""
CHECKS_PER_LEASE = 8
"""How often, during a lease's duration, a node that has lost its lease checks whether it may be a member again."""
SAME_RATE = 0.99
"""The least seconds that pass on this node's clock during one second of another node's clock."""


class MemberNode:
    """A `DataNode` that is a member of a cluster: its service shares the store with the services of the other members.

    `connect` opens a connection to another member. `make` creates the service, given the node's ownership. `token` is
    the nodes' secret. The lease is renewed every `period` seconds and lasts twice as long. A `server` answers only the
    service node in its own process. `version` is the version of the messages. `buckets` are served besides the bucket
    of `store`; `schema` reads the schema that the stores need. One event loop uses the node.
    """

    def __init__(
        self,
        make: Callable[[Ownership], OwningService],
        store: ObjectStore,
        clock: Clock,
        token: str,
        connect: Connect,
        period: float = 1.0,
        *,
        server: bool = False,
        version: int = MESSAGE_VERSION,
        buckets: Iterable[str] = (),
        schema: Callable[[], Awaitable[Schema]] | None = None,
    ) -> None:
        self._clock = clock
        self._server = server
        self._schema = schema
        self._stored = MembershipObject(store, token, buckets, version)
        self._leases = LeaseObjects(store)
        self._lease = LeaseKeeper(self._leases, clock, period)
        self._ownership = MemberOwnership(self._lease.holds, server=server)
        self._service = make(self._ownership)
        self._peers = Peers(connect)
        witnesses = Witnesses()
        self._eviction = Eviction(self._stored, self._leases, self._peers, witnesses, clock)
        self._tasks = NodeTasks(lambda: self._ownership.node)
        self._absent = AbsentMembers(self._stored, self._peers, self._eviction, self._tasks)
        self._adopted = AdoptedMembership(
            self._ownership,
            self._stored,
            self._peers,
            self._eviction,
            witnesses,
            self._tasks,
            self._service.invalidate,
            self._service.forget_fences,
            self._refuse,
        )
        self._keyed = KeyedChanges()
        self._staying: asyncio.Task[None] | None = None
        self._url = ""
        self.refused: Misconfigured | None = None
        """Why this node may no longer be a member, or None while it may."""
        self.unfit = asyncio.Event()
        """Set together with `refused`: this node leaves on its own and should be stopped."""

    @property
    def id(self) -> str:
        """The id of this member, new each time that it joins; empty before it joins."""
        return self._ownership.node

    @property
    def membership(self) -> Membership:
        """The membership that this node has adopted."""
        return self._adopted.view

    @property
    def in_force(self) -> bool:
        """Whether this node now owns the names that the membership assigns to it."""
        return self._ownership.in_force

    @property
    def defect(self) -> asyncio.Event:
        """Set when a task has failed because of a defect: the node should be stopped."""
        return self._tasks.defect

    @property
    def lease_age(self) -> float:
        """Seconds since the last successful renewal of the lease was sent."""
        return self._lease.age

    def counters(self) -> dict[str, int]:
        """Return a dict that maps the counters of `NodeInfo` to their values: cached objects and cached bytes."""
        return self._service.counters()

    async def wait_in_force(self) -> None:
        """Wait until this node owns the names that the membership assigns to it."""
        while not self.in_force:
            with suppress(Unanswered):
                await self._adopted.wait_in_force()

    async def join(self, url: str = "") -> None:
        """Join the cluster, reachable at `url`, until `close`; raise the errors of `MembershipObject.read`.

        `Misconfigured` is raised if members have another token, other buckets or another version of the messages, or
        need a newer hsparse; `Unanswered` if a member is alive but does not answer.
        """
        self._url = url
        await self._join()
        self._staying = self._tasks.start(self._stay())

    async def leave(self) -> None:
        """Leave the cluster: give up ownership, tell the other members, and finish the accepted changes."""
        await self._tasks.once("leave", "", self._leave_once)

    async def _leave_once(self) -> None:
        if self._staying is None:
            return
        try:
            await self._leave(self._staying)
        except HsparseError as error:
            log.warning("%s could not leave, and will be evicted: %s", self.id, error.message)
        self._staying = None

    def _refuse(self, error: Misconfigured) -> None:
        """Leave, because this node may no longer be a member."""
        if self.refused is None:
            log.error("%s leaves: %s", self.id, error.message)
            self.refused = error
            self.unfit.set()
            self._tasks.start(self.leave())

    async def close(self) -> None:
        """Leave, then stop all tasks and close the service."""
        await self.leave()
        await self._tasks.close()
        await self._service.close()
        await self._peers.close()

    async def _join(self) -> None:
        id = f"{'serve' if self._server else 'dn'}-{self._clock.token(4).hex()}"
        schema = FIRST_SCHEMA if self._schema is None else await self._schema()
        view = await self._stored.read()
        if not view.epoch:
            await self._eviction.expire_unlisted()
        if not self._server:
            view = await self._absent.evicted(id, view)
        self._ownership.node = id
        await self._lease.take(id, view.epoch)
        try:
            if self._server:
                view = await self._stored.join_as_server(id, schema)
            else:
                view = await self._stored.join(id, self._url, schema)
        except HsparseError:
            self._lease.give_up()
            with suppress(HsparseError):  # the rest of the lease runs out
                await self._leases.delete(id)
            raise
        await self._adopted.adopt(view)

    async def _stay(self) -> None:
        """Keep the lease; when another node has overwritten it, take it back or join again."""
        try:
            while True:
                await self._lease.keep(self._adopted, at_once=self.membership.shared)
                log.warning("%s has lost its lease", self.id)
                self._adopted.renounce()
                await self._recover()
        except Misconfigured as error:
            self._refuse(error)

    async def _recover(self) -> None:
        """Become a member again once another node has evicted this node; raise `Misconfigured` if it may not rejoin.

        If no node evicts this node, it takes its lease back as soon as every eviction that had begun must have ended.
        """
        since, pause, told = self._clock.monotonic(), self._lease.seconds / CHECKS_PER_LEASE, ""
        while True:
            await asyncio.sleep(pause)
            pause = self._lease.seconds / CHECKS_PER_LEASE
            try:
                if await self._lease.is_evicted():
                    await asyncio.sleep(pause)  # a rebuild evicts all nodes, then puts its membership
                elif self._clock.monotonic() - since < RECOVERY_LEASES * self._lease.seconds:
                    continue
                elif await self._lease.take_back(self.membership.epoch):
                    await self._adopted.adopt(await self._stored.read(), renewed=True)
                    return
                self._service.forget_fences()
                await self._join()
            except Misconfigured:
                raise
            except HsparseError as error:
                if error.message != told:
                    log.warning("%s cannot join again yet: %s", self.id, error.message)
                told = error.message
                if not isinstance(error, Unanswered):
                    pause = RECOVERY_LEASES * self._lease.seconds
            else:
                return

    async def _leave(self, staying: asyncio.Task[None]) -> None:
        if self._server:
            while not await self._adopted.finished(self.membership.epoch + 1):
                pass
        else:
            view = await self._stored.leave(self.id)
            await self._adopted.adopt(view)
            await self._peers.answering([one for one in view.reachable if one != self.id], view.epoch)
            while not await self._adopted.finished(view.epoch):
                pass
        staying.cancel()
        self._lease.give_up()
        await self._leases.delete(self.id)
        await self._stored.remove(self.id)

    async def send(self, message: Message[R], /) -> R:
        """Answer a message, see `DataNode`."""
        return cast(R, await self._answer(message))

    async def _answer(self, message: Message[Any], accepted: Accepted | None = None) -> Any:
        match message:
            case Routed():
                return await self._routed(message)
            case AdoptMembership():
                return await self._adopt(message)
            case CheckMember(epoch, node):
                self._adopted.require(epoch)
                return await self._adopted.is_alive(node, witnessed=True)
            case GetInfo():
                return replace(cast(NodeInfo, await self._service.send(message)), id=self.id)
        if not self._server:
            return await self._service.send(message, accepted)
        if self.refused is not None:
            # Raising the stored error would keep the frames of every request that it is raised in.
            raise type(self.refused)(self.refused.message)
        if message.only_reads:
            return await self._service.send(message)
        await self._wait_in_force()
        with self._adopted.running_change() as accepted:
            return await self._service.send(message, accepted)

    async def _wait_in_force(self, epoch: int | None = None) -> None:
        try:
            await self._adopted.wait_in_force(epoch)
        except Unanswered as error:
            if not self._lease.failed:
                raise
            raise Unanswered(
                f"{self.id} may not write: its lease was not renewed: {self._lease.failed}"
            ) from error

    async def _routed(self, routed: Routed[R]) -> R:
        if routed.instead_of or routed.message.only_reads:
            await self._check_route(routed)
            return await (self._stand_in(routed) if routed.instead_of else self._service.send(routed.message))
        resent = None
        if routed.first_epoch is not None:
            asked = self._clock.monotonic() - SAME_RATE * routed.seconds
            resent = Resent(routed.first_epoch, asked)

        async def carry_out() -> R:
            await self._check_route(routed)
            await self._wait_in_force(routed.epoch)
            with self._adopted.running_change(resent) as accepted:
                return cast(R, await self._answer(routed.message, accepted))

        if not routed.key:
            return await carry_out()
        # Reply as before even without ownership: a new owner would apply the change again and undo later changes.
        return await self._keyed.once((routed.epoch, routed.key), routed.attempt, carry_out)

    async def _check_route(self, routed: Routed[Any]) -> None:
        """Raise `Misdirected` unless a message is for this member and in its adopted membership."""
        if routed.to != self.id:
            raise Misdirected(f"The message is for the data node {routed.to}, but this is {self.id}.")
        await self._adopted.catch_up(routed.epoch)
        self._adopted.require(routed.epoch)

    async def _stand_in(self, routed: Routed[R]) -> R:
        """Carry out a message to a member that did not answer the sender, see `Routed`."""
        other = routed.instead_of
        if routed.message.only_reads:
            self._tasks.start(self._adopted.is_alive(other, witnessed=True))
            return await self._service.send(routed.message)
        if await self._adopted.is_alive(other, witnessed=True):
            return await self._peers.send(other, replace(routed, to=other, instead_of=""))
        raise Misdirected(f"The data node {other} is no longer a member of the cluster.")

    async def _adopt(self, message: AdoptMembership) -> int:
        if message.to != self.id or not self._lease.holds():
            # A node without a lease cannot reach the store in time, and is of no use as a member.
            raise Unanswered(f"The data node {self.id} has no lease, or the message is for {message.to}.")
        if message.epoch > self.membership.epoch:
            await self._adopted.adopt_newest()
        now = self.membership.epoch
        return now if await self._adopted.finished(now) else 0
