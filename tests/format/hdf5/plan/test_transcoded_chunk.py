"""Transcoded chunks, read again from a file: elements, heaps of older revisions, references; sizes as planned."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import Corrupt
from hsparse.format.chunk_map import sections_of
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.dataspace_message import NEWEST_REVISION, FormatRevision
from hsparse.format.filters.definition import Filter
from hsparse.format.kinds.sparse import SparseChunk, encode_sparse
from hsparse.format.kinds.vlen_chunk import (
    NAMES,
    SparseVlenChunk,
    encode_bare_vlen,
    encode_dense_vlen,
    encode_sparse_vlen,
)
from hsparse.format.structured.container import METADATA_FIXED, METADATA_VL, open_chunk, unseal
from hsparse.format.structured.vlen_sections import decode_elements, revision_of_heap
from hsparse.hdf5.format.plan.transcoded_chunk import (
    encode_defined_set,
    file_filters,
    needs_transcoding,
    resize_references,
    transcode_chunk,
    transcode_sections,
    transcoded_size,
)
from hsparse.model.vlen_array import VlenArray
from tests.format.hdf5.plan.test_dataset_plan import chunks
from tests.support.characters import CHARACTERS

TEXT = {"class": "H5T_STRING", "charSet": "H5T_CSET_UTF8", "length": "H5T_VARIABLE"}
DEFLATE = (Filter(1, (3,)),)
NONE = np.zeros((0, 3), np.uint64)
PLACES = st.lists(st.integers(0, 11), unique=True, max_size=12).map(sorted)


def opened(data: bytes) -> tuple[bytes, np.ndarray]:
    """Return a structured chunk's bytes without the footer, and its table of sections."""
    content, footer = unseal(data)
    table = [[one.size, one.unfiltered, one.mask] for one in footer.sections]
    return bytes(content), np.array(table, np.uint64)


def length_prefixed(text: str) -> bytes:
    data = text.encode()
    return len(data).to_bytes(4, "little") + data


def texts(data: bytes, address: int, count: int) -> list[str]:
    """Return what elements at `address` refer to: global heap collections behind them."""
    found = []
    for element in range(count):
        at = 16 * element
        length, heap = (
            int.from_bytes(data[at : at + 4], "little"),
            int.from_bytes(data[at + 4 : at + 12], "little"),
        )
        number = int.from_bytes(data[at + 12 : at + 16], "little")
        place = heap - address
        assert place % 8 == 0
        assert data[place : place + 4] == b"GCOL"
        place += 16
        while int.from_bytes(data[place : place + 2], "little") != number:
            size = int.from_bytes(data[place + 8 : place + 16], "little")
            place += 16 + size + -size % 8
        found.append(data[place + 16 : place + 16 + length].decode())
    return found


def nowhere(key: Any) -> int:
    raise AssertionError(f"{key} was asked for")


@given(PLACES)
def test_sparse_numbers(places: list[int]) -> None:
    spec = ChunkSpec("d-x", "H5T_STD_I16BE", (3, 4), True, b"\xff\xfe", (DEFLATE, DEFLATE))
    values = np.arange(len(places), dtype=">i2")
    chunk = SparseChunk((3, 4), np.array(places, np.uint32), values)
    data, table = opened(encode_sparse(chunk, spec.filters))
    expected = np.full(12, -2, ">i2")
    expected[places] = values
    made = transcode_chunk(spec, data, table, 0, nowhere, lambda _: None)
    assert np.frombuffer(made, ">i2").tolist() == expected.tolist()
    assert transcoded_size(spec, data, table, lambda _: None) == len(made)
    defined = encode_defined_set(spec, data, table)
    assert np.flatnonzero(np.frombuffer(defined, np.uint8)).tolist() == places
    assert sections_of(table)[1].offset == sections_of(table)[0].size


@given(PLACES, st.lists(st.text(CHARACTERS, max_size=9), min_size=12, max_size=12))
def test_sparse_text(places: list[int], words: list[str]) -> None:
    spec = ChunkSpec("d-x", TEXT, (12,), True, length_prefixed("?"), (DEFLATE, (), ()))
    some = [words[place] for place in places]
    chunk = SparseVlenChunk(
        (12,), np.array(places, np.uint32), VlenArray.of([length_prefixed(one) for one in some])
    )
    data, table = opened(encode_sparse_vlen(chunk, spec.datatype.element, spec.filters))
    made = transcode_chunk(spec, data, table, 4096, nowhere, lambda _: None)
    assert len(made) == transcoded_size(spec, data, table, lambda _: None)
    assert texts(made, 4096, 12) == [word if place in places else "?" for place, word in enumerate(words)]
    defined = encode_defined_set(spec, data, table)
    assert np.flatnonzero(np.frombuffer(defined, np.uint8)).tolist() == places


@given(st.lists(st.text(CHARACTERS, max_size=9), min_size=12, max_size=12), st.booleans())
def test_dense_text(words: list[str], structured: bool) -> None:
    filters = ((), (), DEFLATE) if structured else (DEFLATE,)
    spec = ChunkSpec("d-x", TEXT, (3, 4), False, b"", filters)
    array = VlenArray.of([length_prefixed(word) for word in words], (3, 4))
    if structured:
        data = encode_dense_vlen(array, spec.datatype.element, filters)
    else:
        data = bytes(encode_bare_vlen(array, filters[0]))
    made = transcode_chunk(spec, data, NONE, 8, nowhere, lambda _: None)
    assert len(made) == transcoded_size(spec, data, NONE, lambda _: None)
    assert texts(made, 8, 12) == words


def test_references_become_addresses() -> None:
    item = {"class": "H5T_REFERENCE", "base": "H5T_STD_REF_OBJ"}
    spec = ChunkSpec("d-x", item, (3,), False, b"", ((),))
    data = b"".join(name.encode().ljust(48, b"\0") for name in ("datasets/d-1", "", "groups/g-none"))
    made = transcode_chunk(
        spec, data, NONE, 0, {"key": 77}.__getitem__, lambda name: "key" if name == "datasets/d-1" else None
    )
    assert np.frombuffer(made, "<u8").tolist() == [77, 0, 0]


def test_bytes_that_do_not_decode_are_named() -> None:
    spec = ChunkSpec("d-x", TEXT, (3, 4), False, b"", (DEFLATE,))
    with pytest.raises(Corrupt, match="d-x"):
        transcode_chunk(spec, b"nonsense", NONE, 0, nowhere, lambda _: None)


SHUFFLED = (Filter(2, (16,)), *DEFLATE)
REFERENCE = {"class": "H5T_REFERENCE", "base": "H5T_STD_REF_OBJ"}
PAIR = {
    "class": "H5T_COMPOUND",
    "fields": [{"name": "n", "type": "H5T_STD_I16LE"}, {"name": "to", "type": REFERENCE}],
}
OLD = [revision for revision in FormatRevision if revision is not NEWEST_REVISION]


def spec_of(item: Any, *filters: tuple[Filter, ...]) -> ChunkSpec:
    return ChunkSpec("d-1", item, (4, 4), True, b"", filters)


@pytest.mark.parametrize("revision", OLD)
@pytest.mark.parametrize("filters", [((), (), ()), (DEFLATE, SHUFFLED, DEFLATE)])
def test_heaps_of_older_revisions(revision: FormatRevision, filters: Any) -> None:
    spec = spec_of(TEXT, *filters)
    values = VlenArray.of([length_prefixed(text) for text in ("", "größe", "x" * 3000)])
    element = spec.datatype.element
    chunk = SparseVlenChunk(spec.dims, np.array([1, 5, 15], np.uint32), values)
    data, sections = opened(encode_sparse_vlen(chunk, element, spec.filters))
    assert needs_transcoding(spec, revision)
    assert not needs_transcoding(spec, NEWEST_REVISION)
    assert file_filters(spec) == spec.filters
    table, made = transcode_sections(spec, data, sections, revision, lambda _: None)
    assert not made.places
    selection, fixed, heap = open_chunk(made.data, sections_of(table), METADATA_VL, filters)
    assert selection == open_chunk(data, sections_of(sections), METADATA_VL, filters)[0]
    assert revision_of_heap(heap, NEWEST_REVISION) is FormatRevision.RFC_2025_10
    assert revision_of_heap(heap, revision) is revision
    found = decode_elements(fixed, heap, element, NAMES, revision)
    np.testing.assert_array_equal(found.heap, values.heap)


@pytest.mark.parametrize("revision", FormatRevision)
def test_references_are_addresses_and_unfiltered(revision: FormatRevision) -> None:
    spec = spec_of(PAIR, DEFLATE, SHUFFLED)
    values = np.zeros(3, spec.dtype)
    values["n"] = [7, 8, 9]
    values["to"] = [b"groups/g-1", b"", b"groups/g-2"]
    chunk = SparseChunk(spec.dims, np.array([0, 3, 9], np.uint32), values)
    data, sections = opened(encode_sparse(chunk, spec.filters))
    assert needs_transcoding(spec, revision)
    assert file_filters(spec) == (DEFLATE, ())
    table, made = transcode_sections(spec, data, sections, revision, {"groups/g-1": "one"}.get)
    assert table[1].tolist() == [30, 30, 0]
    planned = resize_references(spec, chunks([[0]], 1, 2).with_sections(sections[None]))
    assert planned.size.tolist() == [len(made.data) - 2 * 10]  # of one element, as `chunks` has it
    whole = made.filled({"one": 0x1234}.__getitem__)
    selection, fixed = open_chunk(whole, sections_of(table), METADATA_FIXED, (DEFLATE, ()))
    assert selection == open_chunk(data, sections_of(sections), METADATA_FIXED, spec.filters)[0]
    found = np.frombuffer(fixed, [("n", "<i2"), ("to", "<u8")])
    assert found.tolist() == [(7, 0x1234), (8, 0), (9, 0)]


def test_corrupt() -> None:
    spec = spec_of(TEXT, (), (), ())
    chunk = SparseVlenChunk(spec.dims, np.array([1], np.uint32), VlenArray.of([length_prefixed("abc")]))
    data, sections = opened(encode_sparse_vlen(chunk, spec.datatype.element, spec.filters))
    changed = data[:-9] + bytes((data[-9] ^ 1,)) + data[-8:]
    with pytest.raises(Corrupt, match=r"A chunk of d-1 is corrupt: Section 2"):
        transcode_sections(spec, changed, sections, OLD[0], lambda _: None)
