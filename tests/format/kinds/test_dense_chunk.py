"""Dense chunks: bare bytes that libhdf5 reads without a filter mask."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import BadRequest, Corrupt, Unsupported
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.filters.definition import Filter
from hsparse.format.kinds.chunk_kind import ChunkKind, Search
from hsparse.format.kinds.dense import decode_dense, encode_dense
from hsparse.format.kinds.registry import kind_of
from hsparse.format.plan.chunk_plan import ChunkSelection
from hsparse.format.query import bind_query
from hsparse.format.selections.orthogonal import Orthogonal, Span
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


def test_a_filter_that_fails_is_named_even_when_optional() -> None:
    with pytest.raises(BadRequest, match="bitshuffle"):
        encode_dense(np.zeros(7, "u1"), (Filter(32008, (0, 4, 4), optional=True),))


@pytest.mark.parametrize("length", [0, 23, 25])
def test_another_size_is_corrupt(length: int) -> None:
    with pytest.raises(Corrupt, match=f"{length} bytes; 24"):
        decode_dense(bytes(length), (2, 3), np.dtype("<i4"), ())


def test_another_size_inside_filters_is_corrupt() -> None:
    filters = (Filter(1, (6,)),)
    with pytest.raises(Corrupt, match=r"deflate|24 are expected"):
        decode_dense(encode_dense(np.zeros(7, "<i4"), filters), (2, 3), np.dtype("<i4"), filters)


def test_variable_length_types_are_refused() -> None:
    with pytest.raises(Unsupported):
        encode_dense(np.zeros(3, object), ())
    with pytest.raises(Unsupported):
        decode_dense(bytes(24), (3,), np.dtype(object), ())


def test_computed_fill_values_are_computed_in_a_change_that_needs_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A change runs in a thread, what makes it on the event loop."""
    asked: list[tuple[int, ...]] = []

    def fill_of(spec: ChunkSpec, scaled: tuple[int, ...]) -> np.ndarray[Any, Any]:
        asked.append(scaled)
        return np.arange(6 * scaled[0], 6 * scaled[0] + 6)

    monkeypatch.setattr(ChunkSpec, "fill_of", fill_of)
    spec = ChunkSpec("d-1", "H5T_STD_I64LE", (6,), False, b"\0" * 8, (), arange=(0.0, 1.0))
    kind: ChunkKind[Any] = kind_of(spec)
    whole, part = Orthogonal.all((6,)), Orthogonal((6,), (Span.range(1, 3),))
    full = kind.write(ChunkSelection((2,), whole, True), np.arange(6), (), False)
    write = kind.write(ChunkSelection((2,), part), np.zeros(2, np.int64), (), False)
    search = Search(bind_query("_ > 13", spec.dtype))
    update = kind.update(ChunkSelection((2,), whole), search, np.array(-1))
    trim = kind.trim((2,), (4,))
    assert full(None)[0].tolist() == [0, 1, 2, 3, 4, 5]
    assert asked == []
    assert write(None)[0].tolist() == [12, 0, 0, 15, 16, 17]
    assert update(None)[0].tolist() == [12, 13, -1, -1, -1, -1]
    assert trim(np.zeros(6, np.int64))[0].tolist() == [0, 0, 0, 0, 16, 17]
    assert asked == [(2,)] * 3
