"""A memory budget: admission control by bytes. Requests wait for room, in fair turns of users, or fail as `Busy`.

`FairQueue` is fair between users: one user's thousand entries delay another user's entry by one turn only.

It uses start-time fair queueing (Goyal, Vin and Cheng, 1996): an entry starts, in virtual time, where its user's
previous entry ends, and entries are served in the order of their starts. Virtual time is the start of the entry that
was served last, so no clock is needed.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, insort
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from hsparse.concurrency.request_trace import current_trace, measured_wait, queue_user, seconds_left
from hsparse.errors import Busy

T = TypeVar("T")

MAX_IDLE_USERS = 1000
"""The maximum number of remembered users without entries. Beyond this, users who are not behind are forgotten."""

LOOKED_AT = 100
"""How many entries `pop_of` examines to find a user who may be served, because each examination takes time."""

Order: TypeAlias = tuple[float, int]
"""The position of an entry. The entry with the greatest position is served first: it is at the end of a list."""


@dataclass(frozen=True, slots=True)
class QueueEntry(Generic[T]):
    """An entry of the queue: an item with its user, cost and position."""

    order: Order
    user: str
    item: T
    cost: float


class FairQueue(Generic[T]):
    """Items by user, each with a cost: users who always have items waiting are served equal costs.

    The cost is the weight of an item: bytes in a queue for memory, 1 in a queue for turns. All users have equal shares.
    """

    def __init__(self) -> None:
        self._orders: list[Order] = []
        self._entries: dict[Order, QueueEntry[T]] = {}
        self._ends: dict[str, float] = {}
        self._counts: dict[str, int] = {}
        self._now = 0.0
        self._pushed = 0

    def __len__(self) -> int:
        return len(self._orders)

    def ahead(self, user: str) -> int:
        """Return how many entries would be served before an entry that `user` pushed now."""
        return len(self._orders) - bisect_left(self._orders, self._next_order(user))

    def push(self, user: str, item: T, cost: float = 1.0) -> QueueEntry[T]:
        """Add an item, and return its entry, which `remove` takes."""
        order = self._next_order(user)
        self._pushed += 1
        self._ends[user] = cost - order[0]
        self._counts[user] = self._counts.get(user, 0) + 1
        insort(self._orders, order)
        entry = self._entries[order] = QueueEntry(order, user, item, cost)
        return entry

    def peek(self) -> QueueEntry[T]:
        """Return the next entry."""
        return self._entries[self._orders[-1]]

    def pop(self) -> T:
        """Remove the next item and return it."""
        return self._take(-1)

    def pop_of(self, may: Callable[[str], bool]) -> T | None:
        """Remove and return the next item whose user passes `may`, or None if none is among the first `LOOKED_AT`."""
        passed: set[str] = set()
        for number in range(1, min(len(self._orders), LOOKED_AT) + 1):
            user = self._entries[self._orders[-number]].user
            if user in passed:
                continue
            if may(user):
                return self._take(-number)
            passed.add(user)
        return None

    def remove(self, entry: QueueEntry[T]) -> None:
        """Remove an entry that was not served; do nothing if it is not in the queue any more."""
        if self._entries.pop(entry.order, None) is None:
            return
        del self._orders[bisect_left(self._orders, entry.order)]
        if self._counts[entry.user] == 1:
            # Costs that were not served do not count: a user without waiting entries is at most one turn behind.
            self._ends[entry.user] = min(self._ends[entry.user], self._now + entry.cost)
        self._forget(entry)

    def _take(self, index: int) -> T:
        order = self._orders.pop(index)
        entry = self._entries.pop(order)
        self._now = max(self._now, -order[0])
        self._forget(entry)
        return entry.item

    def _next_order(self, user: str) -> Order:
        return -max(self._now, self._ends.get(user, 0.0)), -self._pushed

    def _forget(self, entry: QueueEntry[T]) -> None:
        """Forget the data of an entry that has left the queue, and of users who are not behind the others."""
        if self._counts[entry.user] == 1:
            del self._counts[entry.user]
        else:
            self._counts[entry.user] -= 1
        if not self._orders:
            self._ends.clear()
            self._now = 0.0
        elif len(self._ends) > 2 * len(self._counts) + MAX_IDLE_USERS:
            self._ends = {
                user: end for user, end in self._ends.items() if end > self._now or user in self._counts
            }


MAX_WAIT_SECONDS = 30.0
"""The maximum number of seconds that a request waits for room."""


@dataclass(frozen=True, slots=True)
class _Waiter:
    nbytes: int
    admitted: asyncio.Future[None]


class MemoryBudget:
    """A budget of bytes that may be in use at a time; users who wait are admitted in turns of equal bytes.

    Nobody is admitted before the request whose turn it is, so a large request is admitted in the end.
    """

    def __init__(self, limit: int, patience: float = MAX_WAIT_SECONDS) -> None:
        self.limit = limit
        self._patience = patience
        self._waiting: FairQueue[_Waiter] = FairQueue()
        self._waiters = 0
        self.used = 0

    def has_room(self, nbytes: int) -> bool:
        """Return whether `hold` would not wait."""
        return not self._waiters and self.used + min(nbytes, self.limit) <= self.limit

    @property
    def is_waited_for(self) -> bool:
        """Whether any request waits for room."""
        return bool(self._waiting)

    @asynccontextmanager
    async def hold(self, nbytes: int) -> AsyncIterator[None]:
        """Hold `nbytes`, at most the whole budget; raise `Busy` after `patience` seconds or the deadline."""
        nbytes = await self.take(nbytes)
        try:
            yield
        finally:
            self.give_back(nbytes)

    async def hold_for_request(self, nbytes: int) -> None:
        """Hold `nbytes` until the current request is answered; raises as `hold`.

        A request that already holds a part of the budget takes no more, so that requests cannot deadlock. Nothing is
        held outside a request.
        """
        trace = current_trace()
        if trace is None or self in trace.holds:
            return
        trace.holds.add(self)
        nbytes = await self.take(nbytes)
        trace.at_end(lambda: self.give_back(nbytes))

    async def take(self, nbytes: int) -> int:
        """Wait for room for `nbytes`, at most the whole budget; take and return these bytes. Raises as `hold`."""
        nbytes = min(nbytes, self.limit)
        if self.has_room(nbytes):
            self.used += nbytes
        else:
            await self._wait(nbytes)
        return nbytes

    def give_back(self, nbytes: int) -> None:
        """Give back the bytes that `take` returned."""
        self.used -= nbytes
        if self._waiters:
            self._admit()

    async def _wait(self, nbytes: int) -> None:
        """Wait for room and take it."""
        loop, left = asyncio.get_running_loop(), seconds_left()
        patience = self._patience if left is None else min(self._patience, left)
        waiter = _Waiter(nbytes, loop.create_future())
        self._waiters += 1
        entry = self._waiting.push(queue_user(), waiter, nbytes)
        try:
            async with asyncio.timeout(patience):
                with measured_wait():
                    await waiter.admitted
        except BaseException as error:
            self._waiting.remove(entry)
            if waiter.admitted.done() and not waiter.admitted.cancelled():
                self.used -= nbytes
            self._admit()
            if isinstance(error, TimeoutError):
                raise Busy(f"No room for {nbytes} bytes within {patience:g} s; try again.") from error
            raise
        finally:
            self._waiters -= 1

    def _admit(self) -> None:
        while self._waiting and self.used + self._waiting.peek().item.nbytes <= self.limit:
            waiter = self._waiting.pop()
            if not waiter.admitted.done():
                self.used += waiter.nbytes
                waiter.admitted.set_result(None)
