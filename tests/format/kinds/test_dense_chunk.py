"""Dense chunks: bare bytes that libhdf5 reads without a filter mask."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import Unsupported
from hsparse.format.kinds.dense import decode_dense, encode_dense
from tests.format.filters.filter_cases import CASES, pipeline

DTYPES = ["<i4", ">f8", "u1", "S3", [("a", ">i2"), ("b", "<f8")], (">i2", (2,)), "?"]
dims_lists = st.lists(st.integers(1, 6), max_size=3).map(tuple)


def make(dims: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    data = np.random.default_rng(dims).integers(0, 2, dtype.itemsize * int(np.prod(dims)), np.uint8)
    return np.ndarray(dims, dtype, data.tobytes())


@pytest.mark.endurance
@pytest.mark.parametrize("name", CASES)
@given(dims_lists, st.sampled_from(DTYPES))
def test_an_object_reads_back(name: str, dims: tuple[int, ...], kind: Any) -> None:
    dtype = np.dtype(kind)
    array = make(dims, dtype)
    filters = pipeline(name, dtype.itemsize, array.nbytes)
    found = decode_dense(encode_dense(array, filters), dims, dtype, filters)
    assert found.dtype == array.dtype
    assert found.shape == array.shape
    assert found.tobytes() == array.tobytes()


def test_without_filters_nothing_is_copied() -> None:
    array = np.arange(6, dtype=">i4").reshape(2, 3)
    data = encode_dense(array, ())
    assert isinstance(data, memoryview)
    assert np.shares_memory(array, np.frombuffer(data, np.uint8))
    assert np.shares_memory(decode_dense(data, (2, 3), array.dtype, ()), array)


def test_another_order_in_memory_is_stored_in_c_order() -> None:
    array = np.arange(6, dtype="<i4").reshape(2, 3)
    assert bytes(encode_dense(np.asfortranarray(array), ())) == array.tobytes()


@pytest.mark.parametrize("name", CASES)
def test_libhdf5_reads_what_cannot_be_compressed_without_a_mask(name: str, tmp_path: Path) -> None:
    array = np.frombuffer(np.random.default_rng(0).bytes(4004), "<u4").reshape(7, 143)
    data = bytes(encode_dense(array, pipeline(name, 4, array.nbytes)))
    with h5py.File(tmp_path / "dense.h5", "w") as file:
        dataset = file.create_dataset("data", array.shape, array.dtype, chunks=array.shape, **CASES[name][1])
        dataset.id.write_direct_chunk((0, 0), data, 0)
    with h5py.File(tmp_path / "dense.h5") as file:
        assert np.array_equal(file["data"][:], array)


def test_variable_length_types_are_refused() -> None:
    with pytest.raises(Unsupported):
        encode_dense(np.zeros(3, object), ())
    with pytest.raises(Unsupported):
        decode_dense(bytes(24), (3,), np.dtype(object), ())
