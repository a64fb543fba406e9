"""Clocks: time in seconds, and tokens of the length asked for."""

from __future__ import annotations

import time

import pytest

from hsparse.clock import BOOT_CLOCK, Clock, SystemClock, steady
from tests.testing.manual_clock import ManualClock


@pytest.mark.parametrize("source", [SystemClock(), ManualClock()], ids=["system", "manual"])
def test_tokens_have_their_length_and_differ(source: Clock) -> None:
    for nbytes in (1, 8, 16, 40):
        first, second = source.token(nbytes), source.token(nbytes)
        assert len(first) == len(second) == nbytes
        assert nbytes == 1 or first != second


def test_the_system_clock_is_the_machine_s() -> None:
    system = SystemClock()
    before = time.time()
    assert before <= system.now() <= time.time()
    first = system.monotonic()
    assert system.monotonic() >= first


@pytest.mark.skipif(BOOT_CLOCK is None, reason="this system has no clock that goes on while it is suspended")
def test_the_monotonic_clock_goes_on_while_the_machine_is_suspended() -> None:
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= SystemClock().monotonic() <= time.clock_gettime(time.CLOCK_BOOTTIME)


def test_without_a_clock_of_the_time_since_boot_another_one_is_read() -> None:
    before = time.monotonic()
    assert before <= steady(None)() <= time.monotonic()


def test_a_manual_clock_stands_still_until_it_is_set() -> None:
    manual = ManualClock(5.0)
    assert (manual.now(), manual.monotonic()) == (5.0, 5.0)
    manual.time += 2
    assert (manual.now(), manual.monotonic()) == (7.0, 7.0)
