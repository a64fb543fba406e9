"""Limits of requests per user: a token bucket each, refilled at a steady rate."""

from __future__ import annotations

import math
from collections import OrderedDict

from hsparse.clock import Clock
from hsparse.errors import RateLimited

MAX_BUCKETS = 10_000
"""Users whose buckets are kept; the least recently seen one, whose bucket is the fullest, is forgotten first."""
BURST_SECONDS = 10


class RateLimit:
    """`rate` requests a second for each user, `burst` at once; rate 0: no limit. It is of one service node."""

    def __init__(self, rate: float, burst: int, clock: Clock) -> None:
        self._rate = rate
        self._burst = float(burst or max(1, math.ceil(rate * BURST_SECONDS)))
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # tokens, when; oldest first

    def take(self, who: str) -> None:
        """Count a request of `who`; `RateLimited` says the limit, and when to come again."""
        if not self._rate:
            return
        now = self._clock.monotonic()
        tokens, then = self._buckets.pop(who, (self._burst, now))
        tokens = min(self._burst, tokens + (now - then) * self._rate)
        refused = tokens < 1
        self._buckets[who] = (tokens if refused else tokens - 1, now)
        while len(self._buckets) > MAX_BUCKETS:
            self._buckets.popitem(last=False)
        if refused:
            wait = (1 - tokens) / self._rate
            raise RateLimited(
                f"You may send {self._rate:g} requests a second, {self._burst:g} at once (rate_limit, rate_burst); "
                f"try again in {max(1, math.ceil(wait))} seconds.",
                wait,
            )
