"""Filters one by one, by name and as a table."""

from __future__ import annotations

import io
import re
import tokenize
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import Unsupported
from hsparse.format.filters.bitshuffle import decode_bitshuffle, encode_bitshuffle
from hsparse.format.filters.pipeline import ADVERTISED, BY_ID, BY_NAME, DEFINITIONS, find, requestable

PACKAGE = Path(__file__).parents[3] / "hsparse"
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
    pattern = re.compile("|".join(sorted(map(re.escape, words), key=len, reverse=True)))
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
