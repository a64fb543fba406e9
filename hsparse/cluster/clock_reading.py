"""Time that has passed, by the two clocks of a machine: the monotonic one and the time of day.

Either can be wrong. A monotonic clock may stand while the machine is suspended, and the time of day may be set. A lease
counts on what has passed at most, whoever waits for its end on what has passed at least.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from hsparse.clock import Clock


@dataclass(frozen=True, slots=True)
class ClockReading:
    """Both clocks of this machine, in seconds, as they were read one after the other."""

    monotonic: float
    day: float

    @classmethod
    def of(cls, clock: Clock) -> Self:
        """Read the clocks."""
        return cls(clock.monotonic(), clock.now())

    def most(self, clock: Clock) -> float:
        """Return the seconds that have passed since, by the clock that has gone further."""
        return max(clock.monotonic() - self.monotonic, clock.now() - self.day)

    def least(self, clock: Clock) -> float:
        """Return the seconds that have passed since, by the clock that has gone less far."""
        return min(clock.monotonic() - self.monotonic, clock.now() - self.day)

    def apart(self, later: ClockReading) -> float:
        """Return the seconds by which the time of day has gone further than the monotonic clock, or less far: < 0."""
        return (later.day - self.day) - (later.monotonic - self.monotonic)

    def jumped(self, later: ClockReading, tolerance: float) -> bool:
        """Say whether the clocks do not agree on what passed until `later`, by more than that part of it.

        A second counts as the least that has passed: clocks are read one after the other, and set by small steps.
        """
        passed = max(later.day - self.day, later.monotonic - self.monotonic, 1.0)
        return abs(self.apart(later)) > tolerance * passed
