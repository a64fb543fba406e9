"""Rate limits: a token bucket for each user, refilled at a steady rate."""

from __future__ import annotations

import math
from collections import OrderedDict

from hsparse.clock import Clock
from hsparse.errors import RateLimited

MAX_BUCKETS = 10_000
"""The most buckets in memory; the least recently used one, which is the fullest, is evicted first."""
BURST_SECONDS = 10


class RateLimit:
    """Limits each user to `rate` requests a second, `burst` at once, on this service node; a rate of 0 is none."""

    def __init__(self, rate: float, burst: int, clock: Clock) -> None:
        self._rate = rate
        self._burst = float(burst or max(1, math.ceil(rate * BURST_SECONDS)))
        self._clock = clock
        # Tokens, and the time when they were counted; oldest first.
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, who: str) -> None:
        """Count a request of `who`; `RateLimited` names the limit and the time to wait."""
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
