"""Clocks: time in seconds, and tokens of the length asked for."""

from __future__ import annotations

import time

import pytest

from hsparse.clock import Clock, ManualClock, SystemClock


@pytest.mark.parametrize("clock", [SystemClock(), ManualClock()], ids=["system", "manual"])
def test_tokens_have_their_length_and_differ(clock: Clock) -> None:
    for nbytes in (1, 8, 16, 40):
        first, second = clock.token(nbytes), clock.token(nbytes)
        assert len(first) == len(second) == nbytes
        assert nbytes == 1 or first != second


def test_the_system_clock_is_the_machine_s() -> None:
    clock = SystemClock()
    before = time.time()
    assert before <= clock.now() <= time.time()
    first = clock.monotonic()
    assert clock.monotonic() >= first


def test_a_manual_clock_stands_still_until_it_is_set() -> None:
    clock = ManualClock(5.0)
    assert (clock.now(), clock.monotonic()) == (5.0, 5.0)
    clock.time += 2
    assert (clock.now(), clock.monotonic()) == (7.0, 7.0)
