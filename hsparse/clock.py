"""Injected time and randomness: the only source of both outside of tests."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

BOOT_CLOCK: int | None = getattr(time, "CLOCK_BOOTTIME", None)
"""Linux's clock that goes on while the machine is suspended, None elsewhere."""


class Clock(Protocol):
    """The source of time and randomness."""

    def now(self) -> float:
        """Return seconds since the Unix epoch."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go back, for deadlines and durations.

        Outside of Linux they may stand while the machine is suspended.
        """
        ...

    def token(self, nbytes: int) -> bytes:
        """Return `nbytes` unpredictable bytes."""
        ...


def jitter(clock: Clock) -> float:
    """Return a random number from 0 to 1, by which pauses differ of those who would else come back together."""
    return int.from_bytes(clock.token(4), "big") / 2**32


def steady(boot_clock: int | None) -> Callable[[], float]:
    """Return what reads a clock that never goes back: this one or, for None, Python's."""
    return time.monotonic if boot_clock is None else partial(time.clock_gettime, boot_clock)


class SystemClock:
    """The machine's own time and entropy."""

    now = staticmethod(time.time)
    monotonic = staticmethod(steady(BOOT_CLOCK))
    token = staticmethod(secrets.token_bytes)


class ManualClock:
    """A clock for tests: `time` changes only when it is set, and tokens count up."""

    def __init__(self, now: float = 1_000_000_000.0) -> None:
        self.time = now
        self.count = 0

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time

    def token(self, nbytes: int) -> bytes:
        self.count += 1
        return self.count.to_bytes(8, "big")[-nbytes:].rjust(nbytes, b"\0")
