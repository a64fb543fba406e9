"""Comparison of answers with the written data, because a fast wrong answer is not a result."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from benchmarks.failure import Failed
from benchmarks.workloads.points import PointData


class WrongAnswer(Failed):
    """A side returned other data than was written."""


def check_points(what: str, count: int, total: float, expected: PointData) -> None:
    """Raise `WrongAnswer` unless `count` and `total`, the sum of the values, are those of `expected`."""
    if count != len(expected) or not math.isclose(
        total, expected.total(), rel_tol=1e-9, abs_tol=1e-6 * max(1, count)
    ):
        raise WrongAnswer(
            f"{what} returned {count} points that sum to {total}; "
            f"{len(expected)} that sum to {expected.total()} were written."
        )


def check_array(what: str, found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> None:
    """Raise `WrongAnswer` unless two arrays are equal."""
    if not np.array_equal(found, expected):
        raise WrongAnswer(f"{what} returned other values than were written.")
