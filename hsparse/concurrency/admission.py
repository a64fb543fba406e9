"""Admission control by time: a limited number of places, a fair queue for them, and early refusals.

A request that enters takes a place or waits for one. It is refused at once if its turn would come after its deadline.
It is also refused if the queue has not been empty for `BURST_SECONDS` seconds, its turn would come later than in
`MAX_QUEUE_SECONDS` seconds, and there are at least `ENTRIES_PER_PLACE` entries per place. A queue of this length keeps
all places taken; a longer one would only make everybody wait.

`PacedLimit` makes the number of places follow the lag of the event loop, because work that begins while the loop is
behind delays all work. While the loop has time to spare, more concurrent work gets more done, because work waits for a
store or a thread. When the loop has none, each further task delays the others. The loop has no time to spare if timers
fire late while its thread computes. Late timers alone may be due to other processes that use the CPU.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from time import thread_time

from hsparse.concurrency.memory_budget import FairQueue, QueueEntry
from hsparse.concurrency.request_trace import measured_wait
from hsparse.errors import Busy

MIN_LIMIT = 8
"""The least value of the limit, unless `most` is smaller: this many tasks share commits and keep threads busy."""
LAG_CHECK_SECONDS = 0.002
"""Seconds between two measurements of the lag."""
MAX_MEAN_LAG_SECONDS = 0.0015
"""The mean lag of timers, in seconds, above which the limit falls."""
MAX_LAG_SECONDS = 0.004
"""A lag counts at most this many seconds; a loop that stands still at times but idles in between is not overloaded."""
NEWEST_LAG_WEIGHT = 1 / 8
"""The weight of the newest lag in the moving average of the lag."""
BUSY_FRACTION = 0.6
"""The loop's thread has little time to spare if it uses the CPU for more than this fraction of the time."""
STEPS_OF_LIMIT = 8
"""The limit changes in steps of its value divided by this number."""


class PacedLimit:
    """The number of tasks that one event loop works on at once, at most `most`; `value` is the limit now.

    `each` is the limit for each user when there are several. It falls as soon as the loop has little time to spare,
    because the tasks of one user delay the tasks of the others long before timers are late. Both limits are adjusted
    while `is_busy()`, after `watch` was called; `raised` is called when one of them has grown.
    """

    def __init__(self, most: int, is_busy: Callable[[], bool], raised: Callable[[], None]) -> None:
        self.value = self.each = self._most = most
        self.few = min(MIN_LIMIT, most)
        """The least value of the limit."""
        self._is_busy = is_busy
        self._raised = raised
        self._lag = 0.0
        self._last = 0.0, 0.0
        self._cpu = self._passed = 0.0
        self._watching = False

    def watch(self) -> None:
        """Measure the lag and adjust the limits while `is_busy()`."""
        if not self._watching:
            self._watching = True
            self._last = asyncio.get_running_loop().time(), thread_time()
            self._look_later()

    def _look_later(self) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(LAG_CHECK_SECONDS, self._look, loop.time() + LAG_CHECK_SECONDS)

    def _look(self, due: float) -> None:
        now = asyncio.get_running_loop().time(), thread_time()
        self._lag += (min(now[0] - due, MAX_LAG_SECONDS) - self._lag) * NEWEST_LAG_WEIGHT
        self._passed += now[0] - self._last[0] - self._passed * NEWEST_LAG_WEIGHT
        self._cpu += now[1] - self._last[1] - self._cpu * NEWEST_LAG_WEIGHT
        self._last = now
        computes = self._cpu > BUSY_FRACTION * self._passed
        before = self.value, self.each
        self.value = self._changed(self.value, self.few, falls=computes and self._lag > MAX_MEAN_LAG_SECONDS)
        self.each = self._changed(self.each, 1, falls=computes)
        if self.value > before[0] or self.each > before[1]:
            self._raised()
        self._watching = self._is_busy()
        if self._watching:
            self._look_later()

    def _changed(self, value: int, least: int, *, falls: bool) -> int:
        step = max(1, value // STEPS_OF_LIMIT)
        return max(least, value - step) if falls else min(self._most, value + step)


BURST_SECONDS = 0.25
"""Seconds for which a queue may be as long as deadlines allow."""
MAX_QUEUE_SECONDS = 0.1
"""The longest wait for a turn, in seconds, while the queue does not empty."""
ENTRIES_PER_PLACE = 2
"""The number of entries per place, running or waiting, that are admitted however long they wait."""
MIN_PLACES = 2
"""The number of places that each user may always take."""
NEWEST_TIME_WEIGHT = 1 / 32
"""The weight of the newest value in the moving average of the seconds for which a place is taken."""
LONGEST_RETRY = 30.0
NO_DEADLINE = math.inf
TIME_OVER = "its time is over"
TOO_LATE = "its turn would come too late"


INTERVAL_SECONDS = 1.0
"""Length of an interval in seconds. A user counts as present in the interval of its entry and in the next one."""


class Rejection(StrEnum):
    """The reasons for a refusal."""

    OVERLOAD = "overload"
    """The entry's turn would have come too late."""
    DEADLINE = "deadline"
    """The entry's deadline passed before it came or while it waited."""
    DISCONNECTED = "disconnected"
    """Nobody waits for the entry any more."""


@dataclass(frozen=True, slots=True)
class Watcher:
    """Callbacks for metrics: the seconds that an entry waited for its turn, and the reasons of refusals."""

    waited: Callable[[float], None] = lambda seconds: None
    refused: Callable[[Rejection], None] = lambda reason: None


def never() -> bool:
    """Return False; as the default of `is_gone`, it says that somebody still waits for the entry."""
    return False


class Place:
    """A place that is taken until `leave`. It may be left more than once, and taken again by `regain`."""

    __slots__ = ("_admission", "_since", "_taken_by", "user")

    def __init__(self, admission: Admission, user: str, since: float) -> None:
        self._admission = admission
        self._since: float | None = since
        self._taken_by = user
        self.user = user
        """The user that `regain` takes the place for; the first user may have been known only by an address."""

    def leave(self) -> None:
        """Leave the place to the next entry; do nothing if it was left before."""
        if self._since is not None:
            since, self._since = self._since, None
            self._admission.left(since, self._taken_by)

    async def regain(self, deadline: float = NO_DEADLINE) -> None:
        """Wait in turn and take a place again; raise `Busy` only after `deadline`, as work was already spent."""
        if self._since is None:
            place = await self._admission.enter(self.user, deadline, patient=True)
            self._since, self._taken_by = place._since, place._taken_by


class PlaceWait:
    """A wait for a place: the future `place` receives the place when its turn comes, or the error `Busy`."""

    __slots__ = ("_admission", "began", "entry", "is_gone", "place", "timer", "user")

    def __init__(self, admission: Admission, user: str, is_gone: Callable[[], bool]) -> None:
        loop = asyncio.get_running_loop()
        self.place: asyncio.Future[Place] = loop.create_future()
        self.began = loop.time()
        self.user = user
        self.is_gone = is_gone
        self.entry: QueueEntry[PlaceWait] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self._admission = admission

    def withdraw(self) -> None:
        """Stop waiting; a place that was given at the same moment becomes free."""
        self._admission.withdrawn(self)


class RecentUsers:
    """The users who came recently, see `INTERVAL_SECONDS`; the length is their number."""

    def __init__(self) -> None:
        self._now: set[str] = set()
        self._before: set[str] = set()
        self._since = 0.0

    def __len__(self) -> int:
        return max(len(self._now), len(self._before))

    def add(self, user: str, now: float) -> None:
        """Record that a user came at the time `now`."""
        if now - self._since >= INTERVAL_SECONDS:
            self._before = self._now if now - self._since < 2 * INTERVAL_SECONDS else set()
            self._now, self._since = set(), now
        self._now.add(user)


class Admission:
    """Grants at most `most` places, fewer while the event loop lags. One loop uses it; deadlines are in its time."""

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
        """The number of entries that wait for a place."""
        return len(self._queue)

    @property
    def places(self) -> int:
        """The number of places now."""
        return self._limit.value

    async def enter(
        self,
        user: str,
        deadline: float = NO_DEADLINE,
        *,
        patient: bool = False,
        is_gone: Callable[[], bool] = never,
    ) -> Place:
        """Return a place: at once if one is free, otherwise in turn; raise `Busy` if the turn would come too late.

        A `patient` entry waits until its deadline passes. `is_gone` returns whether nobody waits for it any more.
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
        """Free a place that `user` took at the time `since`."""
        self._mean += (asyncio.get_running_loop().time() - since - self._mean) * NEWEST_TIME_WEIGHT
        self.running -= 1
        count = self._running_of[user] = self._running_of[user] - 1
        if not count:
            del self._running_of[user]
        if self._waits:
            self._fill()

    def withdrawn(self, wait: PlaceWait) -> None:
        """Forget a wait that was given up; a place that it has received becomes free."""
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
        """Return whether a user may take one more place: users share places equally while the loop is short of time."""
        users = len(self._users)
        if users == 1:
            return True
        return self._running_of.get(user, 0) < max(MIN_PLACES, self._limit.few // users, self._limit.each)

    def _push(self, wait: PlaceWait, deadline: float) -> PlaceWait:
        """Add a wait to the queue."""
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
        """Raise `Busy` if the turn of a new entry would come too late."""
        ahead = self._queue.ahead(user)
        seconds = self._seconds_of(ahead + 1)
        too_many = self.running + ahead >= ENTRIES_PER_PLACE * self._most and seconds > MAX_QUEUE_SECONDS
        if not patient and (
            (too_many and now - self._waiting_since > BURST_SECONDS) or seconds > deadline - now
        ):
            raise self._refusal(Rejection.OVERLOAD, TOO_LATE, now)

    def _seconds_of(self, count: float) -> float:
        """Return the estimated seconds until `count` places have become free."""
        return count * self._mean / max(1, self.running)

    def _refusal(self, reason: Rejection, text: str, now: float) -> Busy:
        """Count a refusal, and return its error.

        The error says to retry when the waiting entries, and those refused recently, will have been served. The text
        has no other variable part, so that equal replies are encoded once.
        """
        self._refused = self._refused * 0.5 ** min(now - self._refused_at, 60.0) + 1
        self._refused_at = now
        self.watcher.refused(reason)
        seconds = self._seconds_of(self.waiting + self._refused)
        again = min(max(1.0, math.ceil(seconds)), LONGEST_RETRY)
        return Busy(
            f"The server is overloaded and refused the request: {text}; try again in {again:.0f} s.", again
        )

    def _expire(self, wait: PlaceWait) -> None:
        if not wait.place.done():
            self._refuse(wait, Rejection.DEADLINE, TIME_OVER)

    def _refuse(self, wait: PlaceWait, reason: Rejection, text: str) -> None:
        wait.place.set_exception(self._refusal(reason, text, _now()))
        self._end_wait(wait)

    def _end_wait(self, wait: PlaceWait) -> None:
        """Remove a wait from the queue and cancel its timer."""
        if wait.entry is not None:
            self._queue.remove(wait.entry)
            self._waits -= 1
            wait.entry = None
            self.watcher.waited(_now() - wait.began)
        if wait.timer is not None:
            wait.timer.cancel()
            wait.timer = None

    def _fill(self) -> None:
        """Give free places to the next entries."""
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
