"""The adaptive limit, on times that are given."""

from __future__ import annotations

import pytest

from hsparse.concurrency.adaptive_limit import LAG, SAMPLES, SHORT_LAG, WINDOW, AdaptiveLimit


def pass_windows(limit: AdaptiveLimit, windows: int, lags: list[float], *, used_up: bool = True) -> None:
    start = limit._window if limit._window > 0 else 0.0
    for number in range(windows):
        for place, lag in enumerate(lags, 1):
            limit.note(start + WINDOW * (number + place / len(lags)) + 1e-9 * (number + 1), lag, used_up)


def test_it_grows_while_it_is_used_up() -> None:
    limit = AdaptiveLimit(4, 100, 8)
    pass_windows(limit, 1, [SHORT_LAG / 2] * 10)
    assert limit.value == 16
    pass_windows(limit, 10, [SHORT_LAG / 2] * 10)
    assert limit.value == 100


def test_it_does_not_grow_without_need() -> None:
    limit = AdaptiveLimit(4, 100, 8)
    pass_windows(limit, 10, [0.0] * 10, used_up=False)
    assert limit.value == 8


def test_near_the_lag_it_grows_slowly() -> None:
    limit = AdaptiveLimit(4, 100, 8)
    pass_windows(limit, 4, [2 * SHORT_LAG] * 10)
    assert 8 < limit.value <= 13


def test_it_shrinks_while_every_step_waits() -> None:
    limit = AdaptiveLimit(4, 100)
    pass_windows(limit, 2, [2 * LAG] * 10)
    assert limit.value in (64, 80)
    pass_windows(limit, 40, [2 * LAG] * 10)
    assert limit.value == 4


@pytest.mark.parametrize("lags", [[10.0] + [0.0] * 9, [10.0] * (SAMPLES - 1)])
def test_a_long_step_is_no_lag(lags: list[float]) -> None:
    limit = AdaptiveLimit(4, 100)
    pass_windows(limit, 5, lags, used_up=False)
    assert limit.value == 100


def test_it_shrinks_once_a_window() -> None:
    limit = AdaptiveLimit(1, 100)
    for _ in range(10):
        limit.shrink(5.0)
    assert limit.value == 80


def test_the_most_is_kept_also_if_it_is_little() -> None:
    limit = AdaptiveLimit(8, 2)
    pass_windows(limit, 5, [0.0] * 10)
    assert limit.value == 2
    pass_windows(limit, 5, [1.0] * 10)
    assert limit.value == 2
