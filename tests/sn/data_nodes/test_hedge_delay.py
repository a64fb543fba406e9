"""How long is waited for a read: the 95th percentile, within bounds."""

from __future__ import annotations

import pytest

from hsparse.sn.data_nodes.cluster_nodes import (
    HEDGED_FRACTION,
    MAX_HEDGE_SECONDS,
    MIN_HEDGE_SECONDS,
    MOST_SAVED,
    READS_PER_PERCENTILE,
    TIMED_READS,
    HedgeDelay,
)


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([0.001] * READS_PER_PERCENTILE, MIN_HEDGE_SECONDS),
        ([0.001] * 28 + [0.5] * 4, 0.5),
        ([60.0] * READS_PER_PERCENTILE, MAX_HEDGE_SECONDS),
        ([60.0] * READS_PER_PERCENTILE + [0.3] * TIMED_READS, 0.3),
    ],
)
def test_the_percentile_of_the_last_reads(times: list[float], expected: float) -> None:
    delay = HedgeDelay()
    for seconds in times:
        delay.note(seconds)
    assert delay.seconds == expected


def test_before_reads_are_known_it_is_in_between() -> None:
    assert MIN_HEDGE_SECONDS < HedgeDelay().seconds < MAX_HEDGE_SECONDS


def test_only_a_part_of_the_reads_is_hedged() -> None:
    delay = HedgeDelay()
    assert [delay.may_hedge() for _ in range(200)].count(True) == MOST_SAVED
    hedged = 0
    for _ in range(1000):
        hedged += delay.may_hedge()
        delay.note(1.0)
    assert hedged == pytest.approx(1000 * HEDGED_FRACTION, abs=1)
