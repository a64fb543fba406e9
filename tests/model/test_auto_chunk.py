"""Choosing chunk dimensions."""

from __future__ import annotations

from math import prod

from hypothesis import given
from hypothesis import strategies as st

from hsparse.model.dataspace import auto_chunk, shrink

MIN, MAX = 1 << 20, 1 << 22
SIZES = st.sampled_from([1, 2, 4, 8, 48, 1000])


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=6).map(tuple), SIZES)
def test_shrinking_stops_in_time(dims: tuple[int, ...], size: int) -> None:
    smaller = shrink(dims, size, MAX)
    assert prod(smaller) * size <= MAX
    assert all(1 <= new <= old for new, old in zip(smaller, dims, strict=True))
    if prod(dims) * size <= MAX:
        assert smaller == dims


def test_an_element_larger_than_a_chunk() -> None:
    assert auto_chunk((10, None), MAX * 2, MIN, MAX) == (1, 1)
