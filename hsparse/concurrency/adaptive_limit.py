"""A limit on what is under way that finds its value: it shrinks at signs of congestion, and grows while it is used up.

Additive increase, multiplicative decrease, as of TCP's window (Chiu and Jain, 1989).
"""

from __future__ import annotations

import math

WINDOW = 0.1
"""Seconds for which lags are collected. The least of them counts, as in CoDel (RFC 8289): one long step is none."""
SAMPLES = 3
"""Lags without which a window says nothing."""
LAG = 0.005
"""Seconds that a step of the event loop may wait: beyond it the CPU is short, and more requests only take longer."""
SHORT_LAG = LAG / 4
"""Below it the CPU is idle some of the time: the limit doubles where it is used up."""
LESS = 0.8
GROWTH = 8
"""Between the two the limit grows by this part of itself a window, or by one."""


class AdaptiveLimit:
    """A limit from `least` to `most`, at first `first` or the most. Times are in seconds, from any one clock."""

    def __init__(self, least: int, most: int, first: int | None = None) -> None:
        self._least, self._most = min(least, most), most
        self.value = min(max(first or most, self._least), most)
        self._window = -math.inf
        self._lag, self._samples, self._used_up = math.inf, 0, False
        self._shrunk = -math.inf

    def note(self, now: float, lag: float, used_up: bool) -> None:
        """Note how long a step of the event loop has waited, and whether anything waits for the limit."""
        self._lag = min(self._lag, lag)
        self._samples += 1
        self._used_up |= used_up
        if now - self._window < WINDOW:
            return
        if self._lag > LAG:
            if self._samples >= SAMPLES:
                self.shrink(now)
        elif self._used_up:
            more = self.value if self._lag < SHORT_LAG else max(1, self.value // GROWTH)
            self.value = min(self._most, self.value + more)
        self._window, self._lag, self._samples, self._used_up = now, math.inf, 0, False

    def shrink(self, now: float) -> None:
        """Shrink, at most once a window."""
        if now - self._shrunk >= WINDOW:
            self._shrunk = now
            self.value = max(self._least, int(self.value * LESS))
