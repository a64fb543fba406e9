"""A clock that tests set."""

from __future__ import annotations


class ManualClock:
    """A clock for tests: `time` changes only when a test sets it, and tokens are consecutive numbers."""

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
