"""The other members of the cluster: connections to them, and whether they answer.

A witness is a node outside the membership that asks about a member, because the member does not answer the witness. The
member that a witness reaches is not cut off.

`NodeTasks` are the tasks of a data node that is a member: they end with the node, and a defect in a task ends the node.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, TypeVar

from hsparse.concurrency.single_flight import SingleFlight
from hsparse.concurrency.staggered import staggered
from hsparse.errors import HsparseError, Misdirected, Unanswered, Unauthenticated
from hsparse.wire.message import AdoptMembership
from hsparse.wire.remote_node import MemberConnections

NO_ANSWERS = (Unanswered, Misdirected, Unauthenticated)
ANSWER_SECONDS = 1.0
"""Seconds within which a live member answers."""


class Peers(MemberConnections):
    """Connections to the other members of the newest membership."""

    async def adopted(self, id: str, epoch: int) -> bool:
        """Ask a member to adopt an epoch; return whether it has done so and has finished its earlier changes.

        `Unanswered` is raised if no reply arrives in time. The message is sent twice if needed, because the first
        packet of a connection may be lost and is retransmitted only after a second.
        """
        asking = partial(self.send, id, AdoptMembership(id, epoch))
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await staggered((asking, asking), ANSWER_SECONDS / 2, (Unanswered,)) >= epoch
        except TimeoutError as error:
            raise Unanswered(f"The data node {id} did not answer within {ANSWER_SECONDS:g} s.") from error

    async def answering(self, ids: Iterable[str], epoch: int) -> set[str]:
        """Return the members that answer and that list this node as a member."""
        some = list(ids)
        replies = await asyncio.gather(*(self.adopted(id, epoch) for id in some), return_exceptions=True)
        for reply in replies:
            if isinstance(reply, BaseException) and not isinstance(reply, HsparseError):
                raise reply
        pairs = zip(some, replies, strict=True)
        return {id for id, reply in pairs if not isinstance(reply, NO_ANSWERS)}


QUESTION_SECONDS = 0.25
"""Seconds for which a question of a witness shows that this node is not cut off."""


class Witnesses:
    """The times at which service nodes, and nodes that join, last asked about each member."""

    def __init__(self) -> None:
        self._times: dict[str, float] = {}
        self._changed = asyncio.Condition()

    async def note(self, member: str) -> None:
        """Record that a witness asks about a member now."""
        now = asyncio.get_running_loop().time()
        self._times = {one: time for one, time in self._times.items() if now - time <= QUESTION_SECONDS}
        self._times[member] = now
        async with self._changed:
            self._changed.notify_all()

    async def ask_about(self, member: str, patience: float) -> bool:
        """Return whether a witness asks about a member within `patience`, or did in the last `QUESTION_SECONDS`."""
        loop = asyncio.get_running_loop()

        def is_fresh() -> bool:
            return member in self._times and loop.time() - self._times[member] <= QUESTION_SECONDS

        try:
            async with asyncio.timeout(patience), self._changed:
                return await self._changed.wait_for(is_fresh)
        except TimeoutError:
            return False


log = logging.getLogger(__name__)

T = TypeVar("T")


class NodeTasks:
    """Tasks that run until `close`. `name` returns the node's id for log lines and errors."""

    def __init__(self, name: Callable[[], str]) -> None:
        self._name = name
        self._once: SingleFlight[tuple[str, str], Any] = SingleFlight(self.start)
        self._tasks: set[asyncio.Task[Any]] = set()
        self.defect = asyncio.Event()
        """Set when a task has failed because of a defect: without the task, the node might own nothing forever."""

    async def once(self, what: str, about: str, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the result of `work`, run once for all concurrent callers; raise `Unanswered` if this node stops."""
        try:
            result: T = await self._once.run((what, about), work)
            return result
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if caller is not None and caller.cancelling():
                raise
            raise Unanswered(f"The data node {self._name()} is stopping.") from None

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a task that is cancelled by `close`."""
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
        """Cancel all tasks and wait for their end."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
