"""Chunks by column in a plan, and their offsets in a region."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hsparse.format.chunk_map import digests
from hsparse.format.chunk_rows import ChunkRows
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.filters.definition import Filter
from hsparse.hdf5.format.plan.planned_chunks import ChunkForm, ChunkRegion, PlannedChunks


def test_a_structured_chunk_has_the_size_of_its_sections() -> None:
    rows = ChunkRows.of([(0,)], 1, [1000], ["a"])
    sections = np.array([[[12, 30, 0], [5, 5, 1]]], np.uint64)
    found = PlannedChunks.of([rows.described(sections, np.array([3], np.uint64))], 1)
    assert found.size.tolist() == [17]
    assert found.defined.tolist() == [3]


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


SPEC = ChunkSpec("d-x", "H5T_STD_U8LE", (4,), False, b"", ((),))


def region(sizes: list[int], form: ChunkForm) -> ChunkRegion:
    count = len(sizes)
    numbers = np.arange(count, dtype=np.uint64)
    none = np.zeros((count, 0, 3), np.uint64)
    chunks = PlannedChunks(numbers[:, None], numbers, np.array(sizes, np.uint64), none, numbers, numbers >= 0)
    return ChunkRegion.of("key", SPEC, form, chunks)


def test_what_making_a_chunk_takes() -> None:
    some = region([10, 20], ChunkForm.STORED)
    assert some.weights(range(2)).tolist() == [10, 20]
    sections = np.array([[[4, 50, 0], [6, 60, 0]], [[10, 3, 0], [10, 3, 0]]], np.uint64)
    converted = replace(
        some, form=ChunkForm.TRANSCODED_SECTIONS, chunks=replace(some.chunks, sections=sections)
    )
    assert converted.weights(range(2)).tolist() == [880, 48]
    defined = replace(converted, form=ChunkForm.DEFINED)
    assert defined.weights(range(2)).tolist() == [120, 26]
    linked = replace(some, form=ChunkForm.FILE_BACKED, spec=replace(SPEC, dims=(15,)))
    assert linked.weights(range(1, 2)).tolist() == [20]
    filtered = replace(linked, spec=replace(linked.spec, filters=((Filter(1, (4,)),),)))
    assert filtered.weights(range(2)).tolist() == [15, 20]


@given(
    st.lists(st.integers(1, 40), max_size=12),
    st.sampled_from(ChunkForm),
    st.integers(0, 400),
    st.integers(0, 400),
)
def test_the_chunks_in_a_range(sizes: list[int], form: ChunkForm, start: int, stop: int) -> None:
    some = region(sizes, form)
    starts = some.starts.tolist()
    multiple = 1 if form is ChunkForm.STORED else 8
    assert [begin % multiple for begin in starts] == [0] * (len(sizes) + 1)
    assert all(begin + size <= end for begin, size, end in zip(starts, sizes, starts[1:], strict=False))
    assert some.size == sum(-(-size // multiple) * multiple for size in sizes)
    start, stop = min(start, some.size), min(stop, some.size)
    wanted = [
        number for number, (begin, end) in enumerate(pairwise(starts)) if max(begin, start) < min(end, stop)
    ]
    assert list(some.rows(start, stop)) == wanted
