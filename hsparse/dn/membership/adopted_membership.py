"""The membership that a data node has adopted: settled before the node owns what it gives, left for a newer one.

A membership is *settled* at a node once every other member has adopted it and has finished the changes that it accepted
before, or was evicted. Until then, and whenever its lease does not hold, a node owns nothing.

Tests: tests/dn/membership/test_member_node.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from hsparse.cluster.membership import Membership
from hsparse.cluster.membership_object import MembershipObject
from hsparse.concurrency.gather import gather_all
from hsparse.dn.membership.eviction import Eviction
from hsparse.dn.membership.ownership import MemberOwnership
from hsparse.dn.membership.peers import PATIENCE, Peers
from hsparse.errors import HsparseError, Misdirected, Unanswered

log = logging.getLogger(__name__)

T = TypeVar("T")

SETTLING = 10.0
"""Seconds that a change waits for a membership to be settled, or for a lease."""
FINISHING = 0.3
"""Seconds that the answer to `AdoptMembership` waits for earlier changes: it also tells that this node is alive."""
Kept = Callable[[str], bool]


class AdoptedMembership:
    """The newest membership that a node knows of. `doubt` is told which names the node owned before and after."""

    def __init__(
        self,
        ownership: MemberOwnership,
        stored: MembershipObject,
        peers: Peers,
        eviction: Eviction,
        doubt: Callable[[Kept], None],
    ) -> None:
        self._ownership = ownership
        self._stored = stored
        self._peers = peers
        self._eviction = eviction
        self._doubt = doubt
        self._running: Counter[int] = Counter()
        """How many changes are being carried out that were accepted in each epoch."""
        self._changed = asyncio.Condition()
        """Notified when a membership is adopted or settled, when a lease holds again, and when changes have ended."""
        self._once: dict[tuple[str, str], asyncio.Task[Any]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self.defect = asyncio.Event()
        """Set when a task has failed by a defect: without it this node might own nothing for ever."""
        self._settling: asyncio.Task[None] | None = None

    @property
    def view(self) -> Membership:
        """The membership."""
        return self._ownership.membership

    # --- adopting -------------------------------------------------------------------------------------

    async def adopt(self, view: Membership, *, renewed: bool = False) -> None:
        """Adopt a newer membership, or the same one `renewed` after the lease was lost."""
        before, own = self.view, self._ownership.node
        if view.epoch < before.epoch or (view.epoch == before.epoch and not renewed):
            return
        self._ownership.settled = False
        self._ownership.membership = view
        both = own in before.nodes and own in view.nodes and not renewed
        self._doubt(lambda name: both and before.owner(name) == own == view.owner(name))
        if self._settling is not None:
            self._settling.cancel()
        self._settling = self.start(self._settle(view)) if own in view.nodes else None
        await self._peers.follow(view)
        await self.notify()

    async def adopt_newest(self) -> None:
        """Adopt the membership in the store."""
        await self._only_once("read", "", lambda: self._adopt_stored())

    async def _adopt_stored(self) -> None:
        await self.adopt(await self._stored.read())

    def require(self, epoch: int) -> None:
        """Raise `Misdirected` unless the membership is that of `epoch`."""
        if epoch != self.view.epoch:
            raise Misdirected(f"This data node is in epoch {self.view.epoch}, the message in {epoch}.")

    def renounce(self) -> None:
        """Own nothing any more until a membership is adopted again, and store no change that was accepted so far."""
        self._ownership.term += 1
        self._ownership.settled = False
        self._doubt(lambda name: False)

    # --- changes under way ----------------------------------------------------------------------------

    async def wait_in_force(self, epoch: int) -> None:
        """Wait until this node owns what the membership of `epoch` gives it; `Misdirected` when that is replaced."""
        ownership = self._ownership
        if not ownership.in_force:
            try:
                async with asyncio.timeout(SETTLING), self._changed:
                    await self._changed.wait_for(lambda: ownership.in_force or self.view.epoch != epoch)
            except TimeoutError as error:
                raise Unanswered(f"The data node {ownership.node} owns nothing yet; try again.") from error
        self.require(epoch)

    @contextmanager
    def running_change(self) -> Iterator[None]:
        """Count a change that is accepted now while the context lasts."""
        epoch = self.view.epoch
        self._running[epoch] += 1
        try:
            with self._ownership.accepting():
                yield
        finally:
            self._running[epoch] -= 1
            if not self._running[epoch]:
                del self._running[epoch]
                if epoch != self.view.epoch:  # only the end of earlier changes is waited for
                    self.start(self.notify())

    async def finished(self, epoch: int) -> bool:
        """Wait a moment until no change runs that was accepted before `epoch`, and say whether that is so."""
        try:
            async with asyncio.timeout(FINISHING), self._changed:
                await self._changed.wait_for(lambda: all(one >= epoch for one in self._running))
        except TimeoutError:
            return False
        return True

    async def notify(self) -> None:
        """Let those that wait look again."""
        async with self._changed:
            self._changed.notify_all()

    # --- settling -------------------------------------------------------------------------------------

    async def _settle(self, view: Membership) -> None:
        others = [other for other in view.members if other != self._ownership.node]
        await gather_all([self._settle_with(other, view.epoch) for other in others])
        if self.view is view:
            self._ownership.settled = True
            await self.notify()

    async def _settle_with(self, other: str, epoch: int) -> None:
        """Return once another member has adopted the epoch, has left, or was evicted."""
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
                await asyncio.sleep(PATIENCE)
            except HsparseError as error:  # it is alive, and could not read the membership itself
                log.warning("%s has not adopted epoch %d yet: %s", other, epoch, error.message)
                await asyncio.sleep(PATIENCE)

    async def answers(self, other: str) -> bool:
        """Say whether a member answers; one that does not is evicted. `Unanswered` if it may not be evicted."""
        if other not in self.view.members:
            raise Misdirected(f"{other} is no member any more.")
        return await self._only_once("answers", other, lambda: self._answers(other))

    async def _answers(self, other: str) -> bool:
        try:
            await self._peers.adopted(other, self.view.epoch)
        except Unanswered:
            if not await self.evict(other):
                raise
            return False
        return True

    async def evict(self, other: str) -> bool:
        """Evict a member that does not answer; False if it is alive and may not be evicted."""
        return await self._only_once("evict", other, lambda: self._evict(other))

    async def _evict(self, other: str) -> bool:
        after = await self._eviction.evict(other, self._ownership.node, self.view)
        if after is not None:
            await self.adopt(after)
        return after is not None

    # --- tasks ----------------------------------------------------------------------------------------

    async def _only_once(self, what: str, about: str, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return what `work` returns, done once for all who wait for it; `Unanswered` when this node stops."""
        task = self._once.get((what, about))
        if task is None:
            task = self._once[what, about] = self.start(work())
            task.add_done_callback(lambda _: self._once.pop((what, about)))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise Unanswered(f"The data node {self._ownership.node} is stopping.") from None
            raise

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a task that ends with this node."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, HsparseError):
            log.error("a task of the data node %s failed", self._ownership.node, exc_info=error)
            self.defect.set()

    async def close(self) -> None:
        """End the tasks."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
