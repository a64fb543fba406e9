"""Chunks by column, as a plan has them."""

from __future__ import annotations

import numpy as np

from hsparse.format.chunk_map import digests
from hsparse.format.chunk_rows import ChunkRows
from hsparse.format.hdf5.planned_chunks import PlannedChunks


def test_dense_chunks_of_several_pages_in_row_major_order() -> None:
    pages = [ChunkRows.of([(10, 0), (2, 1)], 2, [5, 6], ["a", "b"]), ChunkRows.of([(2, 0)], 2, [7], ["c"])]
    found = PlannedChunks.of(pages, 2)
    assert found.scaled.tolist() == [[2, 0], [2, 1], [10, 0]]
    assert found.size.tolist() == [7, 6, 5]
    assert found.digest.tolist() == digests(["c", "b", "a"]).tolist()
    assert found.take(found.size > 5).sized(9).size.tolist() == [9, 9]


def test_a_structured_chunk_has_the_size_of_its_sections() -> None:
    rows = ChunkRows.of([(0,)], 1, [1000], ["a"])
    sections = np.array([[[12, 30, 0], [5, 5, 1]]], np.uint64)
    found = PlannedChunks.of([rows.described(sections, np.array([3], np.uint64))], 1)
    assert found.size.tolist() == [17]
    assert found.defined.tolist() == [3]


def test_none_and_a_scalars_one() -> None:
    assert len(PlannedChunks.of([], 3)) == 0
    assert len(PlannedChunks.of([ChunkRows.of([()], 0, [4], ["a"])], 0)) == 1


def test_a_grid_is_completed_in_row_major_order() -> None:
    rows = ChunkRows.of([(1, 0), (0, 1)], 2, [5, 6], ["a", "b"])
    found = PlannedChunks.of([rows], 2).completed((2, 2), 9)
    assert found.scaled.tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]
    assert found.size.tolist() == [9, 6, 5, 9]
    assert found.stored.tolist() == [False, True, True, False]
    assert found.digest[1:3].tolist() == digests(["b", "a"]).tolist()
    for stored in ([], [()]):
        scalar = PlannedChunks.of([ChunkRows.of(stored, 0, [4] * len(stored), ["a"] * len(stored))], 0)
        assert scalar.completed((), 9).stored.tolist() == [bool(stored)]
