"""Chunk dimensions of sparse datasets of any shape."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hsparse.model.layout import MAX_CHUNK_ELEMENTS
from hsparse.model.matrix_chunk import chunk_of


@given(st.lists(st.integers(1, 2**40), min_size=1, max_size=4), st.integers(0, 2**40))
def test_chunks_are_within_the_shape(shape: list[int], count: int) -> None:
    chunk = chunk_of(tuple(shape), count)
    assert all(1 <= side <= length for side, length in zip(chunk, shape, strict=True))
    assert np.prod(chunk, dtype=object) <= MAX_CHUNK_ELEMENTS
