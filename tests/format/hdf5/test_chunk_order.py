"""The numbers of chunks in arrays, and the order of scaled coordinates: numpy's."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import Corrupt
from hsparse.format.hdf5.chunk_order import is_ascending, locate_chunks, number_chunks, slots, sort_rows
from hsparse.format.hdf5.index_kind import IndexKind
from tests.format.hdf5.record_cases import make_layout

counts = st.lists(st.integers(1, 6), min_size=1, max_size=4).map(tuple)


@given(counts, st.none() | st.integers(0, 3))
def test_numbers_are_row_major_with_the_unlimited_dimension_first(
    shape: tuple[int, ...], unlimited: int | None
) -> None:
    layout = make_layout(IndexKind.FIXED_ARRAY, shape, 0, False)
    order = list(range(len(shape)))
    if unlimited is not None:
        unlimited %= len(shape)
        limits = list(layout.max_dims)
        limits[unlimited] = None
        layout = replace(layout, max_dims=tuple(limits))
        order.insert(0, order.pop(unlimited))
    scaled = np.indices(shape, np.uint64).reshape(len(shape), -1).T
    numbers = number_chunks(layout, scaled)
    wanted = np.ravel_multi_index(tuple(scaled[:, dim] for dim in order), tuple(shape[dim] for dim in order))
    assert numbers.tolist() == wanted.tolist()
    assert locate_chunks(layout, numbers).tolist() == scaled.tolist()


def test_chunks_that_cannot_be_numbered_are_corrupt() -> None:
    layout = make_layout(IndexKind.FIXED_ARRAY, (2**31, 2**31, 3), 0, False)
    assert slots(layout) == 3 * 2**62
    with pytest.raises(Corrupt, match="too many chunks"):
        slots(make_layout(IndexKind.FIXED_ARRAY, (2**31, 2**31, 4), 0, False))


@given(st.integers(1, 3).flatmap(lambda rank: st.lists(st.tuples(*[st.integers(0, 3)] * rank), min_size=1)))
def test_rows_are_sorted_as_tuples_are(rows: list[tuple[int, ...]]) -> None:
    scaled = np.array(rows, np.uint64)
    assert scaled[sort_rows(scaled)].tolist() == sorted(map(list, rows))
    assert is_ascending(scaled) == all(before < after for before, after in pairwise(rows))
    assert is_ascending(np.unique(scaled, axis=0))
    assert is_ascending(scaled[:0])
