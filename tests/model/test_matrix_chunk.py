"""Chunk dimensions of sparse datasets of any shape."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hsparse.model.layout import MAX_CHUNK_ELEMENTS
from hsparse.model.matrix_chunk import BAND, IN_CHUNK, LARGEST_BATCH, chunk_of


@given(st.lists(st.integers(1, 2**40), min_size=1, max_size=4), st.integers(0, 2**40))
def test_chunks_are_within_the_shape(shape: list[int], count: int) -> None:
    chunk = chunk_of(tuple(shape), count)
    assert all(1 <= side <= length for side, length in zip(chunk, shape, strict=True))
    assert np.prod(chunk, dtype=object) <= MAX_CHUNK_ELEMENTS


@given(st.integers(5_000, 10**7), st.integers(2_000, 10**6), st.floats(0.005, 0.5))
def test_chunks_of_a_matrix_are_tall_and_a_band_of_them_is_one_request(
    rows: int, columns: int, density: float
) -> None:
    count = int(rows * columns * density)
    height, width = chunk_of((rows, columns), count)
    assert 0.9 * IN_CHUNK <= height * width * density <= 1.1 * IN_CHUNK
    if height > width + 1:
        assert height <= BAND
        assert height * columns * density <= LARGEST_BATCH
    else:  # a square one has more than that
        assert abs(height - width) <= 2
        assert height >= BAND or height * columns * density >= 0.8 * LARGEST_BATCH


def test_chunks_of_other_ranks_have_equal_sides() -> None:
    assert chunk_of((1000, 1000, 1000), 10**7) == (148, 148, 149)
    assert chunk_of((10, 1000, 1000), 10**7) == (10, 57, 57)
    assert chunk_of((10**6,), 10**5) == (327680,)
