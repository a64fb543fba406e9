"""What passed by two clocks of which one may be wrong."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from hsparse.cluster.lease_object import ClockReading
from tests.testing.manual_clock import ManualClock


@dataclass(slots=True)
class TwoClocks(ManualClock):
    """A clock whose time of day is `day` ahead of its monotonic time."""

    time: float = 1000.0
    day: float = 0.0

    def now(self) -> float:
        return self.time + self.day


@pytest.mark.parametrize(
    ("monotonic", "day", "jumped"),
    [
        (5.0, 5.0, False),
        (0.0, 5.0, True),  # it stood while the machine was suspended
        (5.0, 0.0, True),
        (5.0, -90.0, True),
        (5.0, 5.4, False),  # both may drift
        (5.0, 5.6, True),
        (0.01, 0.1, False),  # read one after the other
    ],
)
def test_what_passed_by_both(monotonic: float, day: float, jumped: bool) -> None:
    clock = TwoClocks()
    before = ClockReading.of(clock)
    clock.time += monotonic
    clock.day += day - monotonic
    assert before.most(clock) == pytest.approx(max(monotonic, day))
    assert before.least(clock) == pytest.approx(min(monotonic, day))
    later = ClockReading.of(clock)
    assert before.apart(later) == pytest.approx(day - monotonic)
    assert before.jumped(later, 0.1) is jumped
