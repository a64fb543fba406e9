"""Filters by name and as a table; libhdf5 reads what they write and the other way round; masks, limits, damage."""

from __future__ import annotations

import contextlib
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hsparse.errors import Corrupt, Unsupported
from hsparse.format.filters.bitshuffle import decode_bitshuffle, encode_bitshuffle
from hsparse.format.filters.definition import Filter
from hsparse.format.filters.pipeline import (
    ADVERTISED,
    BY_ID,
    BY_NAME,
    DEFINITIONS,
    apply_filters,
    find,
    requestable,
    undo_filters,
)
from tests.format.filter_cases import CASES, pipeline

DTYPES = ("<u1", ">i2", "<f8", "S3", "V12", "V300")
LENGTHS = (1, 7, 8, 63, 777, 5000)


@pytest.fixture(scope="module")
def file() -> Iterator[h5py.File]:
    with h5py.File("filters.h5", "w", driver="core", backing_store=False) as opened:
        yield opened


@cache
def make(dtype: str, length: int, spread: int) -> NDArray[Any]:
    """Return elements with random bytes below `spread`: compressible or, with 256, not at all."""
    rng = np.random.default_rng([length, spread])
    size = np.dtype(dtype).itemsize
    data = rng.integers(1, spread, size * length, dtype=np.uint8, endpoint=spread < 256)
    data.flags.writeable = False
    return data.view(dtype)


def as_bytes(array: NDArray[Any]) -> bytes:
    return array.tobytes()


def create(file: h5py.File, name: str, array: NDArray[Any], title: str | None = None) -> h5py.Dataset:
    return file.create_dataset(title, array.shape, array.dtype, chunks=array.shape, **CASES[name][1])


def arrays(dtype: str) -> Iterator[NDArray[Any]]:
    for length in LENGTHS:
        for spread in (3, 256):
            yield make(dtype, length, spread)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CASES)
def test_this_reads_libhdf5(name: str, dtype: str, file: h5py.File) -> None:
    for array in arrays(dtype):
        data = as_bytes(array)
        dataset = create(file, name, array)
        dataset[:] = array
        mask, stored = dataset.id.read_direct_chunk((0,))
        assert bytes(undo_filters(pipeline(name, array.itemsize, len(data)), stored, mask, len(data))) == data


@pytest.mark.parametrize("optional", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_libhdf5_reads_this(name: str, optional: bool, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "ours.h5", "w") as file:
        for dtype in DTYPES:
            for number, array in enumerate(arrays(dtype)):
                data = as_bytes(array)
                filters = tuple(
                    replace(filter, optional=optional) for filter in pipeline(name, array.itemsize, len(data))
                )
                output, mask = apply_filters(filters, data)
                assert optional or mask == 0
                assert bytes(undo_filters(filters, output, mask, len(data))) == data
                assert bytes(undo_filters(filters, output, mask, None)) == data
                dataset = create(file, name, array, f"{dtype}-{number}")
                dataset.id.write_direct_chunk((0,), bytes(output), mask)
    # libhdf5 heeds the mask of a direct write once the file has been opened again.
    with h5py.File(tmp_path / "ours.h5") as file:
        for dtype in DTYPES:
            for number, array in enumerate(arrays(dtype)):
                assert as_bytes(file[f"{dtype}-{number}"][:]) == as_bytes(array)


@pytest.mark.parametrize("name", CASES)
def test_client_values_are_what_libhdf5_stores(name: str, file: h5py.File) -> None:
    dataset = file.create_dataset(None, (100,), "<f8", chunks=(100,), **CASES[name][1])
    plist = dataset.id.get_create_plist()
    stored = [plist.get_filter(place) for place in range(plist.get_nfilters())]
    ours = pipeline(name, 8, 800)
    assert [(filter.id, filter.values) for filter in ours] == [(id, values) for id, _, values, _ in stored]
    assert [filter.optional for filter in ours] == [bool(flags & 1) for _, flags, _, _ in stored]


@pytest.mark.parametrize("name", ["lzf", "blosc-lz4-shuffle"])
def test_what_does_not_get_smaller_is_skipped_as_libhdf5_does(name: str, file: h5py.File) -> None:
    array = make("<u1", 500, 256)
    dataset = create(file, name, array)
    dataset[:] = array
    assert dataset.id.read_direct_chunk((0,)) == (1, as_bytes(array))
    output, mask = apply_filters(pipeline(name, 1, 500), as_bytes(array))
    assert (mask, bytes(output)) == (1, as_bytes(array))


def test_an_optional_filter_that_fails_sets_its_bit() -> None:
    filters = (Filter(1, (6,)), Filter(32008, (0, 4, 4096)))
    data = bytes(4096)
    output, mask = apply_filters(filters, data)
    assert mask == 2
    assert bytes(undo_filters(filters, output, mask, 4096)) == data


@pytest.mark.parametrize("name", [name for name in CASES if name not in ("shuffle", "bitshuffle")])
def test_a_decoder_returns_no_more_than_expected(name: str) -> None:
    filters = tuple(replace(filter, optional=False) for filter in pipeline(name, 4, 1 << 22))
    output, _ = apply_filters(filters, bytes(1 << 22))
    with pytest.raises(Corrupt):
        undo_filters(filters, output, 0, 4096)
    with pytest.raises(Corrupt):
        undo_filters(filters, output, 0, (1 << 22) + 4)


@pytest.mark.parametrize("name", CASES)
def test_what_is_cut_short_is_corrupt(name: str) -> None:
    data = as_bytes(make("<u4", 1000, 3))
    filters = tuple(replace(filter, optional=False) for filter in pipeline(name, 4, len(data)))
    output, _ = apply_filters(filters, data)
    for length in (0, 1, 3, 11, 12, 15, 16, len(output) // 2, len(output) - 1):
        with pytest.raises(Corrupt):
            undo_filters(filters, bytes(output)[:length], 0, len(data))


@pytest.mark.endurance
@pytest.mark.parametrize("name", CASES)
@given(noise=st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 255)), min_size=1, max_size=4))
def test_damage_is_corrupt_or_gives_the_expected_size(name: str, noise: list[tuple[int, int]]) -> None:
    data = as_bytes(make("<u4", 300, 3))
    filters = tuple(replace(filter, optional=False) for filter in pipeline(name, 4, len(data)))
    damaged = bytearray(apply_filters(filters, data)[0])
    for place, value in noise:
        damaged[place % len(damaged)] = value
    with contextlib.suppress(Corrupt):
        assert len(undo_filters(filters, bytes(damaged), 0, len(data))) == len(data)


def test_fletcher32_finds_any_changed_byte_and_takes_the_old_byte_order() -> None:
    filters = (Filter(3, (), optional=False),)
    data = bytes(range(1, 100))
    output = bytes(apply_filters(filters, data)[0])
    for place in range(len(output)):
        damaged = bytearray(output)
        damaged[place] ^= 0x10
        with pytest.raises(Corrupt, match="fletcher32"):
            undo_filters(filters, bytes(damaged), 0, len(data))
    swapped = output[:-4] + bytes(output[place] for place in (-3, -4, -1, -2))
    assert bytes(undo_filters(filters, swapped, 0, len(data))) == data


def test_an_unknown_filter_is_named_with_those_that_work() -> None:
    with pytest.raises(Unsupported, match=r"LZO \(id 305\) .* zstd"):
        apply_filters((Filter(305),), b"abc")
    with pytest.raises(Unsupported, match="id 305"):
        undo_filters((Filter(305),), b"abc", 0, 3)


def test_no_filters_copy_nothing() -> None:
    data = b"abc"
    assert apply_filters((), data) == (data, 0)
    assert apply_filters((), data)[0] is data
    assert undo_filters((), data, 0, 3) is data


def test_many_compressors_in_a_row_undo_each_other_in_bounded_memory() -> None:
    filters = (Filter(32015, (3,)), Filter(1, (1,)), Filter(32004, (64,))) * 10
    data = as_bytes(make("<u4", 500, 256))
    output, mask = apply_filters(filters, data)
    assert bytes(undo_filters(filters, output, mask, len(data))) == data


PACKAGE = Path(__file__).parents[2] / "hsparse"
TABLE = ("codecs.py", "transforms.py")
NOT_FILTERS = {"none"}
EXCEPTIONS = {
    "format/filters/bitshuffle.py": "the codec of one filter, with what that filter compresses with",
    "format/filters/definition.py": "tells what a definition is by the names of filters",
    "format/filters/filters_json.py": "whether a filter shuffles is a property of every definition",
    "format/filters/pipeline.py": "the filters that structured chunks have by default",
    "format/codec_library.py": "the library of codecs, or what stands in for it",
    "sn/coding.py": "content codings of HTTP, which are no filters",
    "explorer/": "content codings of HTTP, which are no filters",
    "storage/": "checksums of the store's own files, by the standard library",
    "hdf5/in_place/signatures.py": "archives, by the names of their programs",
    "hdf5/importer/file_objects.py": "a remedy that names h5repack's option",
    "client/creation.py": "h5py's names of options",
    "client/dataset.py": "h5py's names of options",
    "client/dataset_creation.py": "h5py's names of options",
    "client/integrations/batches/": "the order of rows in training",
    "client/html_repr.py": "a picture in PNG",
    "hdf5/importer/formats/matrix_directory.py": "compressed text files, which are no HDF5",
    "hdf5/importer/matrix_market.py": "compressed text files, which are no HDF5",
    "hdf5/importer/npz_matrix.py": "compressed archives, which are no HDF5",
    "hdf5/exporter/": "examples in the help and the errors of the command line",
    "hdf5/maps/parquet_references.py": "compression of Parquet files",
}
"""Files and folders that name filters, or what is called like one, and why."""


def test_every_name_and_id_leads_to_one_filter() -> None:
    assert len(BY_ID) == len(DEFINITIONS)
    assert len(BY_NAME) == sum(len(definition.names) for definition in DEFINITIONS)
    for definition in DEFINITIONS:
        assert find(definition.id) is definition
        assert all(find(name) is definition for name in definition.names)


def test_what_clients_of_hsds_are_told_of() -> None:
    assert ADVERTISED == ("blosclz", "lz4", "lz4hc", "gzip", "zstd", "deflate")


@pytest.mark.parametrize("name", ["szip", "nbit", "scaleoffset", "snappy"])
def test_filters_known_by_name_only(name: str) -> None:
    with pytest.raises(Unsupported, match=f"The filter {name} is not available; deflate, shuffle"):
        requestable(BY_NAME[name].id)


FSTRING_PART = getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)
"""The token of text in an f-string, which is one string before Python 3.12."""


def named_filters(path: Path) -> set[str]:
    """Return the names of filters in the names and strings of a module's code, but for its docstrings."""
    words = {name.lower() for definition in DEFINITIONS for name in definition.names} - NOT_FILTERS
    one = "|".join(sorted(map(re.escape, words), key=len, reverse=True))
    pattern = re.compile(rf"(?<![a-z])(?:{one})(?![a-z])")
    text = path.read_text()
    found: set[str] = set()
    if not pattern.search(text.lower()):
        return found  # as most files do; tokens take long
    before = tokenize.NEWLINE
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        docstring = token.type == tokenize.STRING and before in (tokenize.NEWLINE, tokenize.INDENT)
        if token.type in (tokenize.NAME, tokenize.STRING, FSTRING_PART) and not docstring:
            found.update(pattern.findall(token.string.lower()))
        if token.type not in (tokenize.NL, tokenize.COMMENT, tokenize.DEDENT):
            before = token.type
    return found


def test_no_other_file_names_a_filter() -> None:
    known = {f"format/filters/{name}" for name in TABLE}
    naming = {
        str(path.relative_to(PACKAGE)): names
        for path in PACKAGE.rglob("*.py")
        if (names := named_filters(path))
    }
    assert known <= set(naming)
    others = set(naming) - known
    excused = {path: next((one for one in EXCEPTIONS if path.startswith(one)), None) for path in others}
    assert {path: naming[path] for path in others if excused[path] is None} == {}, (
        "ask hsparse.format.filters.pipeline instead of naming a filter"
    )
    assert set(excused.values()) == set(EXCEPTIONS), "an exception that no file needs"


def transpose(data: bytes, itemsize: int) -> bytes:
    """Transpose the bits of a multiple of 8 elements, the slow way."""
    bits = np.unpackbits(np.frombuffer(data, np.uint8).reshape(-1, itemsize), axis=1, bitorder="little")
    return np.packbits(bits.T.reshape(-1), bitorder="little").tobytes()


def shuffle(data: bytes, itemsize: int, block: int) -> bytes:
    grouped = len(data) // itemsize // 8 * 8 * itemsize
    step = block * itemsize
    parts = [transpose(data[at : min(at + step, grouped)], itemsize) for at in range(0, grouped, step)]
    return b"".join((*parts, data[grouped:]))


@given(st.data(), st.integers(1, 9), st.sampled_from([8, 16, 128]))
def test_bits_are_transposed_by_blocks_and_the_rest_stays(
    data: st.DataObject, itemsize: int, block: int
) -> None:
    count = data.draw(st.integers(0, 300))
    content = np.random.default_rng(count).bytes(count * itemsize)
    values = (0, 4, itemsize, block)
    output = bytes(encode_bitshuffle(values, content))
    assert output == shuffle(content, itemsize, block)
    assert bytes(decode_bitshuffle(values, output, len(content))) == content


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ((0, 4), "element size"),
        ((0, 4, 0), "element size"),
        ((0, 4, 4, 12), "multiple"),
        ((0, 4, 4, 8, 1), "1"),
    ],
)
def test_parameters_that_are_not_valid_are_refused(values: tuple[int, ...], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        encode_bitshuffle(values, bytes(64))


def test_more_bytes_than_there_should_be_are_refused() -> None:
    output = bytes(encode_bitshuffle((0, 4, 4, 0, 2), bytes(4000)))
    with pytest.raises(ValueError, match="after the last block"):
        decode_bitshuffle((0, 4, 4, 0, 2), output + b"\0", 4000)
