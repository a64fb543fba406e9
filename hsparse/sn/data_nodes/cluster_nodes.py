"""The members of a cluster as a service node sees them: read from the store, with failover to other members.

If a data node does not answer a read, the next node in rendezvous order reads the object from the store at once, at
the cost of one hop. Other nodes take over its objects when its lease has expired (`hsparse.dn.membership`). A message
that may already have been carried out can be sent again: changes of records are marked as repeated
(`Message.as_repeated`), appends have tokens, and other writes are idempotent.

Reads are hedged (Dean and Barroso, "The Tail at Scale", 2013): a read that takes longer than the 95th percentile of
recent reads is also sent to another node, and the first answer is used. This costs a few more requests and cuts off the
slowest answers. If all nodes are overloaded, hedging would double their load, so only a part of the reads is hedged, as
in gRPC's retry throttling.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from hsparse.attempts import NODE
from hsparse.clock import Clock, Reminder
from hsparse.cluster.membership import NO_MEMBERS, Membership
from hsparse.cluster.membership_object import MembershipObject
from hsparse.concurrency.gathering import gather_all
from hsparse.concurrency.request_trace import seconds_left
from hsparse.concurrency.single_flight import SingleFlight
from hsparse.concurrency.staggered import staggered
from hsparse.errors import Corrupt, HsparseError, Misconfigured, Misdirected, StoreFailed, Unanswered
from hsparse.sn.data_nodes.owners import RESEND, Delivery, Resend
from hsparse.wire.message import CheckMember, Message, Routed
from hsparse.wire.remote_node import Connect, MemberConnections

TIMED_READS = 256
"""The number of recent reads whose durations are kept."""
READS_PER_PERCENTILE = 32
"""The number of reads after which the percentile is computed again."""
PERCENTILE = 0.95
MIN_HEDGE_SECONDS = 0.1
"""The minimum of seconds before a read is hedged, because a read from the store can take that long."""
MAX_HEDGE_SECONDS = 2.0
"""The maximum of seconds before a read is hedged."""
HEDGED_FRACTION = 0.1
"""The fraction of reads that may be hedged."""
MOST_SAVED = 100.0
"""The maximum of hedged reads in a burst; they must suffice until the objects of a hanging node are taken over."""


CHECK_AFTER = 1.0
"""Seconds after which other nodes are asked whether a node that has not answered is still a member."""


class HedgeDelay:
    """The durations of recent reads, and the delay after which a read is hedged."""

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=TIMED_READS)
        self._noted = 0
        self._saved = MOST_SAVED
        self.seconds = MAX_HEDGE_SECONDS / 2
        """Seconds after which a read is hedged."""

    def note(self, seconds: float) -> None:
        """Record the duration of a read."""
        self._times.append(seconds)
        self._saved = min(self._saved + HEDGED_FRACTION, MOST_SAVED)
        self._noted += 1
        if self._noted % READS_PER_PERCENTILE == 0:
            ordered = sorted(self._times)
            slow = ordered[int(PERCENTILE * (len(ordered) - 1))]
            self.seconds = min(max(slow, MIN_HEDGE_SECONDS), MAX_HEDGE_SECONDS)

    def may_hedge(self) -> bool:
        """Return whether one more read may be hedged; if so, count this read as hedged."""
        if self._saved < 1:
            return False
        self._saved -= 1
        return True


log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_RESEND_SECONDS = 30.0
"""Seconds during which a message is sent again before its request fails, unless the request's deadline is earlier."""
MEMBERSHIP_READ_SECONDS = 1.0
"""The minimum of seconds between two reads of the membership while this node is unusable or knows no member."""
AVOIDED_SECONDS = 5.0
"""Seconds for which a node that did not answer is asked only if the other nodes do not answer either."""
RECALL_SECONDS = 0.5
"""Seconds in which a node that did not answer a change may still confirm it, before another node carries it out."""
QUESTIONS_PER_NODE = 4
"""The maximum number of times that each other node is asked whether a node is gone."""
NO_NODE_SECONDS = 5.0
"""Seconds that messages wait while there is no data node: long enough for a data node to restart."""
CHECKED_SECONDS = 10.0
"""Seconds after which a readiness probe reads a known membership again."""
NO_NODES = "There is no data node: start `hsparse dn` over the same store and token, and see `hsparse nodes`."
UNREAD = (Unanswered, StoreFailed)
"""The errors of a read for which another node is tried."""


class ClusterNodes:
    """The `NodeSet` of the cluster members that are registered in the store; `connect` connects to a member."""

    def __init__(self, stored: MembershipObject, clock: Clock, connect: Connect) -> None:
        self._stored = stored
        self._clock = clock
        self._connections = MemberConnections(connect)
        self._avoided: dict[str, float] = {}
        self._reading: SingleFlight[None, None] = SingleFlight()
        self._hedging = HedgeDelay()
        self._reminder = Reminder(clock)
        self._refused: Misconfigured | None = None
        self._next_look = 0.0
        self._read_at = -CHECKED_SECONDS
        self._empty_since: float | None = None
        self.membership: Membership = NO_MEMBERS

    # --- the membership -------------------------------------------------------------------------------

    async def readiness_error(self) -> Misconfigured | None:
        is_known = self._clock.monotonic() - self._read_at < CHECKED_SECONDS
        if self._refused is not None or not self.membership.nodes or not is_known:
            try:
                async with asyncio.timeout(MEMBERSHIP_READ_SECONDS):
                    await self._look()
            except (HsparseError, TimeoutError) as error:
                if error is not self._refused and self._reminder.is_due(str(error)):
                    log.warning("the members could not be read: %s", error)
        if self._refused is None and not self.membership.nodes:
            return Misconfigured(NO_NODES)
        return self._refused

    async def _look(self) -> None:
        """Read the membership, at most once in `MEMBERSHIP_READ_SECONDS` seconds."""
        if self._clock.monotonic() >= self._next_look:
            self._next_look = self._clock.monotonic() + MEMBERSHIP_READ_SECONDS
            await self._read()

    async def members(self, delivery: Delivery) -> Membership:
        if self._refused is not None:
            await self._look()
            if self._refused is not None:
                raise Misconfigured(
                    self._refused.message
                )  # a new error, because the stored one would keep each request's frames alive
        if delivery.epoch < 0 and self.membership.nodes:
            return self.membership
        if self.membership.epoch <= delivery.epoch:
            await self._read()
            if self.membership.epoch <= delivery.epoch:
                await self._pause(delivery)
        while not self.membership.nodes:
            await self._read()
            if not self.membership.nodes:
                await self._wait_for_nodes(delivery)
        return self.membership

    async def _wait_for_nodes(self, delivery: Delivery) -> None:
        """Pause while there is no data node; raise `Unanswered` once there has been none for `NO_NODE_SECONDS`."""
        since = self._empty_since
        if since is not None and self._clock.monotonic() - since > NO_NODE_SECONDS:
            raise Unanswered(NO_NODES)
        await self._pause(delivery)

    async def _read(self) -> None:
        """Read the membership in the store; concurrent callers share one read (single flight)."""
        await self._reading.run(None, self._read_once)

    async def _read_once(self) -> None:
        try:
            newest = await self._stored.read()
            if (refused := self._stored.unusable(newest)) is not None:
                raise refused
            if self._refused is not None:
                log.warning("this service node is ready again")
            self.membership, self._refused, self._read_at = newest, None, self._clock.monotonic()
            self._empty_since = None if newest.nodes else self._empty_since or self._read_at
            await self._connections.follow(newest.urls)
        except Misconfigured as error:
            if self._refused is None:
                log.error("this service node is not ready: %s", error.message)
            self._refused = error
            raise
        except Corrupt as error:
            log.error("the membership of epoch %d is kept: %s", self.membership.epoch, error.message)

    async def _pause(self, delivery: Delivery) -> None:
        if not delivery.until:
            delivery.until = self._end()
        if self._clock.monotonic() > delivery.until:
            raise Unanswered("No data node has confirmed the request in time; see `hsparse nodes`.")
        await asyncio.sleep(NODE.pause(delivery.pauses))
        delivery.pauses += 1

    def _end(self) -> float:
        """Return the monotonic time until which a message is sent again."""
        left = seconds_left()
        return self._clock.monotonic() + (
            MAX_RESEND_SECONDS if left is None else min(MAX_RESEND_SECONDS, left)
        )

    # --- sending --------------------------------------------------------------------------------------

    async def send(
        self, membership: Membership, node: str, message: Message[T], delivery: Delivery
    ) -> T | Resend:
        if delivery.first_epoch < 0:
            delivery.first_epoch, delivery.since = membership.epoch, self._clock.monotonic()
        if delivery.unanswered:
            message = message.as_repeated()
        try:
            if message.only_reads:
                return await self._read_from(membership, node, message)
            return await self._change_at(membership, node, message, delivery)
        except Misdirected:
            pass
        except Unanswered:
            delivery.unanswered += 1
            message = message.as_repeated()
            try:
                return await self._ask_instead(membership, node, message, delivery)
            except (Misdirected, Unanswered):
                pass
            with suppress(Misdirected, Unanswered):
                return await self._recall(membership, node, message, delivery)
            delivery.unanswered += 1
        delivery.epoch = max(delivery.epoch, membership.epoch)
        delivery.until = delivery.until or self._end()
        return RESEND

    async def _read_from(self, membership: Membership, node: str, message: Message[T]) -> T:
        """Return the reply of the owner to a read or, if the owner is slow or fails, the reply of another node."""
        started = self._clock.monotonic()
        attempts = self._readings(membership, node, message)
        reading = staggered(attempts, self._hedging.seconds, UNREAD, self._hedging.may_hedge)
        try:
            alone = len(membership.nodes) == 1
            reply = await (self._unless_gone(membership, node, reading) if alone else reading)
        except Unanswered as error:
            if self.membership.epoch > membership.epoch:
                raise Misdirected("There is a newer membership.") from error
            raise
        self._hedging.note(self._clock.monotonic() - started)
        return reply

    def _readings(
        self, membership: Membership, node: str, message: Message[T]
    ) -> Iterator[Callable[[], Awaitable[T]]]:
        """Yield functions that send a read: one to the owner `node` (last if it is avoided), one to each stand-in."""
        last = self._is_avoided(node)
        if not last:
            yield partial(self._connections.send, node, Routed(node, membership.epoch, message))
        for other in membership.stand_ins(node):
            routed = Routed(other, membership.epoch, message, instead_of=node)
            yield partial(self._connections.send, other, routed)
        if last:
            yield partial(self._connections.send, node, Routed(node, membership.epoch, message))

    async def _change_at(
        self, membership: Membership, node: str, message: Message[T], delivery: Delivery
    ) -> T:
        """Send a change to its owner and return the reply; raise `Unanswered` if the owner is avoided or gone."""
        if self._is_avoided(node) and len(membership.nodes) > 1:
            raise Unanswered(f"The data node {node} did not answer a moment ago.")
        change = self._change(membership, node, message, delivery)
        return await self._unless_gone(membership, node, self._connections.send(node, change))

    async def _unless_gone(
        self, membership: Membership, node: str, reply: Coroutine[Any, Any, T], *owners: str
    ) -> T:
        """Return `node`'s reply. If `node` or one of `owners` is gone first, raise `Unanswered` and avoid that node."""
        sending, gone = asyncio.create_task(reply), node
        ends: list[asyncio.Task[str]] = []
        try:
            if not (await asyncio.wait({sending}, timeout=CHECK_AFTER))[0]:
                ends = [
                    asyncio.create_task(self._wait_until_gone(membership, one)) for one in (node, *owners)
                ]
                await asyncio.wait({sending, *ends}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                return sending.result()
            gone = next(end.result() for end in ends if end.done())
            raise Unanswered(f"The data node {gone} is gone.")
        except Unanswered:
            self._avoided[gone] = self._clock.monotonic() + AVOIDED_SECONDS
            raise
        finally:
            for task in (sending, *ends):
                task.cancel()
            del sending, ends, task  # an error's traceback refers to this frame: avoid a reference cycle

    async def _wait_until_gone(self, membership: Membership, node: str) -> str:
        """Check every `CHECK_AFTER` seconds whether `node` is gone (`_is_gone`), and return its id when it is."""
        while True:
            if await self._is_gone(membership, node):
                return node
            await asyncio.sleep(CHECK_AFTER)

    async def _is_gone(self, membership: Membership, node: str) -> bool:
        """Return whether another node reports that `node` is no member or does not answer.

        If no other node can report on `node`, return whether the store has a newer membership.
        """
        others, check = membership.stand_ins(node), CheckMember(membership.epoch, node)
        # Other nodes may be gone as well. If half of the members are gone, the other half can evict them only with this
        # node as a witness, which asks each of them.
        asking = QUESTIONS_PER_NODE * [partial(self._connections.send, other, check) for other in others]
        if asking:
            try:
                return not await staggered(asking, CHECK_AFTER, (Unanswered,))
            except Misdirected:
                return True
            except HsparseError:  # ask the store
                pass
        try:
            await self._look()
        except HsparseError as error:  # unknown: the node may still be carrying the message out
            log.warning("could not find out whether the data node %s is gone: %s", node, error.message)
        return self.membership.epoch > membership.epoch

    async def _ask_instead(
        self, membership: Membership, node: str, message: Message[T], delivery: Delivery
    ) -> T:
        """Ask the other nodes, in rendezvous order, to carry out or forward a change that `node` does not answer."""
        for other in membership.stand_ins(node):
            change = self._change(membership, other, message, delivery, instead_of=node)
            try:
                sending = self._connections.send(other, change)
                return await self._unless_gone(membership, other, sending, node)
            except Unanswered:
                delivery.unanswered += 1
        raise Unanswered(f"No other data node answers for {node}.")

    async def _recall(self, membership: Membership, node: str, message: Message[T], delivery: Delivery) -> T:
        """Return the reply that `node`, which may no longer be the owner, stored when it carried out the change.

        Raises `Misdirected` if `node` has not carried out the change, and `Unanswered` after `RECALL_SECONDS`.
        """
        try:
            async with asyncio.timeout(RECALL_SECONDS):
                routed = self._change(membership, node, message, delivery)
                return await self._connections.send(node, routed)
        except TimeoutError as error:
            raise Unanswered(f"The data node {node} does not answer.") from error

    def _change(
        self,
        membership: Membership,
        to: str,
        message: Message[T],
        delivery: Delivery,
        *,
        instead_of: str = "",
    ) -> Routed[T]:
        delivery.key = delivery.key or self._clock.token(8).hex()
        first, seconds = None, 0.0
        if delivery.unanswered:
            first, seconds = delivery.first_epoch, self._clock.monotonic() - delivery.since
        return Routed(
            to, membership.epoch, message, instead_of, delivery.key, delivery.unanswered, first, seconds
        )

    async def send_any(self, message: Message[T]) -> T:
        delivery = Delivery()
        while True:
            membership = await self.members(delivery)
            nodes = sorted(membership.nodes, key=self._is_avoided)
            asked = (partial(self._connections.send, node, message) for node in nodes)
            delay = self._hedging.seconds if message.only_reads else MAX_RESEND_SECONDS
            try:
                failures = UNREAD if message.only_reads else (Unanswered,)
                return await staggered(asked, delay, failures)
            except (Misdirected, Unanswered):
                delivery.epoch = membership.epoch

    async def send_all(self, message: Message[T]) -> list[T]:
        delivery = Delivery()
        while True:
            membership = await self.members(delivery)
            replies = await gather_all(
                [self.send(membership, node, message, delivery) for node in membership.nodes]
            )
            found = [reply for reply in replies if not isinstance(reply, Resend)]
            if len(found) == len(replies) and self.membership.epoch == membership.epoch:
                return found

    # --- nodes ----------------------------------------------------------------------------------------

    def _is_avoided(self, node: str) -> bool:
        return self._avoided.get(node, 0.0) > self._clock.monotonic()

    async def close(self) -> None:
        """Close the connections."""
        await self._connections.close()
