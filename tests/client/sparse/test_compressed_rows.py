"""Bands of rows against scipy's conversion of all elements."""

from __future__ import annotations

import random

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from hsparse.client.sparse import compressed_rows
from hsparse.client.sparse.compressed_rows import BandPiece, RowBands, index_type


@given(
    st.integers(1, 40),
    st.integers(1, 20),
    st.integers(1, 9),
    st.integers(1, 7),
    st.floats(0, 0.6),
    st.randoms(),
)
def test_bands_in_any_order_are_one_matrix(
    length: int, width: int, height: int, step: int, density: float, order: random.Random
) -> None:
    rng = np.random.default_rng(length)
    dense = np.where(rng.random((length, width)) < density, rng.integers(1, 9, (length, width)), 0)
    starts = [first for first in range(0, length, height) if order.random() < 0.8]  # others are not stored
    ends = [min(first + height, length) for first in starts]
    spare = order.randrange(3)
    most = [int(np.count_nonzero(dense[a:b])) + spare for a, b in zip(starts, ends, strict=True)]
    cached = order.choice([1, 20, 1 << 20])
    bands = RowBands((length, width), list(zip(starts, ends, strict=True)), most, np.dtype(">i4"))
    expected = np.zeros_like(dense)
    numbers = list(range(len(starts)))
    order.shuffle(numbers)
    for number in numbers:
        band = dense[starts[number] : ends[number]]
        expected[starts[number] : ends[number]] = band
        pieces = []
        for left in range(0, width, step):
            rows, columns = np.nonzero(band[:, left : left + step])
            values = band[rows, columns + left].astype(">i4")
            pieces.append(BandPiece(rows.astype(np.uint16), (columns + left).astype(np.int32), values))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(compressed_rows, "CONVERTED_ELEMENTS", cached)
            bands.fill(number, pieces)
    found = bands.result()
    assert len(found) == np.count_nonzero(expected)
    matrix, wanted = found.to_scipy(), scipy.sparse.csr_array(expected.astype(np.int32))
    matrix.check_format()
    for name in ("data", "indices", "indptr"):
        assert getattr(matrix, name).tolist() == getattr(wanted, name).tolist()
        assert getattr(matrix, name).dtype == getattr(wanted, name).dtype


@pytest.mark.parametrize(("most", "kind"), [(0, np.int32), (2**31 - 1, np.int32), (2**31, np.int64)])
def test_numbers_are_as_wide_as_scipy_has_them(most: int, kind: type) -> None:
    assert index_type(3, most) == kind
