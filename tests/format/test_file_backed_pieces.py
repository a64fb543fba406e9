"""Pieces of files: each lies in one range, close ones share it, and none is read for nothing."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hsparse.format.file_backed import ChunkPieces, coalesce_ranges

ROWS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 5000), st.integers(1, 300), st.integers(0, 5)), max_size=40
)


def made(rows: list[tuple[int, int, int, int]]) -> ChunkPieces:
    """Return pieces of rows of file, offset, size and chunk."""
    table = np.array(rows, np.int64).reshape(-1, 4)
    return ChunkPieces(
        table[:, 3].astype(np.uint32),
        np.arange(2 * len(rows), dtype=np.uint32).reshape(-1, 2),
        table[:, 0].astype(np.uint32),
        table[:, 1].astype(np.uint64),
        table[:, 2].astype(np.uint64),
        np.arange(len(rows), dtype=np.uint32),
    )


@given(ROWS, st.integers(0, 200), st.integers(1, 2000))
def test_ranges_hold_every_piece_and_little_else(
    rows: list[tuple[int, int, int, int]], close: int, longest: int
) -> None:
    ranges = coalesce_ranges(made(rows), close, longest)
    assert sorted(row for found in ranges for row in found.rows) == list(range(len(rows)))
    for found in ranges:
        pieces = [rows[row] for row in found.rows]
        assert {file for file, *_ in pieces} == {found.file}
        assert found.start == min(offset for _, offset, _, _ in pieces)
        assert found.stop == max(offset + size for _, offset, size, _ in pieces)
        assert len(pieces) == 1 or found.stop - found.start <= longest
        taken = np.zeros(found.stop - found.start, np.bool_)
        for _, offset, size, _ in pieces:
            taken[offset - found.start : offset - found.start + size] = True
        gaps = np.flatnonzero(np.diff(np.concatenate(([True], taken, [True])).astype(int)))
        assert all(stop - start <= close for start, stop in zip(gaps[::2], gaps[1::2], strict=True))
    for one, other in pairwise(ranges):
        assert (one.file, one.start) <= (other.file, other.start)
        first = rows[other.rows[0]]
        near = one.file == other.file and first[1] - one.stop <= close
        assert not near or max(one.stop, first[1] + first[2]) - one.start > longest


@given(ROWS, st.lists(st.integers(0, 5), unique=True, max_size=6))
def test_pieces_of_some_chunks(rows: list[tuple[int, int, int, int]], chunks: list[int]) -> None:
    pieces = made(rows)
    some = pieces.of(np.array(chunks, np.intp))
    found = [
        (chunks[chunk], offset, mask)
        for chunk, offset, mask in zip(
            some.chunk.tolist(), some.offset.tolist(), some.mask.tolist(), strict=True
        )
    ]
    assert found == [(row[3], row[1], i) for i, row in enumerate(rows) if row[3] in chunks]
    assert some.place.shape == (len(found), 2)


@given(ROWS)
def test_the_first_piece_of_each_chunk(rows: list[tuple[int, int, int, int]]) -> None:
    pieces = made(rows)
    file, offset = pieces.firsts(6)
    counts = pieces.counts(6)
    for chunk in range(6):
        own = [(row[0], row[1]) for row in rows if row[3] == chunk]
        assert counts[chunk] == len(own)
        assert (file[chunk], offset[chunk]) == min(own, default=(0, 0))
