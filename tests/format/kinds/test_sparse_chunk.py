"""Dense, sparse and bare chunks where the kinds differ."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hsparse.errors import BadRequest, Corrupt, TooLarge, Unsupported
from hsparse.format.filters.definition import Filter
from hsparse.format.filters.filters_json import parse_filters, record_size
from hsparse.format.kinds.dense import decode_dense, encode_dense
from hsparse.format.kinds.sparse import SparseChunk, decode_sparse, encode_sparse
from hsparse.format.kinds.vlen_chunk import SparseVlenChunk, decode_bare_vlen, encode_bare_vlen
from hsparse.format.selections.selection_encoding import encode_offsets
from hsparse.format.structured.container import MAX_FOOTER, METADATA_FIXED, build, read_footer, seal
from hsparse.model.datatype import parse_type
from hsparse.model.json_values import from_json, to_json
from hsparse.model.vlen_array import VlenArray
from tests.format.filters.filter_cases import CASES, pipeline
from tests.model.type_strategies import ITEMS, nested, values_of

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


DENSE_CHUNK_DTYPES = ["<i4", ">f8", "u1", "S3", [("a", ">i2"), ("b", "<f8")], (">i2", (2,)), "?"]
dims_lists = st.lists(st.integers(1, 6), max_size=3).map(tuple)


def make_of_dense_chunk(dims: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    data = np.random.default_rng(dims).integers(0, 2, dtype.itemsize * int(np.prod(dims)), np.uint8)
    return np.ndarray(dims, dtype, data.tobytes())


@pytest.mark.endurance
@pytest.mark.parametrize("name", CASES)
@given(dims_lists, st.sampled_from(DENSE_CHUNK_DTYPES))
def test_an_object_reads_back_of_dense_chunk(name: str, dims: tuple[int, ...], kind: Any) -> None:
    dtype = np.dtype(kind)
    array = make_of_dense_chunk(dims, dtype)
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


def test_variable_length_types_are_refused_of_dense_chunk() -> None:
    with pytest.raises(Unsupported):
        encode_dense(np.zeros(3, object), ())
    with pytest.raises(Unsupported):
        decode_dense(bytes(24), (3,), np.dtype(object), ())


SPARSE_VLEN_CHUNK_DIMS = (4, 6)
WRITES = st.lists(st.tuples(st.integers(0, 23), st.binary(max_size=9)), max_size=12)


def as_dict_of_sparse_vlen_chunk(chunk: SparseVlenChunk) -> dict[int, bytes]:
    assert (chunk.offsets[1:] > chunk.offsets[:-1]).all()
    return dict(zip(chunk.offsets.tolist(), chunk.values, strict=True))


def written(chunk: SparseVlenChunk, pairs: list[tuple[int, bytes]]) -> SparseVlenChunk:
    offsets = np.array([offset for offset, _ in pairs], np.uint32)
    return chunk.merge(offsets, VlenArray.of([value for _, value in pairs]))


@given(st.lists(WRITES, max_size=4), st.sets(st.integers(0, 23)))
def test_merging_and_selecting(writes: list[list[tuple[int, bytes]]], gone: set[int]) -> None:
    chunk, model = SparseVlenChunk.empty(SPARSE_VLEN_CHUNK_DIMS), dict[int, bytes]()
    for pairs in writes:
        chunk = written(chunk, pairs)
        model |= dict(pairs)
        assert as_dict_of_sparse_vlen_chunk(chunk) == model
        assert len(chunk.values.heap) == sum(map(len, model.values())), "nothing old stays"
    kept = chunk.select(~np.isin(chunk.offsets, list(gone)))
    assert as_dict_of_sparse_vlen_chunk(kept) == {
        offset: value for offset, value in model.items() if offset not in gone
    }
    assert as_dict_of_sparse_vlen_chunk(chunk) == model, "a chunk is not modified"


def test_what_does_not_fit() -> None:
    empty = SparseVlenChunk.empty(SPARSE_VLEN_CHUNK_DIMS)
    with pytest.raises(BadRequest, match="inside"):
        written(empty, [(24, b"")])
    with pytest.raises(TooLarge, match="smaller"):
        empty.merge(np.arange(24), VlenArray.of([bytes(6 << 20)]))
    with pytest.raises(TooLarge, match="4194305 strings"):
        SparseVlenChunk.empty((2**23,)).merge(np.arange(2**22 + 1), VlenArray.of([bytes(4)]))
    with pytest.raises(TooLarge, match="strings"):
        empty.merge(np.arange(24), VlenArray.of([bytes(4)]), references=2**20)


BARE_VLEN_CHUNK_DIMS = (2, 3)
BARE_VLEN_CHUNK_PIPELINES = [
    (),
    (Filter(1, (6,)),),
    (Filter(32015, (3,)), Filter(3, (), optional=False)),
    (Filter(32004, (0,)),),
]


@st.composite
def chunks(draw: st.DrawFn) -> tuple[Any, Any]:
    item = draw(ITEMS.filter(lambda item: parse_type(item).is_vlen))
    return item, draw(nested(values_of(item), BARE_VLEN_CHUNK_DIMS))


@given(chunks(), st.sampled_from(BARE_VLEN_CHUNK_PIPELINES))
def test_what_is_stored_is_loaded(drawn: tuple[Any, Any], pipeline: tuple[Filter, ...]) -> None:
    item, value = drawn
    element = parse_type(item).element
    array = from_json(value, BARE_VLEN_CHUNK_DIMS, element)
    assert isinstance(array, VlenArray)
    data = bytes(encode_bare_vlen(array, pipeline))
    if not pipeline:
        assert data == array.heap.tobytes()
    assert to_json(decode_bare_vlen(data, BARE_VLEN_CHUNK_DIMS, element, pipeline), element) == value
