"""An axis cut at chunk boundaries against cutting the list of its indices."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hsparse.format.plan.chunk_plan import chunk_numbers, count_pieces, cut_axis
from hsparse.format.selections.orthogonal import Axis, Span
from tests.format.selection_strategies import axes, list_axis

LENGTH = 40
AXES = axes(LENGTH)


@given(AXES, st.integers(1, 12))
def test_pieces(axis: Axis, chunk: int) -> None:
    listed = list_axis(axis)
    numbers = sorted({index // chunk for index in listed})
    assert chunk_numbers(axis, chunk).tolist() == numbers
    assert count_pieces(axis, chunk) == len(numbers)
    found = cut_axis(axis, chunk, LENGTH)
    assert [piece.chunk for piece in found] == numbers
    for piece in found:
        inside = [index - piece.chunk * chunk for index in listed if index // chunk == piece.chunk]
        assert list_axis(piece.axis) == inside
        assert [index - piece.chunk * chunk for index in np.array(listed)[piece.place].tolist()] == inside
        length = min(chunk, LENGTH - piece.chunk * chunk)
        assert piece.full == (set(inside) == set(range(length)))


@given(st.integers(0, 50), st.integers(1, 60), st.integers(1, 30), st.integers(1, 5), st.integers(1, 9))
def test_count_of_spans_with_gaps(start: int, gap: int, count: int, block: int, chunk: int) -> None:
    span = Span(start, block + gap, count, block)
    assert count_pieces(span, chunk) == len({index // chunk for index in list_axis(span)})


def test_the_last_chunk_may_end_beyond_64_bits() -> None:
    length = 2**63 - 1
    found = cut_axis(Span.range(2**62 - 1, length), 2**62, length)
    assert [(piece.chunk, piece.full) for piece in found] == [(0, False), (1, True)]
