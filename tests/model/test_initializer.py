"""Initial values: what is asked for, and what comes of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import BadRequest
from hsparse.model.element import element_of
from hsparse.model.initializer import initial_values, parse_initializer

INT, FLOAT = element_of("H5T_STD_I32LE"), element_of("H5T_IEEE_F32LE")


@given(st.integers(-(10**6), 10**6), st.integers(-1000, 1000), st.integers(0, 10**6), st.integers(0, 50))
def test_integers_wrap_around(start: int, step: int, first: int, count: int) -> None:
    model = [start + step * n for n in range(first, first + count)]
    for kind in ("<i8", ">i2", "<u1", "<u8"):
        dtype = np.dtype(kind)
        found = initial_values((start, step), first, count, dtype)
        assert found.dtype == dtype
        bits = 8 * dtype.itemsize
        assert [int(value) % 2**bits for value in found] == [value % 2**bits for value in model]


def test_floats() -> None:
    found = initial_values((1.5, -0.25), 4, 3, np.dtype("<f4"))
    assert found.tolist() == [0.5, 0.25, 0.0]


@pytest.mark.parametrize(
    ("value", "element", "arange"),
    [
        (None, INT, ()),
        ([], INT, ()),
        (["arange"], INT, (0, 1)),
        ("arange --start=3", INT, (3, 1)),
        (["arange", "--start=10", "--step=2"], INT, (10, 2)),
        (["arange", "--start=10.0", "--step=-2"], INT, (10, -2)),
        (["arange", "--step=0.5"], FLOAT, (0.0, 0.5)),
    ],
)
def test_what_is_asked_for(value: Any, element: Any, arange: tuple[float, ...]) -> None:
    assert parse_initializer(value, 1, element, sparse=False) == arange


@pytest.mark.parametrize(
    "value",
    [
        7,
        {},
        [7],
        ["rm", "-rf"],
        ["arange", "1"],
        ["arange", "--stop=3"],
        ["arange", "--step=x"],
        ["arange", "--start=0.5"],
        ["arange", "--start=1e300"],
        ["arange", "--start=nan"],
    ],
)
def test_what_is_refused(value: Any) -> None:
    with pytest.raises(BadRequest):
        parse_initializer(value, 1, INT, sparse=False)


@pytest.mark.parametrize(
    ("rank", "item", "sparse"),
    [
        (2, "H5T_STD_I8LE", False),
        (0, "H5T_STD_I8LE", False),
        (1, "H5T_STD_I8LE", True),
        (1, {"class": "H5T_OPAQUE", "size": 2}, False),
        (1, {"class": "H5T_VLEN", "base": "H5T_STD_I8LE"}, False),
    ],
)
def test_where_it_is_refused(rank: int, item: Any, sparse: bool) -> None:
    with pytest.raises(BadRequest, match="one dimension"):
        parse_initializer(["arange"], rank, element_of(item), sparse=sparse)
