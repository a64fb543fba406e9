"""How long campaigns are: a part in `make test`, all of it in `make endure`, which is `pytest -m endurance --endure`.

A campaign repeats one scenario for seconds, with kills or with programs, files or bytes drawn at random. It has the
mark `endurance`, and what it counts is `repeats(FULL, SHORT)`. The short one can fail for every reason that the full
one can, with less of a chance.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest


@dataclass(slots=True)
class Endurance:
    """Whether this process runs campaigns at full length; None before pytest has read its options."""

    full: bool | None = None


ENDURANCE = Endurance()


def repeats(full: int, short: int) -> int:
    """Return how often a campaign repeats its scenario: `full` with --endure, else `short`."""
    assert 0 < short < full
    if ENDURANCE.full is None:
        raise pytest.UsageError(
            "How long a campaign is, is known once pytest has read its options: not in a conftest.py."
        )
    return full if ENDURANCE.full else short
