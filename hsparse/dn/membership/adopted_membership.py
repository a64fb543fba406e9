"""The membership (the data nodes of one epoch) that a data node has adopted, until it adopts a newer membership.

A membership is *settled* at a node once every other member has adopted it and finished the changes that it accepted
earlier, or was evicted. Until then, and while its lease does not hold, a node owns nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from hsparse.cluster.membership import Membership
from hsparse.cluster.membership_object import MembershipObject
from hsparse.concurrency.gathering import gather_all
from hsparse.concurrency.request_trace import seconds_left
from hsparse.dn.membership.eviction import Eviction
from hsparse.dn.membership.member_ownership import Accepted, MemberOwnership, Resent
from hsparse.dn.membership.ownership import Kept
from hsparse.dn.membership.peers import ANSWER_SECONDS, NodeTasks, Peers, Witnesses
from hsparse.errors import Corrupt, HsparseError, Misconfigured, Misdirected, Unanswered

log = logging.getLogger(__name__)

SETTLE_SECONDS = 10.0
"""The most seconds that a change waits until the membership is settled and the lease holds."""
FINISH_SECONDS = 0.3
"""The most seconds that a reply to `AdoptMembership` waits for earlier changes; a silent node would be evicted."""
RENEWALS_PER_CHECK = 8
"""A member checks the next member once in this many renewals of its lease."""


def _patience() -> float:
    """Return the seconds that a change may wait here, limited by its client's deadline."""
    left = seconds_left()
    return SETTLE_SECONDS if left is None else min(SETTLE_SECONDS, left)


class AdoptedMembership:
    """The newest membership that a node knows of; it is also the `LeaseHolder` of the node's lease.

    `invalidate` is called with a predicate for the names that the node owns before and after a change of membership.
    `forget` is called when the node may have missed changes; `refuse`, when it may not be a member any more.
    """

    def __init__(
        self,
        ownership: MemberOwnership,
        stored: MembershipObject,
        peers: Peers,
        eviction: Eviction,
        witnesses: Witnesses,
        tasks: NodeTasks,
        invalidate: Callable[[Kept], None],
        forget: Callable[[], None],
        refuse: Callable[[Misconfigured], None],
    ) -> None:
        self._ownership = ownership
        self._stored = stored
        self._peers = peers
        self._eviction = eviction
        self._witnesses = witnesses
        self._invalidate = invalidate
        self._forget = forget
        self._refuse = refuse
        self._renewals = 0
        self._running: Counter[int] = Counter()
        """The number of running changes that were accepted in each epoch."""
        self._changed = asyncio.Condition()
        """Notified when a membership is adopted or settled, when a lease holds again, and when earlier changes end."""
        self._tasks = tasks
        self._settling: asyncio.Task[None] | None = None

    @property
    def view(self) -> Membership:
        """The adopted membership."""
        return self._ownership.membership

    @property
    def epoch(self) -> int:
        """The epoch of the adopted membership."""
        return self.view.epoch

    async def adopt(self, view: Membership, *, renewed: bool = False) -> None:
        """Adopt a newer membership or, if `renewed`, the same membership again after the lease was lost."""
        before, own = self.view, self._ownership.node
        if view.epoch < before.epoch or (view.epoch == before.epoch and not renewed):
            return
        # A server stays settled: members that know of it trust no cache while its lease holds.
        stays = not renewed and own in before.servers and own in view.servers
        self._ownership.settled &= stays
        self._ownership.membership = view
        both = own in before.nodes and own in view.nodes and not renewed
        both = both and not before.shared and not view.shared
        self._invalidate(lambda name: both and before.owner(name) == own == view.owner(name))
        if before.shared and not view.shared:
            self._forget()
        if self._settling is not None:
            self._settling.cancel()
        self._settling = (
            self._tasks.start(self._settle(view)) if own in (*view.nodes, *view.servers) else None
        )
        await self._peers.follow(view.urls)
        await self.notify()
        if (error := self._stored.newer_schema(view)) is not None:
            self._refuse(error)

    async def adopt_newest(self) -> None:
        """Adopt the membership in the store."""
        await self._tasks.once("read", "", lambda: self._adopt_stored())

    async def _adopt_stored(self) -> None:
        await self.adopt(await self._stored.read())

    async def catch_up(self, epoch: int) -> None:
        """Adopt the stored membership if this node is behind `epoch`; only log an error if it is damaged."""
        if epoch > self.epoch:
            try:
                await self.adopt_newest()
            except Corrupt as error:
                log.error("%s stays in epoch %d: %s", self._ownership.node, self.epoch, error.message)

    async def follow(self) -> None:
        """Adopt the stored membership, because another node has recalled the lease; see `LeaseHolder`."""
        await self.adopt_newest()

    def renewed(self, *, regained: bool) -> None:
        """Note a renewal (see `LeaseHolder`). At intervals a member checks the next member, to notice its loss."""
        self._renewals += 1
        if regained:
            self._tasks.start(self.notify())
        if self.view.shared:  # a server that leaves sends no message
            self._tasks.start(self._logged("read the membership", self.adopt_newest))
        if self._renewals % RENEWALS_PER_CHECK == 0:
            self._tasks.start(self._logged("look after another member", self._look_after_next))

    async def _logged(self, what: str, work: Callable[[], Awaitable[object]]) -> None:
        try:
            await work()
        except HsparseError as error:
            log.warning("%s could not %s: %s", self._ownership.node, what, error.message)

    async def _look_after_next(self) -> None:
        """Evict the next member in the order of ids if it does not answer; asking it costs no store request."""
        own, members = self._ownership.node, sorted(self.view.members)
        if own not in members or len(members) == 1:
            return
        other = members[(members.index(own) + 1) % len(members)]
        if own in self.view.servers or other in self.view.servers:
            await self._adopt_after(other, lambda: self._eviction.expire(other, own))
        else:
            await self.is_alive(other)

    def require(self, epoch: int) -> None:
        """Raise `Misdirected` if the adopted membership has an epoch other than `epoch`."""
        if epoch != self.view.epoch:
            raise Misdirected(f"This data node is in epoch {self.view.epoch}, but the message is of {epoch}.")

    def renounce(self) -> None:
        """Give up all ownership until a membership is adopted again; changes accepted so far will not be stored."""
        self._ownership.term += 1
        self._ownership.settled = False
        self._invalidate(lambda name: False)

    async def wait_in_force(self, epoch: int | None = None) -> None:
        """Wait until this node owns its names; raise `Misdirected` in an epoch other than `epoch`, or `Unanswered`."""
        ownership = self._ownership
        if not ownership.in_force:
            try:
                async with asyncio.timeout(_patience()), self._changed:
                    await self._changed.wait_for(
                        lambda: ownership.in_force or epoch not in (None, self.view.epoch)
                    )
            except TimeoutError as error:
                raise Unanswered(f"The data node {ownership.node} owns nothing yet; try again.") from error
        if epoch is not None:
            self.require(epoch)

    @contextmanager
    def running_change(self, resent: Resent | None = None) -> Iterator[Accepted]:
        """Accept a change, and count it as running during the context."""
        epoch = self.view.epoch
        self._running[epoch] += 1
        try:
            yield self._ownership.accept(resent)
        finally:
            self._running[epoch] -= 1
            if not self._running[epoch]:
                del self._running[epoch]
                if epoch != self.view.epoch:  # callers wait only for changes of earlier epochs
                    self._tasks.start(self.notify())

    async def finished(self, epoch: int) -> bool:
        """Wait briefly for the changes accepted before `epoch`; return whether all of them have ended."""
        try:
            async with asyncio.timeout(FINISH_SECONDS), self._changed:
                await self._changed.wait_for(lambda: all(one >= epoch for one in self._running))
        except TimeoutError:
            return False
        return True

    async def notify(self) -> None:
        """Wake the tasks that wait for a change of the membership or of running changes."""
        async with self._changed:
            self._changed.notify_all()

    async def _settle(self, view: Membership) -> None:
        own = self._ownership.node
        others = [other for other in view.members if other != own]
        silent = others if own in view.servers else [other for other in others if other in view.servers]
        await gather_all(
            [self._settle_by_lease(other, view.epoch) for other in silent]
            + [self._settle_with(other, view.epoch) for other in others if other not in silent]
        )
        if self.view is view:
            self._ownership.settled = True
            await self.notify()

    async def _settle_with(self, other: str, epoch: int) -> None:
        """Wait until another member has adopted the epoch, has left, or was evicted."""
        while True:
            try:
                if await self._peers.adopted(other, epoch):
                    return
            except Misdirected:
                return
            except Unanswered:
                try:
                    if await self.evict(other):
                        return
                except HsparseError as error:
                    log.warning("%s could not be evicted: %s", other, error.message)
                await asyncio.sleep(ANSWER_SECONDS)
            except HsparseError as error:  # the member is alive, and could not read the membership
                log.warning("%s has not adopted epoch %d yet: %s", other, epoch, error.message)
                await asyncio.sleep(ANSWER_SECONDS)

    async def _settle_by_lease(self, other: str, epoch: int) -> None:
        """Wait until a member that receives no messages has adopted the epoch, as its lease shows, or was evicted."""
        while True:
            try:
                await self._adopt_after(
                    other, lambda: self._eviction.follow(other, self._ownership.node, epoch)
                )
            except HsparseError as error:
                log.warning("%s has not adopted epoch %d yet: %s", other, epoch, error.message)
                await asyncio.sleep(ANSWER_SECONDS)
            else:
                return

    async def is_alive(self, other: str, *, witnessed: bool = False) -> bool:
        """Return whether a member answers; evict a silent member, or raise `Unanswered` if it may not be evicted.

        `witnessed` means that a node outside the membership asks, because the member has not answered that node.
        """
        if other not in self.view.members:
            raise Misdirected(f"The data node {other} is no longer a member of the cluster.")
        if witnessed:
            await self._witnesses.note(other)
        what = "answers a witness" if witnessed else "answers"
        return await self._tasks.once(what, other, lambda: self._is_alive(other, witnessed))

    async def _is_alive(self, other: str, witnessed: bool) -> bool:
        try:
            await self._peers.adopted(other, self.view.epoch)
        except Unanswered:
            if not await self.evict(other, witnessed=witnessed):
                raise
            return False
        except Misdirected:
            raise
        except HsparseError as error:  # the member is alive, and could not read the membership
            log.warning(
                "%s is alive, but answered %s with an error: %s", other, self._ownership.node, error.message
            )
        return True

    async def evict(self, other: str, *, witnessed: bool = False) -> bool:
        """Evict a member that does not answer; return False if it is alive and may not be evicted."""
        # An eviction for a witness may revoke more leases, so it does not share the task of another eviction.
        what = "evict for a witness" if witnessed else "evict"
        return await self._adopt_after(
            other,
            lambda: self._eviction.evict(other, self._ownership.node, self.view, witnessed=witnessed),
            what,
        )

    async def _adopt_after(
        self,
        other: str,
        evicting: Callable[[], Coroutine[Any, Any, Membership | None]],
        what: str = "evict",
    ) -> bool:
        """Evict a member with the function `evicting` and adopt the new membership; return whether it was evicted."""

        async def evict() -> bool:
            try:
                after = await evicting()
            except Corrupt as error:
                log.error("%s could not be evicted: %s", other, error.message)
                raise Unanswered(f"The data node {other} could not be evicted: {error.message}") from error
            if after is not None:
                await self.adopt(after)
            return after is not None

        return await self._tasks.once(what, other, evict)
