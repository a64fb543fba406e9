"""Injected time and randomness: the only source of both outside of tests."""

from __future__ import annotations

import secrets
import time
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


class SystemClock:
    """The machine's own time and entropy."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic() if BOOT_CLOCK is None else time.clock_gettime(BOOT_CLOCK)

    def token(self, nbytes: int) -> bytes:
        return secrets.token_bytes(nbytes)


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
