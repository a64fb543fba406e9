"""Figures, ratios and their spread."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.report import MeasuredMetric, Report

RATE = MeasuredMetric("dense", "write, 16 MiB requests", "MiB/s", higher=True)
DELAY = MeasuredMetric("dense", "1 MiB hyperslab read, p50", "ms", higher=False)
SAMPLES = st.lists(st.floats(0.1, 1e6), min_size=1, max_size=7)


def filled(metric: MeasuredMetric, ours: list[float], theirs: list[float]) -> Report:
    report = Report()
    for side, samples in (("hsparse", ours), ("HSDS", theirs)):
        for sample in samples:
            report.add(metric, side, sample)
    return report


def test_a_ratio_above_one_is_a_win_whatever_the_unit() -> None:
    rate = filled(RATE, [200, 300], [100, 100]).ratio(RATE, "HSDS")
    delay = filled(DELAY, [2, 4], [4, 4]).ratio(DELAY, "HSDS")
    assert rate is not None
    assert (rate.low, rate.median, rate.high) == (2, 2.5, 3)
    assert delay is not None
    assert (delay.low, delay.high) == (1, 2)


@given(SAMPLES)
def test_a_side_against_itself_is_one(samples: list[float]) -> None:
    ratio = filled(RATE, samples, samples).ratio(RATE, "HSDS")
    assert ratio is not None
    assert ratio.low == ratio.median == ratio.high == 1


@given(SAMPLES)
def test_the_median_lies_in_the_spread(samples: list[float]) -> None:
    spread = filled(RATE, samples, []).spread(RATE, "hsparse")
    assert spread is not None
    assert min(samples) == spread.low <= spread.median <= spread.high == max(samples)


def test_what_was_not_measured_has_no_figure() -> None:
    report = filled(RATE, [1], [])
    assert report.ratio(RATE, "HSDS") is None
    assert report.spread(DELAY, "hsparse") is None


def test_an_unknown_side_is_refused() -> None:
    with pytest.raises(ValueError, match="no side"):
        Report().add(RATE, "hsdss", 1)


def test_remarks_are_kept_once() -> None:
    report = Report()
    report.remark("a")
    report.remark("a")
    assert report.as_json()["remarks"] == ["a"]
