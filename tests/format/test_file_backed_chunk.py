"""Chunks that are ranges of files: their checks, and the pieces that are read."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import h5py
import hdf5plugin
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import Corrupt
from hsparse.format.file_backed import (
    ChunkPieces,
    coalesce_ranges,
    mask_of,
    max_piece_size,
    place_piece,
    place_start,
)
from hsparse.format.filters.definition import Filter
from hsparse.format.filters.pipeline import undo_filters
from hsparse.format.piece_decoding import decode_piece, pipeline_of
from tests.format.filter_cases import CASES, pipeline

SHAPE = (30, 20)
DTYPES = ("<u1", ">i2", "<f8")


@pytest.fixture(scope="module")
def file() -> Iterator[h5py.File]:
    with h5py.File("pieces.h5", "w", driver="core", backing_store=False) as opened:
        yield opened


def array(dtype: str, spread: int) -> np.ndarray:
    """Return elements that can be compressed, or not at all with a spread of 256."""
    size = np.dtype(dtype).itemsize
    data = np.random.default_rng(spread).integers(1, spread, (*SHAPE, size), dtype=np.uint8)
    return data.view(dtype).reshape(SHAPE)


def written(file: h5py.File, values: np.ndarray, **options: object) -> tuple[int, bytes]:
    """Return the filter mask and the bytes of a chunk that libhdf5 makes of `values`."""
    dataset = file.create_dataset(None, data=values, chunks=values.shape, **options)
    mask, data = dataset.id.read_direct_chunk((0, 0))
    return int(mask), bytes(data)


def told(name: str, values: np.ndarray) -> tuple[Filter, ...]:
    return pipeline(name, values.dtype.itemsize, values.nbytes)


@pytest.mark.parametrize("spread", [3, 256])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CASES)
def test_a_piece_is_read_with_its_mask_or_without(
    name: str, dtype: str, spread: int, file: h5py.File
) -> None:
    values = array(dtype, spread)
    mask, data = written(file, values, **CASES[name][1])
    assert len(data) <= max_piece_size(SHAPE, values.dtype.itemsize, told(name, values))
    for known in {mask, 0}:
        piece = decode_piece(data, SHAPE, values.dtype, told(name, values), known)
        np.testing.assert_array_equal(piece.view("u1"), values.view("u1"))


@pytest.mark.parametrize("compressor", ["lz4", "zstd"])
def test_what_bitshuffle_compresses_with_need_not_be_told(compressor: str, file: h5py.File) -> None:
    values = array(">i2", 9)
    _, data = written(file, values, compression=hdf5plugin.Bitshuffle(cname=compressor))
    np.testing.assert_array_equal(decode_piece(data, SHAPE, values.dtype, told("bitshuffle", values)), values)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"compression": "gzip"}, "shuffle"),
        ({"scaleoffset": 2}, "deflate"),
        ({"compression": "lzf"}, "deflate"),
        ({"compression": "gzip", "shuffle": True}, "zstd"),
    ],
)
def test_another_pipeline_is_an_error_and_never_other_values(
    options: dict[str, object], name: str, file: h5py.File
) -> None:
    values = array("<f8", 3)
    _, data = written(file, values, **options)
    with pytest.raises(Corrupt):
        decode_piece(data, SHAPE, values.dtype, told(name, values))


@pytest.mark.parametrize("name", ["fletcher32", "shuffle-deflate-fletcher32", "deflate", "lz4", "zstd"])
def test_damage_is_found(name: str, file: h5py.File) -> None:
    values = array("<f8", 3)
    _, data = written(file, values, **CASES[name][1])
    for damaged in (data[:-1], data[: len(data) // 2], b"", bytes([data[0] ^ 0x55]) + data[1:]):
        with pytest.raises(Corrupt):
            decode_piece(damaged, SHAPE, values.dtype, told(name, values))


def test_pieces_are_put_into_place() -> None:
    chunk = np.zeros((4, 6), "<i4")
    place_piece(chunk, [1, 2], np.full((2, 2), 7, "<i4"))
    assert (chunk[2:4, 4:6] == 7).all()
    assert chunk.sum() == 28
    place_start(chunk, np.arange(8, dtype="<i4").tobytes())
    assert chunk[0].tolist() == [0, 1, 2, 3, 4, 5]
    assert chunk[1].tolist() == [6, 7, 0, 0, 0, 0]


@pytest.mark.parametrize("spread", [3, 256])
@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_the_filters_and_the_mask_that_libhdf5_has(
    name: str, checked: bool, spread: int, file: h5py.File
) -> None:
    """What was told without fletcher32 and without the mask becomes what the file has."""
    values = array("<f8", spread)
    mask, data = written(file, values, **CASES[name][1] | ({"fletcher32": True} if checked else {}))
    pipeline = tuple(filter for filter in told(name, values) if filter.id != 3)
    found = pipeline_of(data, values.nbytes, pipeline)
    assert [filter.id for filter in found].count(3) == (checked or "fletcher32" in name)
    skipped = mask_of(found, pipeline, 0, len(data), values.nbytes)
    assert skipped == mask
    np.testing.assert_array_equal(
        np.frombuffer(undo_filters(found, data, skipped, values.nbytes), "u1"), values.view("u1").reshape(-1)
    )


def test_no_filters_fit() -> None:
    with pytest.raises(Corrupt):
        pipeline_of(b"nothing of the kind", 800, (Filter(1, (4,)),))


ROWS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 5000), st.integers(1, 300), st.integers(0, 5)), max_size=40
)


def made(rows: list[tuple[int, int, int, int]]) -> ChunkPieces:
    """Return pieces of rows of file, offset, size and chunk."""
    table = np.array(rows, np.int64).reshape(-1, 4)
    return ChunkPieces(
        table[:, 3].astype(np.uint32),
        np.arange(2 * len(rows), dtype=np.uint32).reshape(-1, 2),
        table[:, 0].astype(np.uint32),
        table[:, 1].astype(np.uint64),
        table[:, 2].astype(np.uint64),
        np.arange(len(rows), dtype=np.uint32),
    )


@given(ROWS, st.integers(0, 200), st.integers(1, 2000))
def test_ranges_hold_every_piece_and_little_else(
    rows: list[tuple[int, int, int, int]], close: int, longest: int
) -> None:
    ranges = coalesce_ranges(made(rows), close, longest)
    assert sorted(row for found in ranges for row in found.rows) == list(range(len(rows)))
    for found in ranges:
        pieces = [rows[row] for row in found.rows]
        assert {file for file, *_ in pieces} == {found.file}
        assert found.start == min(offset for _, offset, _, _ in pieces)
        assert found.stop == max(offset + size for _, offset, size, _ in pieces)
        assert len(pieces) == 1 or found.stop - found.start <= longest
        taken = np.zeros(found.stop - found.start, np.bool_)
        for _, offset, size, _ in pieces:
            taken[offset - found.start : offset - found.start + size] = True
        gaps = np.flatnonzero(np.diff(np.concatenate(([True], taken, [True])).astype(int)))
        assert all(stop - start <= close for start, stop in zip(gaps[::2], gaps[1::2], strict=True))
    for one, other in pairwise(ranges):
        assert (one.file, one.start) <= (other.file, other.start)
        first = rows[other.rows[0]]
        near = one.file == other.file and first[1] - one.stop <= close
        assert not near or max(one.stop, first[1] + first[2]) - one.start > longest


@given(ROWS, st.lists(st.integers(0, 5), unique=True, max_size=6))
def test_pieces_of_some_chunks(rows: list[tuple[int, int, int, int]], chunks: list[int]) -> None:
    pieces = made(rows)
    some = pieces.of(np.array(chunks, np.intp))
    found = [
        (chunks[chunk], offset, mask)
        for chunk, offset, mask in zip(
            some.chunk.tolist(), some.offset.tolist(), some.mask.tolist(), strict=True
        )
    ]
    assert found == [(row[3], row[1], i) for i, row in enumerate(rows) if row[3] in chunks]
    assert some.place.shape == (len(found), 2)


@given(ROWS)
def test_the_first_piece_of_each_chunk(rows: list[tuple[int, int, int, int]]) -> None:
    pieces = made(rows)
    file, offset = pieces.firsts(6)
    counts = pieces.counts(6)
    for chunk in range(6):
        own = [(row[0], row[1]) for row in rows if row[3] == chunk]
        assert counts[chunk] == len(own)
        assert (file[chunk], offset[chunk]) == min(own, default=(0, 0))
