"""Converting bands of rows side by side gives what one conversion gives."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from hsparse.client.sparse import banded_csr
from hsparse.client.sparse.banded_csr import row_bands, to_banded_csr, to_sorted_csr


def elements(shape: tuple[int, int], height: int, width: int, seed: int) -> tuple[np.ndarray, ...]:
    """Return elements chunk after chunk, in any order inside each."""
    rng = np.random.default_rng(seed)
    rows, columns = np.nonzero(rng.random(shape) < 0.3)
    order = np.lexsort((rng.random(len(rows)), columns // width, rows // height))
    return rows[order].astype(np.int32), columns[order].astype(np.int32), rng.random(len(rows))


@given(st.integers(1, 60), st.integers(1, 20), st.integers(1, 9), st.integers(1, 7), st.integers(0, 100))
def test_the_result_is_that_of_one_conversion(
    length: int, width: int, chunk_rows: int, chunk_columns: int, seed: int
) -> None:
    shape = (length, width)
    rows, columns, values = elements(shape, chunk_rows, chunk_columns, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(banded_csr, "MIN_THREADED_ELEMENTS", 0)
        ends = row_bands(rows, chunk_rows, length)
        found = to_banded_csr(rows, columns, values, shape, ends)
    bands = len(set((rows // chunk_rows).tolist()))
    assert len(ends) == bands + 1
    if bands < 2:
        assert found is None
        return
    wanted = scipy.sparse.coo_array((values, (rows, columns)), shape=shape).tocsr()
    assert type(found) is type(wanted)
    for name in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name))
        assert getattr(found, name).dtype == getattr(wanted, name).dtype
    assert found.has_canonical_format


@given(st.integers(1, 30), st.integers(1, 20), st.integers(0, 100))
def test_elements_in_row_major_order_are_taken_as_they_are(length: int, width: int, seed: int) -> None:
    rows, columns, values = elements((length, width), length, width, seed)
    order = np.lexsort((columns, rows))
    rows, columns, values = rows[order], columns[order], values[order]
    found = to_sorted_csr(rows, columns, values, (length, width))
    wanted = scipy.sparse.coo_array((values, (rows, columns)), shape=(length, width)).tocsr()
    assert np.shares_memory(found.data, values) or not len(values)
    for name in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name))
        assert getattr(found, name).dtype == getattr(wanted, name).dtype
    if len(rows) > 1:
        back = slice(None, None, -1)
        assert to_sorted_csr(rows[back], columns[back], values[back], (length, width)) is None


def test_elements_in_another_order_are_left_to_one_conversion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(banded_csr, "MIN_THREADED_ELEMENTS", 0)
    rows, columns, values = elements((40, 20), 10, 5, 1)
    back = slice(None, None, -1)
    assert to_banded_csr(rows[back], columns[back], values[back], (40, 20), row_bands(rows, 10, 40)) is None
    assert to_banded_csr(rows[1:], columns[1:], values[1:], (40, 20), row_bands(rows, 10, 40)) is None
