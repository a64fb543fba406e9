"""Pieces of files that libhdf5 wrote, decoded by what clients tell of them and by less."""

from __future__ import annotations

from collections.abc import Iterator

import h5py
import hdf5plugin
import numpy as np
import pytest

from hsparse.errors import Corrupt
from hsparse.format.file_backed import (
    decode_piece,
    mask_of,
    max_piece_size,
    pipeline_of,
    place_piece,
    place_start,
)
from hsparse.format.filters.definition import Filter
from hsparse.format.filters.pipeline import undo_filters
from tests.format.filters.filter_cases import CASES, pipeline

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
