"""Where chunks lie in their piece of a file."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.filters.definition import Filter
from hsparse.format.hdf5.chunk_region import ChunkForm, ChunkRegion
from hsparse.format.hdf5.planned_chunks import PlannedChunks

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
    converted = replace(some, form=ChunkForm.CONVERTED, chunks=replace(some.chunks, sections=sections))
    assert converted.weights(range(2)).tolist() == [880, 48]
    defined = replace(converted, form=ChunkForm.DEFINED)
    assert defined.weights(range(2)).tolist() == [120, 26]
    linked = replace(some, form=ChunkForm.LINKED, spec=replace(SPEC, dims=(15,)))
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
