"""Wrong answers are found."""

import numpy as np
import pytest

from benchmarks.trials.check import WrongAnswer, check_array, check_points
from benchmarks.workloads.points import PointData

POINTS = PointData((np.arange(3, dtype=np.uint64),), np.array([0.1, 0.2, 0.3]))


def test_the_same_points_in_another_order_pass() -> None:
    check_points("x", 3, 0.3 + 0.2 + 0.1, POINTS)


@pytest.mark.parametrize(("count", "total"), [(2, 0.6), (3, 0.7), (3, float("nan"))])
def test_points_that_miss_or_differ_are_refused(count: int, total: float) -> None:
    with pytest.raises(WrongAnswer, match="x returned"):
        check_points("x", count, total, POINTS)


def test_arrays_must_be_equal() -> None:
    check_array("x", np.arange(3), np.arange(3))
    with pytest.raises(WrongAnswer, match="x returned other values"):
        check_array("x", np.arange(3), np.arange(1, 4))
