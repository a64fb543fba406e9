"""Sparse chunks against a dict: merging, erasing, storing; and no damage goes unseen."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hsparse.errors import Corrupt, Unsupported
from hsparse.format.filters.definition import Filter
from hsparse.format.filters.filters_json import parse_filters, record_size
from hsparse.format.kinds.sparse import SparseChunk, decode_sparse, encode_sparse
from hsparse.format.selections.selection_encoding import encode_offsets
from hsparse.format.structured.container import MAX_FOOTER, METADATA_FIXED, build, read_footer, seal

DIMS = (5, 4, 3)
SIZE = math.prod(DIMS)
DTYPES = [
    np.dtype("<i4"),
    np.dtype(">f8"),
    np.dtype("u1"),
    np.dtype("S5"),
    np.dtype([("a", ">i2"), ("b", "<f8"), ("c", "S3")]),
    np.dtype((">i2", (2,))),
]
NONE: tuple[tuple[Filter, ...], ...] = ((), ())
PIPELINES = {
    "none": NONE,
    "default": parse_filters([], 4, sparse=True, chunk_bytes=240, record_size=record_size(DIMS)),
    "everything": parse_filters(
        ["shuffle", "gzip", "fletcher32"], 4, sparse=True, chunk_bytes=240, record_size=record_size(DIMS)
    ),
    "lzf values": parse_filters(
        [{"class": "H5Z_FILTER_LZF", "section": "H5_SECTION_FIXED"}], 4, sparse=True, chunk_bytes=240
    ),
}

offset_lists = st.lists(st.integers(0, SIZE - 1), max_size=SIZE)
dtypes = st.sampled_from(DTYPES)


def column(dtype: np.dtype[Any], numbers: list[int]) -> NDArray[Any]:
    """Return elements made of `numbers`' bytes: distinct numbers below 2**8 give distinct elements."""
    size = dtype.itemsize
    data = b"".join(bytes([number % 251 + 1] * size) for number in numbers)
    return np.ndarray((len(numbers),), dtype, data)


def element(values: NDArray[Any], place: int) -> bytes:
    return values[place : place + 1].tobytes()


def as_dict(chunk: SparseChunk) -> dict[int, bytes]:
    """Check what always holds of a chunk, and return it as a dict from offset to bytes."""
    assert chunk.offsets.dtype == np.uint32
    assert (chunk.offsets[1:] > chunk.offsets[:-1]).all()
    assert len(chunk.offsets) == len(chunk.values)
    assert chunk.nbytes == chunk.offsets.nbytes + chunk.values.nbytes
    assert not chunk.offsets.flags.writeable
    assert not chunk.values.flags.writeable
    return {int(offset): element(chunk.values, place) for place, offset in enumerate(chunk.offsets)}


def make(dtype: np.dtype[Any], offsets: list[int], first: int = 0) -> SparseChunk:
    return SparseChunk.empty(DIMS, dtype).merge(
        np.array(offsets, np.uint32), column(dtype, list(range(first, first + len(offsets))))
    )


@given(dtypes, st.lists(offset_lists, max_size=4))
def test_merging_is_updating_a_dict(dtype: np.dtype[Any], batches: list[list[int]]) -> None:
    chunk = SparseChunk.empty(DIMS, dtype)
    model: dict[int, bytes] = {}
    for number, offsets in enumerate(batches):
        values = column(dtype, list(range(60 * number, 60 * number + len(offsets))))
        before = as_dict(chunk)
        merged = chunk.merge(np.array(offsets, np.uint64), values)
        assert as_dict(chunk) == before
        model |= {offset: element(values, place) for place, offset in enumerate(offsets)}
        chunk = merged
        assert as_dict(chunk) == model
        assert chunk.values.dtype == np.empty(0, dtype).dtype


def test_the_chunk_keeps_nothing_of_what_was_merged() -> None:
    offsets, values = np.array([3, 7], np.uint32), np.array([1.0, 2.0])
    chunk = SparseChunk.empty(DIMS, values.dtype).merge(offsets, values)
    offsets[0], values[0] = 0, 9.0
    assert as_dict(chunk) == {3: np.float64(1).tobytes(), 7: np.float64(2).tobytes()}


@given(dtypes, offset_lists, offset_lists)
def test_erasing_is_deleting_from_a_dict(dtype: np.dtype[Any], old: list[int], gone: list[int]) -> None:
    chunk = make(dtype, old)
    model = {offset: value for offset, value in as_dict(chunk).items() if offset not in gone}
    assert as_dict(chunk.erase(np.array(gone, np.uint32))) == model
    assert as_dict(chunk.select(~np.isin(chunk.offsets, gone))) == model


@pytest.mark.endurance
@pytest.mark.parametrize("name", PIPELINES)
@given(dtypes, offset_lists)
def test_an_object_reads_back(name: str, dtype: np.dtype[Any], offsets: list[int]) -> None:
    chunk = make(dtype, offsets)
    data = encode_sparse(chunk, PIPELINES[name])
    found = decode_sparse(data, DIMS, dtype, PIPELINES[name])
    assert as_dict(found) == as_dict(chunk)
    assert found.dims == DIMS
    assert found.values.dtype == chunk.values.dtype
    assert read_footer(data[-MAX_FOOTER:], len(data)).defined == len(set(offsets))


def test_a_read_chunk_does_not_keep_the_object() -> None:
    data = bytearray(encode_sparse(make(DTYPES[0], [1, 2, 9]), NONE))
    chunk = decode_sparse(data, DIMS, DTYPES[0], NONE)
    before = as_dict(chunk)
    data[:] = bytes(len(data))
    assert as_dict(chunk) == before


@pytest.mark.parametrize("name", PIPELINES)
def test_every_changed_byte_is_found(name: str) -> None:
    data = encode_sparse(make(DTYPES[0], [1, 2, 3, 17, 40, 59]), PIPELINES[name])
    for place in range(len(data)):
        damaged = bytearray(data)
        for change in (1, 0x40, 0xFF):
            damaged[place] = data[place] ^ change
            with pytest.raises(Corrupt, match=r"footer|Section [01]"):
                decode_sparse(bytes(damaged), DIMS, DTYPES[0], PIPELINES[name])


@given(
    st.lists(
        st.tuples(st.integers(0, 2**20), st.integers(1, 255)),
        min_size=1,
        max_size=5,
        unique_by=lambda x: x[0],
    )
)
def test_damage_to_a_larger_object_is_found(noise: list[tuple[int, int]]) -> None:
    damaged = bytearray(LARGE)
    for place, change in noise:
        damaged[place % len(damaged)] ^= change
    if damaged != LARGE:
        with pytest.raises(Corrupt):
            decode_sparse(bytes(damaged), (256, 256), np.dtype("<f8"), PIPELINES["default"])


def _large() -> bytes:
    rng = np.random.default_rng(1)
    chunk = SparseChunk.empty((256, 256), np.dtype("<f8"))
    chunk = chunk.merge(rng.integers(0, 65536, 3000).astype(np.uint32), rng.random(3000))
    return encode_sparse(chunk, PIPELINES["default"])


LARGE = _large()


@pytest.mark.parametrize(
    ("dims", "dtype", "pipelines"),
    [
        ((5, 4, 4), "<i4", NONE),
        ((60,), "<i4", NONE),
        (DIMS, "<i8", NONE),
        (DIMS, "<i4", PIPELINES["default"]),
        (DIMS, "<i4", ((), (), ())),
    ],
    ids=["other dims", "other rank", "other type", "other filters", "other sections"],
)
def test_an_object_of_another_dataset_is_corrupt(
    dims: tuple[int, ...], dtype: str, pipelines: tuple[tuple[Filter, ...], ...]
) -> None:
    data = encode_sparse(make(DTYPES[0], [1, 17, 59]), NONE)
    with pytest.raises(Corrupt, match="ection"):
        decode_sparse(data, dims, np.dtype(dtype), pipelines)


def sealed(selection: bytes, values: bytes, defined: int) -> bytes:
    return seal(build([selection, values], METADATA_FIXED, NONE), defined)


def test_sections_that_contradict_each_other_are_corrupt() -> None:
    selection = encode_offsets(np.array([1, 5, 9], np.uint32), DIMS)
    for content, defined in ((bytes(8), 3), (bytes(16), 3), (bytes(12), 2), (bytes(13), 3), (bytes(244), 61)):
        with pytest.raises(Corrupt, match=r"Section [01]"):
            decode_sparse(sealed(selection, content, defined), DIMS, DTYPES[0], NONE)
    with pytest.raises(Corrupt, match="Section 0"):
        decode_sparse(sealed(bytes(9000), bytes(12), 3), DIMS, DTYPES[0], NONE)
    with pytest.raises(Corrupt, match="3 sections"):
        decode_sparse(seal(build([selection, b"", b""], (), [()] * 3), 0), DIMS, DTYPES[0], NONE)
    with pytest.raises(Corrupt, match="Section 0"):
        decode_sparse(sealed(selection[:-3], bytes(12), 3), DIMS, DTYPES[0], NONE)


def test_points_in_any_order_bring_their_values_along() -> None:
    """Points v1, in the order they were selected in, as libhdf5 stores a write by points."""
    extent = b"\1\0\x08" + (24).to_bytes(4, "little") + bytes.fromhex("0101010000000000")
    dims = (10).to_bytes(8, "little")
    numbers = (1, 1, 0, 20, 1, 3, 7, 2, 5)
    points = b"".join(number.to_bytes(4, "little") for number in numbers)
    values = np.array([70, 20, 50], "<i4").tobytes()
    chunk = decode_sparse(sealed(extent + dims + dims + points, values, 3), (10,), DTYPES[0], NONE)
    assert chunk.offsets.tolist() == [2, 5, 7]
    assert chunk.values.tolist() == [20, 50, 70]


def test_variable_length_types_are_refused() -> None:
    with pytest.raises(Unsupported):
        encode_sparse(SparseChunk.empty(DIMS, np.dtype(object)), NONE)
    with pytest.raises(Unsupported):
        decode_sparse(b"", DIMS, np.dtype(object), NONE)
