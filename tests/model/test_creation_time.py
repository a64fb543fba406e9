"""Which times of creation are taken over from a request."""

from __future__ import annotations

import math
from typing import Any

import pytest

from hsparse.errors import BadRequest
from hsparse.model.schema import given_creation_time

NOW = 1795330288.26


@pytest.mark.parametrize("time", [1795330283.25, 1795330288, NOW - 10, NOW + 300])
def test_a_recent_time_is_taken_as_it_is(time: float) -> None:
    (taken,) = given_creation_time({"created": time}, NOW).values()
    assert taken == time
    assert type(taken) is type(time)


@pytest.mark.parametrize("time", [None, 999, NOW - 11, NOW + 400, math.nan, math.inf, -math.inf])
def test_another_time_is_ignored(time: float | None) -> None:
    assert given_creation_time({"created": time}, NOW) == {}


@pytest.mark.parametrize("time", ["now", True, [1], {}])
def test_what_is_no_number_is_refused(time: Any) -> None:
    with pytest.raises(BadRequest, match="created"):
        given_creation_time({"created": time}, NOW)
