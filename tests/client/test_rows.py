"""Rows: bands of them converted to compressed ones, and blocks fetched while others are used."""

from __future__ import annotations

import random
import threading

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from hsparse.client.sparse import banded_csr, compressed_rows
from hsparse.client.sparse.banded_csr import row_bands, to_banded_csr, to_sorted_csr
from hsparse.client.sparse.compressed_rows import BandPiece, RowBands, index_type
from hsparse.client.sparse.prefetch import prefetched


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


def test_the_next_result_is_fetched_while_one_is_used() -> None:
    begun = [threading.Event() for _ in range(4)]

    def fetch(number: int) -> int:
        begun[number].set()
        return number

    results = prefetched(fetch, range(4))
    assert not begun[0].is_set(), "nothing is fetched before the first is asked for"
    for number in range(4):
        assert next(results) == number
        if number < 3:
            assert begun[number + 1].wait(60)
        if number < 2:
            assert not begun[number + 2].is_set()
    assert (list(results), list(prefetched(fetch, []))) == ([], [])


def test_an_error_comes_in_its_place() -> None:
    results = prefetched(lambda number: 6 // number, [3, 2, 0, 1])
    assert [next(results), next(results)] == [2, 3]
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_what_is_done_meanwhile_is_done_once_while_the_first_is_fetched() -> None:
    done = threading.Event()
    calls: list[int] = []

    def fetch(number: int) -> int:
        assert done.wait(60)
        return number

    def meanwhile() -> None:
        calls.append(1)
        done.set()

    assert (list(prefetched(fetch, range(3), meanwhile=meanwhile)), calls) == ([0, 1, 2], [1])
