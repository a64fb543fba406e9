"""When a request is repeated: the one rule, for a `Connection` and for the commands."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from hsparse.client.errors import Unreachable
from hsparse.clock import Clock, SystemClock, jitter
from hsparse.errors import Busy, HsparseError, RateLimited, Unanswered

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
"""Seconds between two attempts."""
READING = ("GET", "HEAD")
IDEMPOTENT = (*READING, "PUT", "DELETE")
"""RFC 9110, 9.2.2."""
REPEATED = (Busy, RateLimited, Unreachable, Unanswered)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Retry:
    """`tries` are the attempts of a request that gets no answer, `patience` the seconds for a busy server.

    Both count from the first failure. `sleep` takes seconds; a test gives another one, and a clock.
    """

    tries: int = 1
    patience: float = 0.0
    sleep: Callable[[float], object] = field(default=time.sleep, repr=False)
    clock: Clock = field(default_factory=SystemClock, repr=False)

    def begin(self, repeatable: Repeatable) -> Attempts:
        return Attempts(self, repeatable)

    def run(self, send: Callable[[], T], repeatable: Repeatable) -> T:
        """Return `send()`, called again after errors that allow it."""
        attempts = self.begin(repeatable)
        while True:
            try:
                return send()
            except REPEATED as error:
                pause = attempts.pause_after(error)
            self.sleep(pause)


@dataclass(frozen=True, slots=True)
class Repeatable:
    """What a request may be repeated after, besides a 429, with which nothing was done.

    `busy` is a 503, also of a proxy that may have passed the request on; `lost` is an answer that never came,
    of the server or of the data nodes behind it. `known` is asked before it is repeated after either.
    """

    busy: bool = True
    lost: bool = True
    known: Callable[[], bool] = lambda: True

    @classmethod
    def request(cls, method: str, *, reads: bool = False) -> Repeatable:
        """Return what a request allows: one that `reads` changes nothing."""
        reads = reads or method in READING
        return cls(busy=reads or method in IDEMPOTENT, lost=reads)


class Attempts:
    """The attempts of one request."""

    def __init__(self, retry: Retry, repeatable: Repeatable) -> None:
        self._retry = retry
        self._repeatable = repeatable
        self._refused = self._lost = 0
        self._until = math.inf

    def pause_after(self, error: HsparseError) -> float:
        """Return the seconds until the next attempt; raises the error if there is to be none.

        A busy server's `Retry-After` counts, with jitter of up to a half, so that clients do not return together.
        """
        if isinstance(error, Busy | RateLimited):
            return self._pause_busy(error)
        self._lost += 1
        if not self._repeatable.lost or self._lost >= self._retry.tries or not self._repeatable.known():
            raise error
        return _backoff(self._lost - 1)

    def _pause_busy(self, error: Busy | RateLimited) -> float:
        if isinstance(error, Busy) and not (self._repeatable.busy and self._repeatable.known()):
            raise error
        clock = self._retry.clock
        now = clock.monotonic()
        self._until = min(self._until, now + self._retry.patience)
        pause = min(max(error.retry_after, _backoff(self._refused)), LONGEST_PAUSE)
        pause *= 1 + jitter(clock) / 2
        if now + pause > self._until:
            raise error
        self._refused += 1
        return pause


def _backoff(attempts: int) -> float:
    """Return the seconds to wait after a number of attempts."""
    return min(FIRST_PAUSE * 2.0 ** min(attempts, 10), LONGEST_PAUSE)
