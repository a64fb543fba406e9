"""A memory budget: admission control by bytes. Requests wait for room, fairly by user, then fail as `Busy`.

A queue that is fair between users: one user's thousand entries delay another's one by a turn, not by a thousand.

Start-time fair queueing (Goyal, Vin and Cheng, 1996): an entry starts, in virtual time, where the one before it of the
same user ends, and entries are served in the order of their starts. There is no clock: virtual time is the start of the
entry that was served last.
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

REMEMBERED = 1000
"""Users without entries that are remembered before they are looked through."""

LOOKED_AT = 100
"""Entries of users who may not that are passed over: each costs a little every time."""

Order: TypeAlias = tuple[float, int]
"""The place of an entry: the greatest is served first, so that it is popped from a list's end."""


@dataclass(frozen=True, slots=True)
class Entry(Generic[T]):
    """An item in the queue."""

    order: Order
    user: str
    item: T
    cost: float


class FairQueue(Generic[T]):
    """Items by user, each with a cost: users who always wait are served equal costs, whatever the others push.

    A cost is the weight of an item: bytes where memory is waited for, 1 where turns are. Users count alike.
    """

    def __init__(self) -> None:
        self._orders: list[Order] = []
        self._entries: dict[Order, Entry[T]] = {}
        self._ends: dict[str, float] = {}
        self._counts: dict[str, int] = {}
        self._now = 0.0
        self._pushed = 0

    def __len__(self) -> int:
        return len(self._orders)

    def ahead(self, user: str) -> int:
        """Return how many entries would be served before one that `user` pushed now."""
        return len(self._orders) - bisect_left(self._orders, self._next_order(user))

    def push(self, user: str, item: T, cost: float = 1.0) -> Entry[T]:
        """Add an item; the entry is what `remove` takes."""
        order = self._next_order(user)
        self._pushed += 1
        self._ends[user] = cost - order[0]
        self._counts[user] = self._counts.get(user, 0) + 1
        insort(self._orders, order)
        entry = self._entries[order] = Entry(order, user, item, cost)
        return entry

    def peek(self) -> Entry[T]:
        """Return the next entry."""
        return self._entries[self._orders[-1]]

    def pop(self) -> T:
        """Return the next item, and remove it."""
        return self._take(-1)

    def pop_of(self, may: Callable[[str], bool]) -> T | None:
        """Return the next item of a user who may, and remove it; None if there is none among the first `LOOKED_AT`."""
        passed: set[str] = set()
        for number in range(1, min(len(self._orders), LOOKED_AT) + 1):
            user = self._entries[self._orders[-number]].user
            if user in passed:
                continue
            if may(user):
                return self._take(-number)
            passed.add(user)
        return None

    def remove(self, entry: Entry[T]) -> None:
        """Take an entry back that was not served; nothing for one that is not there any more."""
        if self._entries.pop(entry.order, None) is None:
            return
        del self._orders[bisect_left(self._orders, entry.order)]
        if self._counts[entry.user] == 1:
            # What was never served is not counted: a user with nothing waiting is at most one turn behind.
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

    def _forget(self, entry: Entry[T]) -> None:
        """Forget what an entry that is gone leaves behind, and users who are not behind the others."""
        if self._counts[entry.user] == 1:
            del self._counts[entry.user]
        else:
            self._counts[entry.user] -= 1
        if not self._orders:
            self._ends.clear()
            self._now = 0.0
        elif len(self._ends) > 2 * len(self._counts) + REMEMBERED:
            self._ends = {
                user: end for user, end in self._ends.items() if end > self._now or user in self._counts
            }


PATIENCE = 30.0
"""Seconds that a request waits for room."""


@dataclass(frozen=True, slots=True)
class _Waiter:
    nbytes: int
    admitted: asyncio.Future[None]


class MemoryBudget:
    """A budget of bytes that may be in use at a time; users who wait are admitted by turns, of equal bytes.

    Nobody is admitted before the one whose turn it is, so that much memory is got in the end, too.
    """

    def __init__(self, limit: int, patience: float = PATIENCE) -> None:
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
        """Say whether anyone waits for room."""
        return bool(self._waiting)

    @asynccontextmanager
    async def hold(self, nbytes: int) -> AsyncIterator[None]:
        """Hold `nbytes` (at most the whole budget); `Busy` without room in `patience` seconds, or by the deadline."""
        nbytes = await self.take(nbytes)
        try:
            yield
        finally:
            self.give_back(nbytes)

    async def hold_for_request(self, nbytes: int) -> None:
        """Hold `nbytes` until the current request is answered; raises as `hold`.

        A request that holds some already takes no more, so that no two wait for each other. Nothing is held for what is
        no request.
        """
        trace = current_trace()
        if trace is None or self in trace.holds:
            return
        trace.holds.add(self)
        nbytes = await self.take(nbytes)
        trace.at_end(lambda: self.give_back(nbytes))

    async def take(self, nbytes: int) -> int:
        """Wait for room for `nbytes`, or the whole budget, and take it; return how much that is. Raises as `hold`."""
        nbytes = min(nbytes, self.limit)
        if self.has_room(nbytes):
            self.used += nbytes
        else:
            await self._wait(nbytes)
        return nbytes

    def give_back(self, nbytes: int) -> None:
        """Give back what `take` returned."""
        self.used -= nbytes
        if self._waiters:
            self._admit()

    async def _wait(self, nbytes: int) -> None:
        """Wait for room, which is taken on return."""
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
