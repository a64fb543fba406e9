"""A queue that is fair between users: one user's thousand entries delay another's one by a turn, not by a thousand.

Start-time fair queueing (Goyal, Vin and Cheng, 1996): an entry starts, in virtual time, where the one before it of the
same user ends, and entries are served in the order of their starts. There is no clock: virtual time is the start of the
entry that was served last.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

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
