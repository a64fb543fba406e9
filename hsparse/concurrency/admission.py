"""Admission control by time: places for what is under way, a fair queue for them, and refusals before work is spent.

Whoever comes is told at once if its turn would come too late: after its deadline or, while the queue does not empty,
after `queue_wait` seconds, or twice as long as a place is taken lately. A queue of that length keeps all places taken;
a longer one only makes everybody wait. A burst that the places work off within `BURST` seconds is no overload.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from hsparse.concurrency.adaptive_limit import AdaptiveLimit
from hsparse.concurrency.fair_queue import FairQueue
from hsparse.concurrency.request_trace import measured_wait
from hsparse.errors import Busy

BURST = 0.25
"""Seconds for which a queue may be as long as deadlines allow."""
SHORT_QUEUE = 128
"""A queue of so many is only limited by deadlines: clients that each wait for their answers do not overload a node."""
MOST_WAITING = 5000
PLACE_TIMES = 2
MEMORY = 1 / 32
"""The weight of the newest in the mean of the seconds that a place is taken."""
LONGEST_RETRY = 30.0
NO_DEADLINE = math.inf


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
    """Places for as many as the limit allows at a time. One event loop uses it.

    Deadlines are times of that loop. `now` returns seconds of a monotonic clock: the loop's own may be coarse.
    """

    def __init__(
        self,
        limit: AdaptiveLimit,
        queue_wait: float,
        now: Callable[[], float],
        watcher: Watcher | None = None,
        short_queue: int = SHORT_QUEUE,
    ) -> None:
        self._limit = limit
        self._queue_wait = queue_wait
        self._now = now
        self._short_queue = short_queue
        self.watcher = watcher or Watcher()
        self._queue: FairQueue[_Waiter] = FairQueue()
        self._waiting_since = 0.0
        self._mean = 0.0
        self._refused, self._refused_at = 0.0, -math.inf
        self._probe: float | None = None
        self.running = 0

    @property
    def waiting(self) -> int:
        """How many wait for a place."""
        return len(self._queue)

    @property
    def limit(self) -> int:
        """How many may have a place now."""
        return self._limit.value

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
        if self._queue or self.running >= self._limit.value:
            await self._turn(user, deadline, patient, is_gone)
        else:
            self.running += 1
        return Place(self, user, self._measure_lag())

    def left(self, since: float) -> None:
        """Note that a place is free that was taken at a time."""
        now = self._measure_lag()
        self._mean += (now - since - self._mean) * MEMORY
        self._free()

    def congested(self) -> None:
        """Admit fewer at a time: what they need is taken."""
        self._limit.shrink(self._now())

    def refuses(self, user: str, left: float, coming: int = 0, *, patient: bool = False) -> Busy | None:
        """Return the refusal of one of `user` that would come now and has so many seconds left, None for a turn.

        So many are `coming` already that will have their turns before.
        """
        try:
            if self._queue or left <= 0:
                self._check_turn(user, self._now(), left, patient, coming)
        except Busy as error:
            return error
        return None

    def expected_wait(self, user: str, coming: int = 0) -> float:
        """Return an estimate of how long a new one of `user` waits, behind so many that are not here yet."""
        return (self._queue.ahead(user) + coming + 1) * self._mean / self._limit.value

    # --- waiting --------------------------------------------------------------------------------------

    async def _turn(self, user: str, deadline: float, patient: bool, is_gone: Callable[[], bool]) -> None:
        """Wait for a place, which is taken on return."""
        loop, began = asyncio.get_running_loop(), self._now()
        left = deadline - loop.time()
        self._check_turn(user, began, left, patient)
        if not self._queue:
            self._waiting_since = began
        waiter = _Waiter(loop.create_future(), is_gone)
        entry = self._queue.push(user, waiter)
        timer = None if left == NO_DEADLINE else loop.call_later(left, self._expire, waiter)
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
            self.watcher.waited(self._now() - began)

    def _check_turn(self, user: str, now: float, left: float, patient: bool, coming: int = 0) -> None:
        """Raise `Busy` if the turn of a new one would come too late."""
        if left <= 0:
            raise self._refusal(Rejection.DEADLINE, "its time is over")
        allowed = left
        if not patient and self.waiting > self._short_queue and now - self._waiting_since > BURST:
            allowed = min(left, max(self._queue_wait, PLACE_TIMES * self._mean))
        seconds = self.expected_wait(user, coming)
        if seconds > allowed or (self.waiting >= MOST_WAITING and not patient):
            raise self._refusal(Rejection.OVERLOAD, f"its turn would come in {seconds:.2f} s")

    def _refusal(self, reason: Rejection, text: str) -> Busy:
        """Count a refusal, and return the error.

        It says to come back when there is time for those who wait, and for those who were refused a moment ago.
        """
        now = self._now()
        self._refused = self._refused * 0.5 ** min(now - self._refused_at, 60.0) + 1
        self._refused_at = now
        self.watcher.refused(reason)
        seconds = (self.waiting + self._refused) * self._mean / self._limit.value
        again = min(max(1.0, math.ceil(seconds)), LONGEST_RETRY)
        return Busy(
            f"The server has more to do than it can: {self.waiting} wait before this, and {text}; "
            f"try again in {again:.0f} s.",
            again,
        )

    def _expire(self, waiter: _Waiter) -> None:
        if not waiter.admitted.done():
            waiter.admitted.set_exception(self._refusal(Rejection.DEADLINE, "its time is over"))

    def _free(self) -> None:
        self.running -= 1
        self._admit()

    def _admit(self) -> None:
        """Give the free places to those who are next."""
        while self._queue and self.running < self._limit.value:
            waiter = self._queue.pop()
            if waiter.admitted.done():
                continue
            if waiter.is_gone():
                waiter.admitted.set_exception(self._refusal(Rejection.DISCONNECTED, "nobody waits for it"))
                continue
            self.running += 1
            waiter.admitted.set_result(None)

    # --- the event loop -------------------------------------------------------------------------------

    def _measure_lag(self) -> float:
        """Return the time; begin to measure how long the loop takes until its next step, unless that is under way."""
        now = self._now()
        if self._probe is None:
            self._probe = now
            asyncio.get_running_loop().call_soon(self._note_lag)
        return now

    def _note_lag(self) -> None:
        assert self._probe is not None
        now = self._now()
        self._limit.note(now, now - self._probe, bool(self._queue))
        self._probe = None
        self._admit()
