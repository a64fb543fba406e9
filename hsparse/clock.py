"""Injected time and randomness; outside of tests, no other module reads the time or makes random numbers."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

BOOT_CLOCK: int | None = getattr(time, "CLOCK_BOOTTIME", None)
"""Linux's monotonic clock that keeps running while the machine is suspended, or None on other systems."""


class Clock(Protocol):
    """The source of time and randomness."""

    def now(self) -> float:
        """Return seconds since the Unix epoch."""
        ...

    def monotonic(self) -> float:
        """Return monotonic seconds, for deadlines and durations.

        On systems other than Linux the clock may stop while the machine is suspended.
        """
        ...

    def token(self, nbytes: int) -> bytes:
        """Return `nbytes` unpredictable bytes."""
        ...


def jitter(clock: Clock) -> float:
    """Return a random number in [0, 1), by which clients vary their pauses so that they do not retry all at once."""
    return int.from_bytes(clock.token(4), "big") / 2**32


def steady(boot_clock: int | None) -> Callable[[], float]:
    """Return a function that reads the monotonic clock `boot_clock`, or Python's monotonic clock if the id is None."""
    return time.monotonic if boot_clock is None else partial(time.clock_gettime, boot_clock)


REMINDER_SECONDS = 60.0


class Reminder:
    """Limits repeated log messages: a message is due if it differs from the last message or is a minute younger."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._said = ""
        self._due = 0.0

    def is_due(self, message: str) -> bool:
        """Tell whether to log `message` now; if the result is True, the message counts as logged."""
        now = self._clock.monotonic()
        if message == self._said and now < self._due:
            return False
        self._said, self._due = message, now + REMINDER_SECONDS
        return True


class SystemClock:
    """The machine's own time and entropy."""

    now = staticmethod(time.time)
    monotonic = staticmethod(steady(BOOT_CLOCK))
    token = staticmethod(secrets.token_bytes)
