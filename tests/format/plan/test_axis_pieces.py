"""An axis cut at chunk boundaries against cutting the list of its indices."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hsparse.format.plan.chunk_plan import as_place, chunk_numbers, count_pieces, cut_axis
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


@given(AXES, st.integers(1, 12), st.sets(st.integers(0, LENGTH)))
def test_pieces_of_some_chunks(axis: Axis, chunk: int, some: set[int]) -> None:
    wanted = np.array(sorted(some), np.int64)
    found = {piece.chunk: list_axis(piece.axis) for piece in cut_axis(axis, chunk, LENGTH, wanted)}
    whole = {piece.chunk: list_axis(piece.axis) for piece in cut_axis(axis, chunk, LENGTH)}
    assert found == {number: part for number, part in whole.items() if number in some}


@given(st.integers(0, 50), st.integers(1, 60), st.integers(1, 30), st.integers(1, 5), st.integers(1, 9))
def test_count_of_spans_with_gaps(start: int, gap: int, count: int, block: int, chunk: int) -> None:
    span = Span(start, block + gap, count, block)
    assert count_pieces(span, chunk) == len({index // chunk for index in list_axis(span)})


def test_counting_lists_nothing() -> None:
    far = Span(7, 2**40, 2**20, 2**30)
    blocks = [((7 + i * 2**40) // 1000, (7 + i * 2**40 + 2**30 - 1) // 1000) for i in range(2**20)]
    assert count_pieces(far, 1000) == sum(last - first + 1 for first, last in blocks)
    assert count_pieces(Span.range(0, 2**62), 1) == 2**62


def test_the_last_chunk_may_end_beyond_64_bits() -> None:
    length = 2**63 - 1
    found = cut_axis(Span.range(2**62 - 1, length), 2**62, length)
    assert [(piece.chunk, piece.full) for piece in found] == [(0, False), (1, True)]


def test_as_place() -> None:
    assert as_place(np.array([3, 4, 5])) == slice(3, 6)
    assert isinstance(as_place(np.array([3, 5])), np.ndarray)
    assert isinstance(as_place(np.array([3, 5, 4, 6])), np.ndarray)
