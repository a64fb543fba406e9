"""Stored chunks, dense and sparse, of numbers and of variable length: libhdf5's bytes, random values, damage."""

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
from hsparse.format.kinds.vlen_chunk import (
    SparseVlenChunk,
    decode_bare_vlen,
    decode_dense_vlen,
    decode_sparse_vlen,
    encode_bare_vlen,
    encode_dense_vlen,
    encode_sparse_vlen,
)
from hsparse.format.selections.encoded_selection import decode_offsets
from hsparse.format.selections.selection_encoding import encode_offsets
from hsparse.format.structured.container import (
    MAX_FOOTER,
    METADATA_FIXED,
    METADATA_VL,
    StoredChunk,
    build,
    open_chunk,
    read_footer,
    seal,
)
from hsparse.format.structured.vlen_sections import decode_elements, encode_elements
from hsparse.model.datatype import parse_type
from hsparse.model.json_values import from_json, to_json
from hsparse.model.vlen_array import VlenArray
from tests.format.filter_cases import CASES, pipeline
from tests.format.hdf5.index_files import GoldenChunk, golden_chunks
from tests.model.type_strategies import ITEMS, length_prefixed, nested, text, values_of

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
    with pytest.raises(Unsupported):
        encode_dense(np.zeros(3, object), ())
    with pytest.raises(Unsupported):
        decode_dense(bytes(24), (3,), np.dtype(object), ())


DENSE_DTYPES = ["<i4", ">f8", "u1", "S3", [("a", ">i2"), ("b", "<f8")], (">i2", (2,)), "?"]
dims_lists = st.lists(st.integers(1, 6), max_size=3).map(tuple)


def make_dense(dims: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    data = np.random.default_rng(dims).integers(0, 2, dtype.itemsize * int(np.prod(dims)), np.uint8)
    return np.ndarray(dims, dtype, data.tobytes())


@pytest.mark.endurance
@pytest.mark.parametrize("name", CASES)
@given(dims_lists, st.sampled_from(DENSE_DTYPES))
def test_a_dense_object_reads_back(name: str, dims: tuple[int, ...], kind: Any) -> None:
    dtype = np.dtype(kind)
    array = make_dense(dims, dtype)
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


GRID = (4, 6)
WRITES = st.lists(st.tuples(st.integers(0, 23), st.binary(max_size=9)), max_size=12)


def words_of(chunk: SparseVlenChunk) -> dict[int, bytes]:
    assert (chunk.offsets[1:] > chunk.offsets[:-1]).all()
    return dict(zip(chunk.offsets.tolist(), chunk.values, strict=True))


def written(chunk: SparseVlenChunk, pairs: list[tuple[int, bytes]]) -> SparseVlenChunk:
    offsets = np.array([offset for offset, _ in pairs], np.uint32)
    return chunk.merge(offsets, VlenArray.of([value for _, value in pairs]))


@given(st.lists(WRITES, max_size=4), st.sets(st.integers(0, 23)))
def test_merging_and_selecting(writes: list[list[tuple[int, bytes]]], gone: set[int]) -> None:
    chunk, model = SparseVlenChunk.empty(GRID), dict[int, bytes]()
    for pairs in writes:
        chunk = written(chunk, pairs)
        model |= dict(pairs)
        assert words_of(chunk) == model
        assert len(chunk.values.heap) == sum(map(len, model.values())), "nothing old stays"
    kept = chunk.select(~np.isin(chunk.offsets, list(gone)))
    assert words_of(kept) == {offset: value for offset, value in model.items() if offset not in gone}
    assert words_of(chunk) == model, "a chunk is not modified"


def test_what_does_not_fit() -> None:
    empty = SparseVlenChunk.empty(GRID)
    with pytest.raises(BadRequest, match="inside"):
        written(empty, [(24, b"")])
    with pytest.raises(TooLarge, match="smaller"):
        empty.merge(np.arange(24), VlenArray.of([bytes(6 << 20)]))
    with pytest.raises(TooLarge, match="4194305 strings"):
        SparseVlenChunk.empty((2**23,)).merge(np.arange(2**22 + 1), VlenArray.of([bytes(4)]))
    with pytest.raises(TooLarge, match="strings"):
        empty.merge(np.arange(24), VlenArray.of([bytes(4)]), references=2**20)


BARE_DIMS = (2, 3)
BARE_PIPELINES = [
    (),
    (Filter(1, (6,)),),
    (Filter(32015, (3,)), Filter(3, (), optional=False)),
    (Filter(32004, (0,)),),
]


@st.composite
def chunks(draw: st.DrawFn) -> tuple[Any, Any]:
    item = draw(ITEMS.filter(lambda item: parse_type(item).is_vlen))
    return item, draw(nested(values_of(item), BARE_DIMS))


@given(chunks(), st.sampled_from(BARE_PIPELINES))
def test_bare_chunks_that_are_stored_are_loaded(drawn: tuple[Any, Any], pipeline: tuple[Filter, ...]) -> None:
    item, value = drawn
    element = parse_type(item).element
    array = from_json(value, BARE_DIMS, element)
    assert isinstance(array, VlenArray)
    data = bytes(encode_bare_vlen(array, pipeline))
    if not pipeline:
        assert data == array.heap.tobytes()
    assert to_json(decode_bare_vlen(data, BARE_DIMS, element, pipeline), element) == value


FOLDER = Path(__file__).parents[1] / "data" / "golden"
GOLDEN = FOLDER / "lib-2026-09-vlen.h5"
TEXT = parse_type(text("H5T_VARIABLE")).element
VLEN_DIMS = (3, 4)
DEFLATE = Filter(1, (6,))
VLEN_PIPELINES: list[tuple[tuple[Filter, ...], ...]] = [
    ((), (), ()),
    ((Filter(2, (4,)), DEFLATE), (Filter(2, (16,)), DEFLATE), (Filter(32015, (3,)),)),
    ((DEFLATE,), (Filter(3, (), optional=False),), ()),
]
WORDS = {
    (10,): {1: "b", 2: "cd", 3: "def"},
    (5,): [
        {1: "b", 4: "efgh"},
        {0: "fghij", 2: ""},
        {0: "klm", 1: "lmno", 3: "nopqrs"},
        {1: "qr", 2: "rst"},
    ],
}


def golden() -> list[GoldenChunk]:
    return list(golden_chunks(GOLDEN.read_bytes()))


def sealed_golden(chunk: GoldenChunk, count: int) -> bytes:
    images = tuple(chunk.data[part.offset : part.offset + part.size] for part in chunk.sections)
    return seal(StoredChunk(images, chunk.sections), count)


def as_words(chunk: SparseVlenChunk) -> dict[int, str]:
    return {n: word[4:].decode() for n, word in zip(chunk.offsets.tolist(), chunk.values, strict=True)}


def test_the_librarys_chunks_have_the_words_that_were_written() -> None:
    found = [
        as_words(decode_sparse_vlen(sealed_golden(c, n), c.dims, TEXT, c.pipelines))
        for c, n in zip(golden(), (3, 2, 2, 3, 2, 2, 2, 3, 2), strict=True)
    ]
    assert found == [WORDS[10,], *WORDS[5,], *WORDS[5,]]


def test_the_librarys_bytes_are_written_again() -> None:
    """Every section but the selection, which is written in its smallest form here."""
    for chunk in golden():
        sections = open_chunk(chunk.data, chunk.sections, METADATA_VL, chunk.pipelines)
        values = decode_elements(sections[1], sections[2], TEXT, ("1", "2"))
        again = build((sections[0], *encode_elements(values, TEXT)), METADATA_VL, chunk.pipelines)
        assert [part.unfiltered for part in again.sections] == [part.unfiltered for part in chunk.sections]
        if not any(chunk.pipelines):
            assert again.data == chunk.data
        opened = open_chunk(again.data, again.sections, METADATA_VL, chunk.pipelines)
        assert list(map(bytes, opened)) == list(map(bytes, sections))


@st.composite
def columns(draw: st.DrawFn, size: int) -> tuple[Any, list[bytes]]:
    item = draw(ITEMS.filter(lambda item: parse_type(item).is_vlen))
    values = draw(st.lists(values_of(item), min_size=size, max_size=size))
    return item, [length_prefixed(item, value) for value in values]


@pytest.mark.endurance
@given(columns(12), st.sets(st.integers(0, 11)), st.sampled_from(VLEN_PIPELINES))
def test_structured_chunks_that_are_stored_are_loaded(
    drawn: tuple[Any, list[bytes]], places: set[int], pipelines: tuple[tuple[Filter, ...], ...]
) -> None:
    item, values = drawn
    element = parse_type(item).element
    offsets = np.array(sorted(places), np.uint32)
    column = VlenArray.of([values[offset] for offset in offsets])
    data = encode_sparse_vlen(SparseVlenChunk(VLEN_DIMS, offsets, column), element, pipelines)
    chunk = decode_sparse_vlen(data, VLEN_DIMS, element, pipelines)
    assert chunk.offsets.tolist() == offsets.tolist()
    assert list(chunk.values) == list(column)
    dense = encode_dense_vlen(VlenArray.of(values, VLEN_DIMS), element, pipelines)
    whole = decode_dense_vlen(dense, VLEN_DIMS, element, pipelines)
    assert (whole.shape, list(whole)) == (VLEN_DIMS, values)


def example(pipelines: tuple[tuple[Filter, ...], ...]) -> bytes:
    values = VlenArray.of([length_prefixed(text("H5T_VARIABLE"), "w" * n) for n in range(4)])
    return encode_sparse_vlen(
        SparseVlenChunk(VLEN_DIMS, np.array([1, 2, 7, 11], np.uint32), values), TEXT, pipelines
    )


@pytest.mark.parametrize("pipelines", VLEN_PIPELINES)
def test_every_changed_bit_is_found(pipelines: tuple[tuple[Filter, ...], ...]) -> None:
    data = example(pipelines)
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 1 << place % 8
        with pytest.raises(Corrupt, match=r"(S|s)ection|footer"):
            decode_sparse_vlen(bytes(damaged), VLEN_DIMS, TEXT, pipelines)


@given(st.data())
def test_sections_that_lie_are_named(data: st.DataObject) -> None:
    """Damage under right checksums, as another program's error would leave it."""
    values = VlenArray.of([length_prefixed(text("H5T_VARIABLE"), "w" * n) for n in range(4)])
    sections = [bytearray(part) for part in encode_elements(values, TEXT)]
    number = data.draw(st.integers(0, 1))
    place = data.draw(st.integers(0, len(sections[number]) - 1))
    if data.draw(st.booleans()):
        sections[number][place] ^= data.draw(st.integers(1, 255))
    else:
        del sections[number][place:]
    stored = build((b"", *map(bytes, sections)), METADATA_VL, VLEN_PIPELINES[0])
    outcome = told(seal(stored, 4))
    assert outcome.startswith("Section ") or int(outcome) < 1000, outcome


def told(data: bytes) -> str:
    """Return the error's message, or how many bytes the chunk takes."""
    try:
        return str(decode_dense_vlen(data, (2, 2), TEXT, VLEN_PIPELINES[0]).nbytes)
    except Corrupt as error:
        return error.message


def test_what_is_of_another_kind() -> None:
    sparse = example(VLEN_PIPELINES[0])
    with pytest.raises(Corrupt, match="dense chunk"):
        decode_dense_vlen(sparse, VLEN_DIMS, TEXT, VLEN_PIPELINES[0])
    dense = encode_dense_vlen(VlenArray.of([bytes(4)] * 12, VLEN_DIMS), TEXT, VLEN_PIPELINES[0])
    with pytest.raises(Corrupt, match="Section 0"):
        decode_sparse_vlen(dense, VLEN_DIMS, TEXT, VLEN_PIPELINES[0])
    with pytest.raises(Corrupt, match="Section 1"):
        decode_sparse_vlen(sparse, (1, 3), TEXT, VLEN_PIPELINES[0])
    with pytest.raises(Corrupt, match="3 sections"):
        decode_sparse_vlen(sparse, VLEN_DIMS, TEXT, ((), ()))


FILES = {
    "lib-2026-09-farray.h5": 53,
    "lib-2026-09-single.h5": 6,
    "lib-2026-09-vlen.h5": 9,
    "rfc-2025-10-farray.h5": 53,
}


def chunks_of(name: str) -> list[GoldenChunk]:
    return list(golden_chunks((FOLDER / name).read_bytes()))


def stored(chunk: GoldenChunk) -> StoredChunk:
    images = tuple(chunk.data[part.offset : part.offset + part.size] for part in chunk.sections)
    return StoredChunk(images, chunk.sections)


@pytest.mark.parametrize("name", FILES)
def test_every_chunk_verifies_and_decodes(name: str) -> None:
    found = chunks_of(name)
    assert len(found) == FILES[name]
    for chunk in found:
        sections = open_chunk(chunk.data, chunk.sections, chunk.metadata, chunk.pipelines)
        offsets, _ = decode_offsets(sections[0], chunk.dims)
        assert len(sections[1]) == len(offsets) * chunk.itemsize
        assert chunk.metadata == (METADATA_VL if len(sections) == 3 else METADATA_FIXED)


@pytest.mark.parametrize("name", FILES)
def test_building_the_same_sections_gives_chunks_that_open_to_them(name: str) -> None:
    for chunk in chunks_of(name):
        sections = open_chunk(chunk.data, chunk.sections, chunk.metadata, chunk.pipelines)
        built = build(sections, chunk.metadata, chunk.pipelines)
        assert [part.unfiltered for part in built.sections] == [part.unfiltered for part in chunk.sections]
        if not any(chunk.pipelines):
            assert (built.data, built.sections) == (chunk.data, chunk.sections)
        again = open_chunk(built.data, built.sections, chunk.metadata, chunk.pipelines)
        assert [bytes(section) for section in again] == [bytes(section) for section in sections]


@pytest.mark.parametrize("name", FILES)
def test_every_changed_byte_of_a_metadata_section_is_found(name: str) -> None:
    for chunk in chunks_of(name)[:6]:
        for number in chunk.metadata:
            part = chunk.sections[number]
            for place in range(part.offset, part.offset + part.size, 1 + part.size // 40):
                damaged = bytearray(chunk.data)
                damaged[place] ^= 0xFF
                with pytest.raises(Corrupt, match=f"Section {number}"):
                    open_chunk(bytes(damaged), chunk.sections, chunk.metadata, chunk.pipelines)


def test_the_minimal_chunk_has_the_elements_that_were_written() -> None:
    chunk = next(found for found in chunks_of("lib-2026-09-single.h5") if found.dims == (5,))
    data = seal(stored(chunk), 3)
    assert data.startswith(chunk.data)
    found = decode_sparse(data, chunk.dims, np.dtype("<i4"), chunk.pipelines)
    assert found.offsets.tolist() == [1, 2, 3]
    assert found.values.tolist() == [11, 21, 31]


@pytest.mark.parametrize("name", [name for name in FILES if "vlen" not in name])
def test_chunks_of_fixed_size_types_read_as_objects_and_are_written_again(name: str) -> None:
    for chunk in chunks_of(name):
        dtype = np.dtype(f"V{chunk.itemsize}")
        selection = open_chunk(chunk.data, chunk.sections, chunk.metadata, chunk.pipelines)[0]
        count = len(decode_offsets(selection, chunk.dims)[0])
        found = decode_sparse(seal(stored(chunk), count), chunk.dims, dtype, chunk.pipelines)
        again = decode_sparse(encode_sparse(found, chunk.pipelines), chunk.dims, dtype, chunk.pipelines)
        assert again.offsets.tolist() == found.offsets.tolist()
        assert again.values.tobytes() == found.values.tobytes()
