"""Admission control by time: places for what is under way, a fair queue for them, and refusals before work is spent.

Whoever comes is told at once if its turn would come too late: after its deadline or, when the queue has not been empty
for `BURST` seconds, behind more than `QUEUE` for each place. Such a queue keeps all places taken; a longer one only
makes everybody wait.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from hsparse.concurrency.fair_queue import FairQueue
from hsparse.concurrency.request_trace import measured_wait
from hsparse.errors import Busy

BURST = 0.25
"""Seconds for which a queue may be as long as deadlines allow."""
QUEUE = 2
"""How many may wait before a new one, for each place, when the queue does not empty."""
MEMORY = 1 / 32
"""The weight of the newest in the mean of the seconds that a place is taken."""
LONGEST_RETRY = 30.0
NO_DEADLINE = math.inf
TOO_LATE = "its time is over"


class Rejection(StrEnum):
    """Why something was not admitted."""

    OVERLOAD = "overload"
    """Its turn would have come too late."""
    DEADLINE = "deadline"
    """Its deadline has passed, before it came or while it waited."""
    DISCONNECTED = "disconnected"
    """Nobody waits for it any more."""


@dataclass(frozen=True, slots=True)
class Watcher:
    """What is told of the queue, for metrics: seconds that something waited for its turn, and refusals."""

    waited: Callable[[float], None] = lambda seconds: None
    refused: Callable[[Rejection], None] = lambda reason: None


class Place:
    """A place that is taken until `leave`; it may be left more than once, and taken again in between."""

    __slots__ = ("_admission", "_since", "user")

    def __init__(self, admission: Admission, user: str, since: float) -> None:
        self._admission = admission
        self._since: float | None = since
        self.user = user

    def leave(self) -> None:
        """Leave the place to the next; nothing if it was left before."""
        if self._since is not None:
            since, self._since = self._since, None
            self._admission.left(since)

    async def regain(self, deadline: float = NO_DEADLINE) -> None:
        """Take a place again, in turn: work was spent, so that only a deadline is a reason for `Busy`."""
        if self._since is None:
            self._since = (await self._admission.enter(self.user, deadline, patient=True))._since


@dataclass(slots=True)
class _Waiter:
    admitted: asyncio.Future[None]
    is_gone: Callable[[], bool]


class Admission:
    """Places for so many at a time. One event loop uses it; deadlines are times of that loop."""

    def __init__(self, places: int, watcher: Watcher | None = None) -> None:
        self._places = places
        self.watcher = watcher or Watcher()
        self._queue: FairQueue[_Waiter] = FairQueue()
        self._waiting_since = 0.0
        self._mean = 0.0
        self._refused, self._refused_at = 0.0, -math.inf
        self.running = 0

    @property
    def waiting(self) -> int:
        """How many wait for a place."""
        return len(self._queue)

    async def enter(
        self,
        user: str,
        deadline: float = NO_DEADLINE,
        *,
        patient: bool = False,
        is_gone: Callable[[], bool] = lambda: False,
    ) -> Place:
        """Return a place, after all whose turn is before this one of `user`; `Busy` when that is too late.

        One who is `patient` is refused for a deadline alone. `is_gone` says whether nobody waits for it any more.
        """
        if self._queue or self.running >= self._places:
            await self._turn(user, deadline, patient, is_gone)
        elif deadline <= _now():
            raise self._refusal(Rejection.DEADLINE, TOO_LATE)
        else:
            self.running += 1
        return Place(self, user, _now())

    def left(self, since: float) -> None:
        """Note that a place is free that was taken at a time."""
        self._mean += (_now() - since - self._mean) * MEMORY
        self._free()

    async def _turn(self, user: str, deadline: float, patient: bool, is_gone: Callable[[], bool]) -> None:
        """Wait for a place, which is taken on return."""
        loop, began = asyncio.get_running_loop(), _now()
        self._check_turn(user, deadline - began, patient)
        if not self._queue:
            self._waiting_since = began
        waiter = _Waiter(loop.create_future(), is_gone)
        entry = self._queue.push(user, waiter)
        timer = None if deadline == NO_DEADLINE else loop.call_at(deadline, self._expire, waiter)
        try:
            with measured_wait():
                await waiter.admitted
        except BaseException:
            self._queue.remove(entry)
            if waiter.admitted.done() and not waiter.admitted.cancelled() and not waiter.admitted.exception():
                self._free()  # admitted and cancelled in the same step
            raise
        finally:
            if timer is not None:
                timer.cancel()
            self.watcher.waited(_now() - began)

    def _check_turn(self, user: str, left: float, patient: bool) -> None:
        """Raise `Busy` if the turn of a new one, which has so many seconds left, would come too late."""
        if left <= 0:
            raise self._refusal(Rejection.DEADLINE, TOO_LATE)
        ahead = self._queue.ahead(user)
        seconds = (ahead + 1) * self._mean / self._places
        too_many = ahead >= QUEUE * self._places and _now() - self._waiting_since > BURST and not patient
        if too_many or seconds > left:
            raise self._refusal(Rejection.OVERLOAD, f"its turn would come in {seconds:.2f} s")

    def _refusal(self, reason: Rejection, text: str) -> Busy:
        """Count a refusal, and return the error.

        It says to come back when there is time for those who wait, and for those who were refused a moment ago.
        """
        now = _now()
        self._refused = self._refused * 0.5 ** min(now - self._refused_at, 60.0) + 1
        self._refused_at = now
        self.watcher.refused(reason)
        seconds = (self.waiting + self._refused) * self._mean / self._places
        again = min(max(1.0, math.ceil(seconds)), LONGEST_RETRY)
        return Busy(
            f"The server has more to do than it can: {self.waiting} wait before this, and {text}; "
            f"try again in {again:.0f} s.",
            again,
        )

    def _expire(self, waiter: _Waiter) -> None:
        if not waiter.admitted.done():
            waiter.admitted.set_exception(self._refusal(Rejection.DEADLINE, TOO_LATE))

    def _free(self) -> None:
        """Give a place back, and the free ones to those who are next."""
        self.running -= 1
        while self._queue and self.running < self._places:
            waiter = self._queue.pop()
            if waiter.admitted.done():
                continue
            if waiter.is_gone():
                waiter.admitted.set_exception(self._refusal(Rejection.DISCONNECTED, "nobody waits for it"))
                continue
            self.running += 1
            waiter.admitted.set_result(None)


def _now() -> float:
    return asyncio.get_running_loop().time()
