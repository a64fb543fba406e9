"""Admission control by time: places for what is under way, a fair queue for them, and refusals before work is spent.

Whoever comes is told at once if its turn would come too late: after its deadline or, when the queue has not been empty
for `BURST` seconds, later than in `QUEUE` seconds, with `MANY` there already for each place. Such a queue keeps all
places taken; a longer one only makes everybody wait.

A limit that follows the lag of the event loop: what is begun while the loop is behind only makes all of it late.

While the loop has time to spare, more at once is more done: they wait for a store or a thread. When it has none, each
one more takes a turn of every other's. Timers that fire late while the loop's thread computes tell the two apart,
whatever the work is. Late timers alone do not: other processes may have kept it from the CPU between short steps.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from time import thread_time

from hsparse.concurrency.memory_budget import Entry, FairQueue
from hsparse.concurrency.request_trace import measured_wait
from hsparse.errors import Busy

FEW = 8
"""The limit is never below: so many share group commits and keep threads busy."""
TICK = 0.002
"""Seconds between looks."""
LAG = 0.0015
"""Seconds by which timers may be late, in the mean."""
LONGEST = 0.004
"""Seconds that count of one lag: a loop that stood still at times, and was idle in between, is not short of time."""
NEWEST = 1 / 8
"""The weight of the newest lag in the mean."""
BUSY = 0.6
"""The part of the time that the loop's thread has the CPU, from which it has little to spare."""
STEP = 8
"""The limit changes by this part of itself."""


class PacedLimit:
    """How many things one event loop works on at once, at most `most`; `value` is the limit now.

    `each` is the limit for each user when there are several. It falls as soon as the loop has little time to spare:
    what one has begun is in the way of each step of every other's long before timers are late.
    Both change while `is_busy()`, from `watch` on; `raised` is called when one has grown.
    """

    def __init__(self, most: int, is_busy: Callable[[], bool], raised: Callable[[], None]) -> None:
        self.value = self.each = self._most = most
        self.few = min(FEW, most)
        """The least that the limit can be."""
        self._is_busy = is_busy
        self._raised = raised
        self._lag = 0.0
        self._last = 0.0, 0.0
        self._cpu = self._passed = 0.0
        self._watching = False

    def watch(self) -> None:
        """Follow the lag for as long as there is enough under way."""
        if not self._watching:
            self._watching = True
            self._last = asyncio.get_running_loop().time(), thread_time()
            self._look_later()

    def _look_later(self) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(TICK, self._look, loop.time() + TICK)

    def _look(self, due: float) -> None:
        now = asyncio.get_running_loop().time(), thread_time()
        self._lag += (min(now[0] - due, LONGEST) - self._lag) * NEWEST
        self._passed += now[0] - self._last[0] - self._passed * NEWEST
        self._cpu += now[1] - self._last[1] - self._cpu * NEWEST
        self._last = now
        computes = self._cpu > BUSY * self._passed
        before = self.value, self.each
        self.value = self._changed(self.value, self.few, falls=computes and self._lag > LAG)
        self.each = self._changed(self.each, 1, falls=computes)
        if self.value > before[0] or self.each > before[1]:
            self._raised()
        self._watching = self._is_busy()
        if self._watching:
            self._look_later()

    def _changed(self, value: int, least: int, *, falls: bool) -> int:
        step = max(1, value // STEP)
        return max(least, value - step) if falls else min(self._most, value + step)


BURST = 0.25
"""Seconds for which a queue may be as long as deadlines allow."""
QUEUE = 0.1
"""Seconds to wait for a turn when the queue does not empty."""
MANY = 2
"""How many may be there, under way or waiting, for each place that there can be, however long that takes."""
FEWEST = 2
"""Places that each user can have."""
MEMORY = 1 / 32
"""The weight of the newest in the mean of the seconds that a place is taken."""
LONGEST_RETRY = 30.0
NO_DEADLINE = math.inf
TIME_OVER = "its time is over"
TOO_LATE = "its turn would come too late"


RECENT = 1.0
"""Seconds: a user who came in this time, or in as much before it, is there."""


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


def never() -> bool:
    """Return that somebody waits, as far as is known."""
    return False


class Place:
    """A place that is taken until `leave`; it may be left more than once, and taken again in between."""

    __slots__ = ("_admission", "_since", "_taken_by", "user")

    def __init__(self, admission: Admission, user: str, since: float) -> None:
        self._admission = admission
        self._since: float | None = since
        self._taken_by = user
        self.user = user
        """Who takes it again; the one who took it may have been known by an address alone."""

    def leave(self) -> None:
        """Leave the place to the next; nothing if it was left before."""
        if self._since is not None:
            since, self._since = self._since, None
            self._admission.left(since, self._taken_by)

    async def regain(self, deadline: float = NO_DEADLINE) -> None:
        """Take a place again, in turn: work was spent, so that only a deadline is a reason for `Busy`."""
        if self._since is None:
            place = await self._admission.enter(self.user, deadline, patient=True)
            self._since, self._taken_by = place._since, place._taken_by


class PlaceWait:
    """A wait for a place: `place` is set to it when the turn has come, or to `Busy`."""

    __slots__ = ("_admission", "began", "entry", "is_gone", "place", "timer", "user")

    def __init__(self, admission: Admission, user: str, is_gone: Callable[[], bool]) -> None:
        loop = asyncio.get_running_loop()
        self.place: asyncio.Future[Place] = loop.create_future()
        self.began = loop.time()
        self.user = user
        self.is_gone = is_gone
        self.entry: Entry[PlaceWait] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self._admission = admission

    def withdraw(self) -> None:
        """Wait no more; a place that was given in the same step is left."""
        self._admission.withdrawn(self)


class RecentUsers:
    """Users who came a moment ago."""

    def __init__(self) -> None:
        self._now: set[str] = set()
        self._before: set[str] = set()
        self._since = 0.0

    def __len__(self) -> int:
        return max(len(self._now), len(self._before))

    def add(self, user: str, now: float) -> None:
        """Note that a user came at a time."""
        if now - self._since >= RECENT:
            self._before = self._now if now - self._since < 2 * RECENT else set()
            self._now, self._since = set(), now
        self._now.add(user)


class Admission:
    """Places for `most` at a time, fewer while the event loop lags. One loop uses it; deadlines are its times."""

    def __init__(self, most: int, watcher: Watcher | None = None) -> None:
        self._limit = PacedLimit(most, self._is_busy, self._fill)
        self._most = most
        self.watcher = watcher or Watcher()
        self._queue: FairQueue[PlaceWait] = FairQueue()
        self._waits = 0
        self._waiting_since = 0.0
        self._mean = 0.0
        self._refused, self._refused_at = 0.0, -math.inf
        self.running = 0
        self._running_of: dict[str, int] = {}
        self._users = RecentUsers()

    @property
    def waiting(self) -> int:
        """How many wait for a place."""
        return len(self._queue)

    @property
    def places(self) -> int:
        """How many places there are now."""
        return self._limit.value

    async def enter(
        self,
        user: str,
        deadline: float = NO_DEADLINE,
        *,
        patient: bool = False,
        is_gone: Callable[[], bool] = never,
    ) -> Place:
        """Return a place: at once if one is free, else in turn; `Busy` when the turn would come too late.

        One who is `patient` is refused for a deadline alone. `is_gone` says whether nobody waits for it any more.
        """
        now = asyncio.get_running_loop().time()
        self._users.add(user, now)
        if self.running < self._limit.value and now < deadline and self._may_begin(user):
            return self._take(user, now)
        if deadline <= now:
            raise self._refusal(Rejection.DEADLINE, TIME_OVER, now)
        self._check_turn(user, now, deadline, patient)
        wait = self._push(PlaceWait(self, user, is_gone), deadline)
        try:
            with measured_wait():
                return await wait.place
        except BaseException:
            wait.withdraw()
            raise

    def left(self, since: float, user: str) -> None:
        """Note that a place is free that a user had taken at a time."""
        self._mean += (asyncio.get_running_loop().time() - since - self._mean) * MEMORY
        self.running -= 1
        count = self._running_of[user] = self._running_of[user] - 1
        if not count:
            del self._running_of[user]
        if self._waits:
            self._fill()

    def withdrawn(self, wait: PlaceWait) -> None:
        """Forget a wait that nobody has any more."""
        if wait.place.done() and not wait.place.cancelled() and wait.place.exception() is None:
            wait.place.result().leave()
        self._end_wait(wait)

    def _take(self, user: str, now: float) -> Place:
        self.running += 1
        self._running_of[user] = self._running_of.get(user, 0) + 1
        if self.running > self._limit.few:
            self._limit.watch()
        return Place(self, user, now)

    def _may_begin(self, user: str) -> bool:
        """Return whether a user may have one more place: while the loop is short of time, users have as many each."""
        users = len(self._users)
        if users == 1:
            return True
        return self._running_of.get(user, 0) < max(FEWEST, self._limit.few // users, self._limit.each)

    def _push(self, wait: PlaceWait, deadline: float) -> PlaceWait:
        """Begin a wait."""
        if not self._queue:
            self._waiting_since = wait.began
        self._waits += 1
        wait.entry = self._queue.push(wait.user, wait)
        if deadline != NO_DEADLINE:
            wait.timer = asyncio.get_running_loop().call_at(deadline, self._expire, wait)
        self._limit.watch()
        return wait

    def _is_busy(self) -> bool:
        return bool(self._queue) or self.running > self._limit.few

    def _check_turn(self, user: str, now: float, deadline: float, patient: bool) -> None:
        """Raise `Busy` if the turn of a new one would come too late."""
        ahead = self._queue.ahead(user)
        seconds = self._seconds_of(ahead + 1)
        too_many = self.running + ahead >= MANY * self._most and seconds > QUEUE and not patient
        if (too_many and now - self._waiting_since > BURST) or seconds > deadline - now:
            raise self._refusal(Rejection.OVERLOAD, TOO_LATE, now)

    def _seconds_of(self, count: float) -> float:
        """Return in how many seconds about so many leave."""
        return count * self._mean / max(1, self.running)

    def _refusal(self, reason: Rejection, text: str, now: float) -> Busy:
        """Count a refusal, and return the error.

        It says to come back when there is time for those who wait, and for those who were refused a moment ago. Nothing
        else in it changes from one to the next: answers that are the same are made once.
        """
        self._refused = self._refused * 0.5 ** min(now - self._refused_at, 60.0) + 1
        self._refused_at = now
        self.watcher.refused(reason)
        seconds = self._seconds_of(self.waiting + self._refused)
        again = min(max(1.0, math.ceil(seconds)), LONGEST_RETRY)
        return Busy(f"The server has more to do than it can, and {text}; try again in {again:.0f} s.", again)

    def _expire(self, wait: PlaceWait) -> None:
        if not wait.place.done():
            self._refuse(wait, Rejection.DEADLINE, TIME_OVER)

    def _refuse(self, wait: PlaceWait, reason: Rejection, text: str) -> None:
        wait.place.set_exception(self._refusal(reason, text, _now()))
        self._end_wait(wait)

    def _end_wait(self, wait: PlaceWait) -> None:
        """Note that a wait is over."""
        if wait.entry is not None:
            self._queue.remove(wait.entry)
            self._waits -= 1
            wait.entry = None
            self.watcher.waited(_now() - wait.began)
        if wait.timer is not None:
            wait.timer.cancel()
            wait.timer = None

    def _fill(self) -> None:
        """Give free places to those who are next."""
        while self.running < self._limit.value and (wait := self._queue.pop_of(self._may_begin)) is not None:
            if wait.place.done():
                continue
            if wait.is_gone():
                self._refuse(wait, Rejection.DISCONNECTED, "nobody waits for it")
                continue
            wait.place.set_result(self._take(wait.user, _now()))
            self._end_wait(wait)


def _now() -> float:
    return asyncio.get_running_loop().time()
