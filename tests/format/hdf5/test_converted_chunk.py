"""Structured chunks in another form than stored: heaps of older revisions, and references as addresses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hsparse.errors import Corrupt, Unsupported
from hsparse.format.chunk_rows import sections_of
from hsparse.format.chunk_spec import ChunkSpec
from hsparse.format.filters.definition import Filter
from hsparse.format.hdf5.converted_chunk import (
    check_convertible,
    convert_chunk,
    filters_in_file,
    is_converted,
    referring_chunks,
)
from hsparse.format.hdf5.format_revision import NEWEST, FormatRevision
from hsparse.format.kinds.sparse_chunk import SparseChunk, encode_sparse
from hsparse.format.kinds.vlen_chunk import NAMES, SparseVlenChunk, encode_sparse_vlen
from hsparse.format.structured.container import METADATA_FIXED, METADATA_VL, open_chunk
from hsparse.format.structured.vlen_sections import decode_elements, revision_of_heap
from hsparse.model.vlen_array import VlenArray
from tests.format.hdf5.test_dataset_plan import chunks
from tests.format.hdf5.test_made_chunk import DEFLATE, TEXT, length_prefixed, opened

SHUFFLED = (Filter(2, (16,)), *DEFLATE)
REFERENCE = {"class": "H5T_REFERENCE", "base": "H5T_STD_REF_OBJ"}
REGION = {"class": "H5T_REFERENCE", "base": "H5T_STD_REF_DSETREG"}
PAIR = {
    "class": "H5T_COMPOUND",
    "fields": [{"name": "n", "type": "H5T_STD_I16LE"}, {"name": "to", "type": REFERENCE}],
}
OLD = [revision for revision in FormatRevision if revision is not NEWEST]


def spec_of(item: Any, *filters: tuple[Filter, ...]) -> ChunkSpec:
    return ChunkSpec("d-1", item, (4, 4), True, b"", filters)


def sequence(item: Any) -> Any:
    return {"class": "H5T_VLEN", "base": item}


@pytest.mark.parametrize("revision", OLD)
@pytest.mark.parametrize("filters", [((), (), ()), (DEFLATE, SHUFFLED, DEFLATE)])
def test_heaps_of_older_revisions(revision: FormatRevision, filters: Any) -> None:
    spec = spec_of(TEXT, *filters)
    values = VlenArray.of([length_prefixed(text) for text in ("", "größe", "x" * 3000)])
    element = spec.datatype.element
    chunk = SparseVlenChunk(spec.dims, np.array([1, 5, 15], np.uint32), values)
    data, sections = opened(encode_sparse_vlen(chunk, element, spec.filters))
    assert is_converted(spec, revision)
    assert not is_converted(spec, NEWEST)
    assert filters_in_file(spec) == spec.filters
    table, made = convert_chunk(spec, data, sections, revision, lambda _: None)
    assert not made.places
    selection, fixed, heap = open_chunk(made.data, sections_of(table), METADATA_VL, filters)
    assert selection == open_chunk(data, sections_of(sections), METADATA_VL, filters)[0]
    assert revision_of_heap(heap, NEWEST) is FormatRevision.RFC_2025_10
    assert revision_of_heap(heap, revision) is revision
    found = decode_elements(fixed, heap, element, NAMES, revision)
    np.testing.assert_array_equal(found.heap, values.heap)


def test_the_newest_heap_is_known() -> None:
    spec = spec_of(TEXT, (), (), ())
    chunk = SparseVlenChunk(spec.dims, np.array([1], np.uint32), VlenArray.of([length_prefixed("a")]))
    data, sections = opened(encode_sparse_vlen(chunk, spec.datatype.element, spec.filters))
    heap = open_chunk(data, sections_of(sections), METADATA_VL, spec.filters)[2]
    assert revision_of_heap(heap, NEWEST) is NEWEST
    assert revision_of_heap(b"", NEWEST) is NEWEST


@pytest.mark.parametrize("revision", FormatRevision)
def test_references_are_addresses_and_unfiltered(revision: FormatRevision) -> None:
    spec = spec_of(PAIR, DEFLATE, SHUFFLED)
    values = np.zeros(3, spec.dtype)
    values["n"] = [7, 8, 9]
    values["to"] = [b"groups/g-1", b"", b"groups/g-2"]
    chunk = SparseChunk(spec.dims, np.array([0, 3, 9], np.uint32), values)
    data, sections = opened(encode_sparse(chunk, spec.filters))
    assert is_converted(spec, revision)
    assert filters_in_file(spec) == (DEFLATE, ())
    table, made = convert_chunk(spec, data, sections, revision, {"groups/g-1": "one"}.get)
    assert table[1].tolist() == [30, 30, 0]
    planned = referring_chunks(spec, chunks([[0]], 1, 2).converted(sections[None]))
    assert planned.size.tolist() == [len(made.data) - 2 * 10]  # of one element, as `chunks` has it
    whole = made.filled({"one": 0x1234}.__getitem__)
    selection, fixed = open_chunk(whole, sections_of(table), METADATA_FIXED, (DEFLATE, ()))
    assert selection == open_chunk(data, sections_of(sections), METADATA_FIXED, spec.filters)[0]
    found = np.frombuffer(fixed, [("n", "<i2"), ("to", "<u8")])
    assert found.tolist() == [(7, 0x1234), (8, 0), (9, 0)]


@pytest.mark.parametrize("item", [REGION, sequence(REFERENCE), sequence(PAIR), sequence(REGION)])
def test_what_structured_chunks_have_no_place_for(item: Any) -> None:
    with pytest.raises(Unsupported, match=r"d-1 is sparse and has references.*layout=stock"):
        check_convertible(spec_of(item, (), (), ()))


def test_corrupt() -> None:
    spec = spec_of(TEXT, (), (), ())
    chunk = SparseVlenChunk(spec.dims, np.array([1], np.uint32), VlenArray.of([length_prefixed("abc")]))
    data, sections = opened(encode_sparse_vlen(chunk, spec.datatype.element, spec.filters))
    changed = data[:-9] + bytes((data[-9] ^ 1,)) + data[-8:]
    with pytest.raises(Corrupt, match=r"A chunk of d-1 is corrupt: Section 2"):
        convert_chunk(spec, changed, sections, OLD[0], lambda _: None)
