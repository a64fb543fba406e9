"""A memory budget: admission control by bytes. Requests wait for room, fairly by user, then fail as `Busy`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType

from hsparse.concurrency.fair_queue import FairQueue
from hsparse.concurrency.request_trace import current_trace, measured_wait, queue_user, seconds_left
from hsparse.errors import Busy, TooLarge

PATIENCE = 30.0
"""Seconds that a request waits for room."""
SMALL = 1024 * 1024
"""Bytes that a reservation has for nothing: most objects take less, and few are worked on at a time."""


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


class Reservation:
    """What the users of one object hold of a budget together: the most that any asked for, until the last one leaves.

    Whoever holds some for one object must not wait for another one's: so no two wait for each other. `remedy` ends the
    error about an object that the whole budget has no room for.
    """

    __slots__ = ("_budget", "_held", "_name", "_remedy", "_taking", "_users")

    def __init__(self, budget: MemoryBudget, name: str, remedy: str) -> None:
        self._budget = budget
        self._name = name
        self._remedy = remedy
        self._users = 0
        self._held = 0
        self._taking: asyncio.Lock | None = None

    def __enter__(self) -> None:
        self._users += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._users -= 1
        if not self._users:
            self._give_back()

    def check(self, nbytes: int) -> None:
        """Raise `TooLarge` if the whole budget has no room for so many bytes."""
        if nbytes > self._budget.limit:
            raise TooLarge(
                f"{self._name} takes {nbytes} bytes of memory, of {self._budget.limit} that this server has for it: "
                f"{self._remedy}."
            )

    async def take(self, nbytes: int) -> None:
        """Hold at least `nbytes`; raises as `check` and `MemoryBudget.hold`."""
        if nbytes <= max(SMALL, self._held):
            return
        self.check(nbytes)
        if self._taking is None:
            self._taking = asyncio.Lock()
        async with self._taking:
            if nbytes > self._held:
                # What is held goes first: two that held some and waited for more would wait for each other.
                self._give_back()
                self._held = await self._budget.take(nbytes)
            if not self._users:
                self._give_back()

    def _give_back(self) -> None:
        if self._held:
            self._budget.give_back(self._held)
            self._held = 0
