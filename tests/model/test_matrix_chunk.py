"""Chunk dimensions of sparse datasets of any shape."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import Unsupported
from hsparse.format.filters.definition import Filter
from hsparse.format.filters.filters_json import parse_filters
from hsparse.model.initial_values import (
    BAND,
    IN_CHUNK,
    LARGEST_BAND,
    LARGEST_BATCH,
    LOW_BAND,
    chunk_of,
    matrix_filters,
)
from hsparse.model.layout import MAX_CHUNK_ELEMENTS


@given(st.lists(st.integers(1, 2**40), min_size=1, max_size=4), st.integers(0, 2**40))
def test_chunks_are_within_the_shape(shape: list[int], count: int) -> None:
    chunk = chunk_of(tuple(shape), count)
    assert all(1 <= side <= length for side, length in zip(chunk, shape, strict=True))
    assert np.prod(chunk, dtype=object) <= MAX_CHUNK_ELEMENTS


@given(st.integers(20_000, 10**7), st.integers(2_000, 10**6), st.floats(0.005, 0.5), st.booleans())
def test_chunks_of_a_matrix_are_tall_and_a_band_of_them_is_not_too_large(
    rows: int, columns: int, density: float, by_chunks: bool
) -> None:
    count = int(rows * columns * density)
    height, width = chunk_of((rows, columns), count, by_chunks=by_chunks)
    tallest, most = (BAND, LARGEST_BAND) if by_chunks else (LOW_BAND, LARGEST_BATCH)
    assert height * width * density <= 1.1 * IN_CHUNK
    assert height * (width + 1) * density >= 0.9 * IN_CHUNK  # a tall chunk may have few columns
    assert height.bit_count() == 1 or height == rows or width == columns
    if height > width:
        assert height <= tallest
        assert height * columns * density <= most
    elif width < columns:
        assert width <= 4 * height + 4  # about a square
        assert 2 * height > tallest or 2 * height * columns * density > 0.8 * most


def test_wanted_chunks_are_cut_to_the_shape() -> None:
    assert chunk_of((100, 50), 500, (64, 1000)) == (64, 50)
    with pytest.raises(Unsupported, match="chunk has 2 dimensions"):
        chunk_of((100, 50, 3), 500, (64, 1000))


@pytest.mark.parametrize(
    ("dims", "size"), [((64, 20_000), 4), ((65_536, 8), 4), ((4, 65_537), 8), ((9, 9, 9), 6)]
)
def test_points_of_a_matrix_are_as_narrow_as_its_chunks(dims: tuple[int, ...], size: int) -> None:
    places, values = parse_filters(matrix_filters(dims), 8, sparse=True, chunk_bytes=1 << 20, record_size=99)
    assert places == (Filter(2, (size,)), Filter(1, (4,)))
    assert values == (Filter(2, (8,)), Filter(1, (4,)))
