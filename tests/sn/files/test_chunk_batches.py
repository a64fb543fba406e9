"""Runs of chunks of about so many bytes."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hsparse.sn.files.chunk_batches import MOST_AT_ONCE, batches


@given(st.lists(st.integers(0, 50), max_size=60), st.integers(0, 100), st.integers(0, 60))
def test_all_rows_in_order_and_none_too_many(sizes: list[int], page: int, first: int) -> None:
    rows = range(min(first, len(sizes)), len(sizes))
    found = list(batches(np.array(sizes, np.uint64)[rows.start :], rows, page))
    assert [row for some in found for row in some] == list(rows)
    for some in found:
        assert 1 <= len(some) <= MOST_AT_ONCE
        assert len(some) == 1 or sum(sizes[row] for row in some) <= page
