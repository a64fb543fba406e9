"""Which bands entries need, and how many of them there may be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse as sp

from hsparse.errors import TooLarge
from hsparse.format.hdf5.matrix_bands import (
    MOST_LINES,
    MatrixBands,
    MatrixColumn,
    MatrixPart,
    check_bands,
    check_lines,
)
from tests.format.hdf5.test_made_band import matrices, stored_matrix


@given(matrices(), st.tuples(st.integers(1, 30), st.integers(1, 30)), st.sampled_from([0, 1]), st.data())
def test_only_bands_that_are_needed(
    matrix: sp.coo_array, dims: tuple[int, int], axis: int, data: st.DataObject
) -> None:
    bands, _ = stored_matrix(matrix, dims, axis)
    for part in (MatrixPart.VALUES, MatrixPart.POINTERS):
        first, last = sorted(data.draw(st.tuples(*[st.integers(0, bands.entries(part))] * 2)))
        needed = []
        for band, line in enumerate(bands.lines.tolist()):
            if part is MatrixPart.POINTERS:
                inside = any(line < number < line + dims[axis] for number in range(first, last))
            else:
                inside = max(first, int(bands.starts[band])) < min(last, int(bands.starts[band + 1]))
            needed += [band] if inside else []
        assert list(bands.bands_of(part, first, last)) == needed


def test_a_column_in_bytes() -> None:
    bands, _ = stored_matrix(sp.coo_array(np.ones((4, 5))), (2, 2), 0)
    assert bands.lines.tolist() == [0, 2]
    assert bands.starts.tolist() == [0, 10, 20]
    pointers = MatrixColumn(bands, MatrixPart.POINTERS)
    assert (pointers.entries, pointers.width, pointers.size) == (5, 4, 20)
    assert MatrixColumn(bands, MatrixPart.VALUES).span(5, 13) == (1, 4)
    assert bands.memory(MatrixPart.VALUES, 0, 10, 0) == int(bands.weights[0])
    assert bands.memory(MatrixPart.VALUES, 0, 20, 10**9) == int(bands.weights.sum())
    assert bands.nbytes > 0


def test_indices_are_wide_where_they_must_be() -> None:
    bands, _ = stored_matrix(sp.coo_array(np.ones((1, 1))), (1, 1), 0)
    for shape, width in (((2**31 - 1, 5), 4), ((2**31, 5), 8), ((5, 2**31), 8)):
        assert MatrixBands.of(bands.spec, shape, 0, bands.chunks).index.itemsize == width


def test_what_is_too_large() -> None:
    bands, _ = stored_matrix(sp.coo_array(np.ones((4, 5))), (2, 2), 1)
    check_bands(bands, int(bands.weights.max()))
    with pytest.raises(TooLarge, match=r"2 columns of d-1 .* ask for the form by rows"):
        check_bands(bands, int(bands.weights.max()) - 1)
    check_bands(MatrixBands.of(bands.spec, (4, 5), 1, bands.chunks.take(np.zeros(0, np.intp))), 0)
    check_lines(replace(bands, shape=(1, MOST_LINES)))
    with pytest.raises(TooLarge, match=r"4294967297 columns.*binsparse-coo"):
        check_lines(replace(bands, shape=(1, MOST_LINES + 1)))
