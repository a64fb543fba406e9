"""Rows of stored chunks: taken, joined, and named so that names sort as coordinates do."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hsparse.format.chunk_map import ChunkRows, row_names

coords = st.integers(1, 4).flatmap(
    lambda rank: st.lists(
        st.tuples(*[st.one_of(st.integers(0, 300), st.integers(0, 2**64 - 1))] * rank), min_size=1
    )
)


@given(coords)
def test_names_sort_and_compare_as_coordinates(rows: list[tuple[int, ...]]) -> None:
    names = row_names(np.array(rows, np.uint64))
    assert [rows[place] for place in np.argsort(names, kind="stable")] == sorted(rows)
    assert [name == names[0] for name in names] == [row == rows[0] for row in rows]


def test_rows_are_taken_and_joined() -> None:
    rows = ChunkRows.of([(0, 1), (2, 3)], 2, [10, 20], ["a", "b"])
    rows = rows.described(np.arange(12, dtype=np.uint64).reshape(2, 2, 3), np.array([5, 6], np.uint64))
    turned = ChunkRows.joined([rows.take(np.array([1])), rows.take(np.array([0]))], 2)
    assert turned.scaled.tolist() == [[2, 3], [0, 1]]
    assert (turned.size.tolist(), turned.etags, turned.defined.tolist()) == ([20, 10], ("b", "a"), [6, 5])
    assert turned.sections.tolist() == rows.sections[::-1].tolist()
    assert len(ChunkRows.joined([], 3)) == 0
