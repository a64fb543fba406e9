"""Choosing chunk dimensions."""

from __future__ import annotations

from math import prod

from hypothesis import given
from hypothesis import strategies as st

from hsparse.model.dataspace import auto_chunk, enlarge, shrink

MIN, MAX = 1 << 20, 1 << 22
LIMITS = st.lists(st.none() | st.integers(0, 10**7), min_size=1, max_size=6).map(tuple)
SIZES = st.sampled_from([1, 2, 4, 8, 48, 1000])


@given(LIMITS, SIZES)
def test_a_chosen_chunk_is_inside_the_dataset_and_of_a_good_size(
    limits: tuple[int | None, ...], size: int
) -> None:
    chunk = auto_chunk(limits, size, MIN, MAX)
    assert all(
        dim >= 1 and (limit is None or dim <= max(1, limit)) for dim, limit in zip(chunk, limits, strict=True)
    )
    nbytes = prod(chunk) * size
    assert nbytes <= MAX
    whole = all(limit is not None and dim == max(1, limit) for dim, limit in zip(chunk, limits, strict=True))
    assert nbytes >= MIN or whole


@given(LIMITS, SIZES, st.data())
def test_enlarging_never_makes_a_dimension_smaller(
    limits: tuple[int | None, ...], size: int, data: st.DataObject
) -> None:
    dims = tuple(data.draw(st.integers(1, 50 if limit is None else max(1, limit))) for limit in limits)
    larger = enlarge(dims, limits, size, MIN)
    assert all(new >= old for new, old in zip(larger, dims, strict=True))
    assert prod(larger) * size < 2 * MIN or larger == dims
    if prod(dims) * size >= MIN:
        assert larger == dims


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=6).map(tuple), SIZES)
def test_shrinking_stops_in_time(dims: tuple[int, ...], size: int) -> None:
    smaller = shrink(dims, size, MAX)
    assert prod(smaller) * size <= MAX
    assert all(1 <= new <= old for new, old in zip(smaller, dims, strict=True))
    if prod(dims) * size <= MAX:
        assert smaller == dims


def test_an_element_larger_than_a_chunk() -> None:
    assert auto_chunk((10, None), MAX * 2, MIN, MAX) == (1, 1)
