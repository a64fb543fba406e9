"""Limits of tries by name and time."""

from __future__ import annotations

from hsparse.sn.auth.line_file import TryLimit
from tests.testing.manual_clock import ManualClock


def test_tries_are_limited_until_the_time_is_over() -> None:
    clock = ManualClock()
    limit = TryLimit(2, 60.0, 10, clock)
    limit.count("a")
    clock.time += 20
    assert limit.wait("a") == 0
    limit.count("a")
    assert limit.wait("a") == 40
    assert limit.wait("b") == 0
    clock.time += 40
    assert limit.wait("a") == 0
    limit.count("a")
    assert limit.wait("a") == 0


def test_what_succeeds_is_forgiven() -> None:
    limit = TryLimit(2, 60.0, 10, ManualClock())
    for _ in range(2):
        limit.count("a")
    limit.forgive("a")
    assert limit.wait("a") == 0
    limit.count("a")
    assert limit.wait("a") == 60
    limit.forget("a")
    limit.forgive("a")
    assert limit.wait("a") == 0


def test_so_many_names_are_kept() -> None:
    limit = TryLimit(1, 60.0, 2, ManualClock())
    for name in "abc":
        limit.count(name)
    assert [limit.wait(name) > 0 for name in "abc"] == [False, True, True]
