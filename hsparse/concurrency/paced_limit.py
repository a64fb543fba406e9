"""A limit that follows the lag of the event loop: what is begun while the loop is behind only makes all of it late.

While the loop has time to spare, more at once is more done: they wait for a store or a thread. When it has none, each
one more takes a turn of every other's. Timers that fire late while the loop's thread computes tell the two apart,
whatever the work is. Late timers alone do not: other processes may have kept it from the CPU between short steps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import thread_time

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
        self._few = min(FEW, most)
        self._is_busy = is_busy
        self._raised = raised
        self._lag = 0.0
        self._last = 0.0, 0.0
        self._cpu = self._passed = 0.0
        self._watching = False

    @property
    def few(self) -> int:
        """The least that the limit can be."""
        return self._few

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
        self.value = self._changed(self.value, self._few, falls=computes and self._lag > LAG)
        self.each = self._changed(self.each, 1, falls=computes)
        if self.value > before[0] or self.each > before[1]:
            self._raised()
        self._watching = self._is_busy()
        if self._watching:
            self._look_later()

    def _changed(self, value: int, least: int, *, falls: bool) -> int:
        step = max(1, value // STEP)
        return max(least, value - step) if falls else min(self._most, value + step)
