"""The members of a cluster as a service node sees them: found in the store, and asked past those that do not answer.

A data node that is gone costs a message a hop: the next in rendezvous order reads for it at once, and it is taken over
from when its lease has run out (`hsparse.dn.membership`). A message that may have been carried out already is sent
again: changes of records say so (`Message.as_repeated`), appends have tokens, and other writes set what they set.

How long a service node waits for a data node before it asks another one (hedged requests).

Dean and Barroso, "The Tail at Scale", 2013: a second request after the 95th percentile costs a few more requests, and
cuts off the slowest answers. Where all nodes are slow because they have too much to do, it would double what they have
to do: so no more than a part of the reads is hedged, as in gRPC's retry throttling.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from hsparse.clock import Clock
from hsparse.cluster.lease_object import NO_MEMBERS, Membership
from hsparse.cluster.membership_object import MembershipObject
from hsparse.compute import gather_all, staggered
from hsparse.concurrency.request_trace import seconds_left
from hsparse.errors import Corrupt, HsparseError, Misconfigured, Misdirected, StoreFailed, Unanswered
from hsparse.sn.data_nodes.owners import RESEND, Delivery, Resend
from hsparse.wire.message import CheckMember, Message, Routed
from hsparse.wire.remote_node import Connect, MemberConnections

WINDOW = 256
"""The reads whose times are remembered."""
RENEWED = 32
"""The percentile is computed anew after so many reads."""
PERCENTILE = 0.95
LEAST = 0.1
"""Seconds below which a read never counts as slow: reading from the store takes as long."""
MOST = 2.0
HEDGED = 0.1
"""The part of the reads that may be sent to another node because they take long."""
MOST_SAVED = 100.0
"""How many may be at once, after enough that were not: until a node that hangs is taken over from."""


CHECK_AFTER = 1.0
"""Seconds after which another node is asked to find out whether the owner of a change is there."""


class HedgeDelay:
    """The times that reads took lately, and after how long another node is asked to read, too."""

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=WINDOW)
        self._noted = 0
        self._saved = MOST_SAVED
        self.seconds = MOST / 2
        """Seconds after which another node is asked to read too."""

    def note(self, seconds: float) -> None:
        """Note how long a read took."""
        self._times.append(seconds)
        self._saved = min(self._saved + HEDGED, MOST_SAVED)
        self._noted += 1
        if self._noted % RENEWED == 0:
            ordered = sorted(self._times)
            slow = ordered[int(PERCENTILE * (len(ordered) - 1))]
            self.seconds = min(max(slow, LEAST), MOST)

    def may_hedge(self) -> bool:
        """Say whether one more read may be sent to another node because it takes long; it counts if so."""
        if self._saved < 1:
            return False
        self._saved -= 1
        return True


log = logging.getLogger(__name__)

T = TypeVar("T")

DEADLINE = 30.0
"""Seconds for which a message is sent again before its request fails, unless its deadline is earlier."""
PAUSE = 0.02
"""Seconds before a message is sent again by the same membership; the double each time, up to `MAX_PAUSE`."""
MAX_PAUSE = 0.5
LOOK = 1.0
"""Seconds from one look at the membership to the next while this node may not use the members, or knows of none."""
AVOIDED = 5.0
"""Seconds for which a node that did not answer is asked after others."""
RECALL = 0.5
"""Seconds in which a node that did not answer may say that it has carried a change out, before another one does."""
ASKS = 4
"""How often others are asked whether a node is gone, while they find out."""
UNREAD = (Unanswered, StoreFailed)
"""The failures of a read that another node may not have."""


class ClusterNodes:
    """`NodeSet` of the members in the store, which `connect` reaches."""

    def __init__(self, stored: MembershipObject, clock: Clock, connect: Connect) -> None:
        self._stored = stored
        self._clock = clock
        self._connections = MemberConnections(connect)
        self._avoided: dict[str, float] = {}
        self._reading: asyncio.Task[None] | None = None
        self._hedging = HedgeDelay()
        self._refused: Misconfigured | None = None
        self._next_look = 0.0
        self.membership: Membership = NO_MEMBERS

    # --- the membership -------------------------------------------------------------------------------

    async def readiness_error(self) -> Misconfigured | None:
        if self._refused is not None or not self.membership.nodes:
            try:
                async with asyncio.timeout(LOOK):
                    await self._look()
            except (HsparseError, TimeoutError) as error:
                if error is not self._refused:
                    log.warning("the members could not be read: %s", error)
        return self._refused

    async def _look(self) -> None:
        """Read the membership, but not more often than once in `LOOK` seconds."""
        if self._clock.monotonic() >= self._next_look:
            self._next_look = self._clock.monotonic() + LOOK
            await self._read()

    async def members(self, delivery: Delivery) -> Membership:
        if self._refused is not None:
            await self._look()
            if self._refused is not None:
                raise Misconfigured(
                    self._refused.message
                )  # the one that is kept would keep each request's frames
        if delivery.epoch < 0 and self.membership.nodes:
            return self.membership
        if self.membership.epoch <= delivery.epoch:
            await self._read()
            if self.membership.epoch <= delivery.epoch:
                await self._pause(delivery)
        while not self.membership.nodes:
            await self._read()
            if not self.membership.nodes:
                await self._pause(delivery)
        return self.membership

    async def _read(self) -> None:
        """Read the membership in the store, once for all who wait for it."""
        if self._reading is None:
            self._reading = asyncio.create_task(self._read_once())
        await asyncio.shield(self._reading)

    async def _read_once(self) -> None:
        try:
            newest = await self._stored.read()
            if (refused := self._stored.unusable(newest)) is not None:
                raise refused
            if self._refused is not None:
                log.warning("this service node is ready again")
            self.membership, self._refused = newest, None
            await self._connections.follow(newest.urls)
        except Misconfigured as error:
            if self._refused is None:
                log.error("this service node is not ready: %s", error.message)
            self._refused = error
            raise
        except Corrupt as error:
            log.error("the members of epoch %d are kept: %s", self.membership.epoch, error.message)
        finally:
            self._reading = None

    async def _pause(self, delivery: Delivery) -> None:
        if not delivery.until:
            delivery.until = self._end()
        if self._clock.monotonic() > delivery.until:
            raise Unanswered("No data node has confirmed this in time; see `hsparse nodes`.")
        await asyncio.sleep(min(PAUSE * 2**delivery.pauses, MAX_PAUSE))
        delivery.pauses += 1

    def _end(self) -> float:
        """Return when the time ends in which a message is sent again."""
        left = seconds_left()
        return self._clock.monotonic() + (DEADLINE if left is None else min(DEADLINE, left))

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
        """Return what the owner reads or, when that takes long or fails, another node."""
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
        """Yield what reads from the owner and from its stand-ins, in the order in which they are asked."""
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
        """Return the owner's reply; `Unanswered` when it gives none and was found to be gone meanwhile."""
        if self._is_avoided(node) and len(membership.nodes) > 1:
            raise Unanswered(f"The data node {node} did not answer a moment ago.")
        change = self._change(membership, node, message, delivery)
        return await self._unless_gone(membership, node, self._connections.send(node, change))

    async def _unless_gone(
        self, membership: Membership, node: str, reply: Coroutine[Any, Any, T], *owners: str
    ) -> T:
        """Return a node's reply; `Unanswered` when it gives none, and it or an owner is found to be gone meanwhile.

        The one that is gone is avoided for a while.
        """
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
            self._avoided[gone] = self._clock.monotonic() + AVOIDED
            raise
        finally:
            for task in (sending, *ends):
                task.cancel()
            del sending, ends, task  # an error has this frame, and would have itself

    async def _wait_until_gone(self, membership: Membership, node: str) -> str:
        """Find out again and again whether a node is a member and answers; return its id when it does not."""
        while True:
            if await self._is_gone(membership, node):
                return node
            await asyncio.sleep(CHECK_AFTER)

    async def _is_gone(self, membership: Membership, node: str) -> bool:
        """Have another node find out whether a node is a member and answers; where none can, the store may tell.

        What cannot be found out is False.
        """
        others, check = membership.stand_ins(node), CheckMember(membership.epoch, node)
        # One that does not answer may be gone, too; one of two has to know that it is reached still.
        asking = ASKS * [partial(self._connections.send, other, check) for other in others]
        if asking:
            try:
                return not await staggered(asking, CHECK_AFTER, (Unanswered,))
            except Misdirected:
                return True
            except HsparseError:  # what the store tells is left
                pass
        try:
            await self._look()
        except HsparseError as error:  # the node may be carrying the message out
            log.warning("whether the data node %s is gone could not be read: %s", node, error.message)
        return self.membership.epoch > membership.epoch

    async def _ask_instead(
        self, membership: Membership, node: str, message: Message[T], delivery: Delivery
    ) -> T:
        """Have the others, in rendezvous order, carry out a change, or pass it on, that `node` does not answer."""
        for other in membership.stand_ins(node):
            change = self._change(membership, other, message, delivery, instead_of=node)
            try:
                sending = self._connections.send(other, change)
                return await self._unless_gone(membership, other, sending, node)
            except Unanswered:
                delivery.unanswered += 1
        raise Unanswered(f"No other data node answers for {node}.")

    async def _recall(self, membership: Membership, node: str, message: Message[T], delivery: Delivery) -> T:
        """Return the reply of a node that may be the owner no more, but has carried the change out.

        `Misdirected` if it does not remember that, `Unanswered` if it cannot be asked in `RECALL` seconds.
        """
        try:
            async with asyncio.timeout(RECALL):
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
            delay = self._hedging.seconds if message.only_reads else DEADLINE
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
