"""The order of elements by value, against sorted."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import BadRequest
from hsparse.format.query import Ordering

FLOATS = st.lists(st.one_of(st.integers(-5, 5).map(float), st.sampled_from([math.nan, math.inf, -math.inf])))


@given(FLOATS, st.integers(1, 10), st.booleans())
def test_the_first_are_those_of_sorted(values: list[float], limit: int, descending: bool) -> None:
    array = np.array(values, ">f4")
    found = Ordering("", descending).first(array, limit)
    sign = -1 if descending else 1

    def key(place: int) -> tuple[bool, float, int]:
        value = values[place]
        return math.isnan(value), 0.0 if math.isnan(value) else sign * value, place

    assert found.tolist() == sorted(range(len(values)), key=key)[:limit]


def test_fields_and_texts() -> None:
    dtype = np.dtype([("n", "u8"), ("s", "S2"), ("v", "f4", (2,))])
    rows = np.array([(2**63, b"b", 0), (1, b"a", 0), (2**63 + 1, b"ab", 0)], dtype)
    for text, order in {"n": [1, 0, 2], "-n": [2, 0, 1], "s": [1, 2, 0], "-s": [0, 2, 1]}.items():
        ordering = Ordering.parse(text, dtype)
        assert ordering.first(rows, 3).tolist() == order
        assert Ordering.parse(ordering.text, dtype) == ordering
    for text in ("v", "x", "_", "-", ""):
        with pytest.raises(BadRequest):
            Ordering.parse(text, dtype)
    assert Ordering.parse("-_", np.dtype("i4")) == Ordering("", True)


def test_bounds() -> None:
    assert Ordering("", True).is_after(3, 4)
    assert not Ordering("", True).is_after(4, 4)
    assert Ordering("", False).is_after(5, 4)
    assert not Ordering("", False).is_after(5.0, math.nan)
