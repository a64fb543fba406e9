"""How long campaigns are: a part in `make test`, all of it in `make endure`.

A campaign repeats one scenario for seconds, with kills or with programs, files or bytes drawn at random. It has the
mark `endurance`, and what it counts is `repeats(FULL, SHORT)`. The short one can fail for every reason that the full
one can, with less of a chance.

Tests of properties, which have Hypothesis's own mark, are run by both too: those that do not say how many examples
they try have as many as `tests/conftest.py` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import pytest


@dataclass(slots=True)
class Endurance:
    """Whether this process runs campaigns at full length; None before pytest has read its options."""

    full: bool | None = None


ENDURANCE = Endurance()

V = TypeVar("V")


def repeats(full: int, short: int) -> int:
    """Return how often a campaign repeats its scenario: `full` with --endure, else `short`."""
    assert 0 < short < full
    if ENDURANCE.full is None:
        raise pytest.UsageError(
            "How long a campaign is, is known once pytest has read its options: not in a conftest.py."
        )
    return full if ENDURANCE.full else short


def spread(values: Sequence[V], short: int) -> list[V]:
    """Return all values with --endure, else `short` of them at even distances, with the first and the last."""
    count = repeats(len(values), short)
    return [values[number * (len(values) - 1) // (count - 1)] for number in range(count)]
