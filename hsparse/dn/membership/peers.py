"""The other members of the cluster: connections to them, and whether they answer.

Witnesses are nodes outside the membership that ask about a member which does not answer them. A member that they reach
is not the one that is cut off.

The tasks of a data node that is a member: they end with it, and a defect in one ends it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, TypeVar

from hsparse.compute import staggered
from hsparse.errors import HsparseError, Misdirected, Unanswered, Unauthenticated
from hsparse.wire.message import AdoptMembership
from hsparse.wire.remote_node import MemberConnections

NO_ANSWERS = (Unanswered, Misdirected, Unauthenticated)
PATIENCE = 1.0
"""Seconds in which a member answers that is alive."""


class Peers(MemberConnections):
    """Connections to the other members of the newest membership."""

    async def adopted(self, id: str, epoch: int) -> bool:
        """Have a member adopt an epoch; say whether it has, and has finished what it accepted before.

        `Unanswered` when it gives no reply in time. It is sent twice if need be: the first packet of a connection may
        be lost, and is repeated only after a second.
        """
        asking = partial(self.send, id, AdoptMembership(id, epoch))
        try:
            async with asyncio.timeout(PATIENCE):
                return await staggered((asking, asking), PATIENCE / 2, (Unanswered,)) >= epoch
        except TimeoutError as error:
            raise Unanswered(f"The data node {id} did not answer within {PATIENCE:g} s.") from error

    async def answering(self, ids: Iterable[str], epoch: int) -> set[str]:
        """Return those of some members that answer, and take this node for one of theirs."""
        some = list(ids)
        replies = await asyncio.gather(*(self.adopted(id, epoch) for id in some), return_exceptions=True)
        for reply in replies:
            if isinstance(reply, BaseException) and not isinstance(reply, HsparseError):
                raise reply
        pairs = zip(some, replies, strict=True)
        return {id for id, reply in pairs if not isinstance(reply, NO_ANSWERS)}


FRESH = 0.25
"""Seconds for which it counts that somebody has asked: this node may have been cut off after it."""


class Witnesses:
    """The times at which service nodes, and nodes that join, asked about members."""

    def __init__(self) -> None:
        self._times: dict[str, float] = {}
        self._changed = asyncio.Condition()

    async def note(self, member: str) -> None:
        """Note that somebody outside asks about a member, now."""
        now = asyncio.get_running_loop().time()
        self._times = {one: time for one, time in self._times.items() if now - time <= FRESH}
        self._times[member] = now
        async with self._changed:
            self._changed.notify_all()

    async def ask_about(self, member: str, patience: float) -> bool:
        """Wait until somebody asks about a member who has just asked, or asks again; False if nobody does in time."""
        loop = asyncio.get_running_loop()

        def is_fresh() -> bool:
            return member in self._times and loop.time() - self._times[member] <= FRESH

        try:
            async with asyncio.timeout(patience), self._changed:
                return await self._changed.wait_for(is_fresh)
        except TimeoutError:
            return False


log = logging.getLogger(__name__)

T = TypeVar("T")


class NodeTasks:
    """Tasks until `close`. `name` returns the node's id, for messages."""

    def __init__(self, name: Callable[[], str]) -> None:
        self._name = name
        self._once: dict[tuple[str, str], asyncio.Task[Any]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self.defect = asyncio.Event()
        """Set when a task has failed by a defect: it might own nothing for ever."""

    async def once(self, what: str, about: str, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return what `work` returns, done once for all who wait for it; `Unanswered` when this node stops."""
        task = self._once.get((what, about))
        if task is None:
            task = self._once[what, about] = self.start(work())
            task.add_done_callback(lambda _: self._once.pop((what, about)))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise Unanswered(f"The data node {self._name()} is stopping.") from None
            raise
        finally:
            del task  # an error has this frame, and would have itself

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
            log.error("a task of the data node %s failed", self._name(), exc_info=error)
            self.defect.set()

    async def close(self) -> None:
        """End the tasks."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
