"""What a dataset becomes in a file: its form, its chunks and what they are transcoded to."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import BadRequest, Corrupt, TooLarge, Unsupported
from hsparse.format.chunk_map import digests, sections_of
from hsparse.format.chunk_rows import ChunkRows
from hsparse.format.chunk_spec import ChunkSpec, chunk_spec
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
from hsparse.hdf5.format.plan.dataset_plan import DatasetPlan, check_transcoded, chunk_form, plan_dataset
from hsparse.hdf5.format.plan.file_form import AUTO, STOCK, STRUCTURED, FileForm, FileLayout
from hsparse.hdf5.format.plan.matrix_encoding import MatrixEncoding
from hsparse.hdf5.format.plan.planned_chunks import ChunkForm, ChunkRegion, PlannedChunks
from hsparse.hdf5.format.plan.planned_structures import GlobalHeapPlan
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
from hsparse.sn.about import specification
from tests.support.characters import CHARACTERS

ID = "d-1c2d3e4f-00112233-4455-667788-99aabb"
INT = {"class": "H5T_INTEGER", "base": "H5T_STD_I32LE"}
TEXT = {"class": "H5T_STRING", "charSet": "H5T_CSET_UTF8", "length": "H5T_VARIABLE"}
REFERENCE = {"class": "H5T_REFERENCE", "base": "H5T_STD_REF_OBJ"}
REGION = {"class": "H5T_REFERENCE", "base": "H5T_STD_REF_DSETREG"}
CONTIGUOUS, CHUNKED, SPARSE = "H5D_CONTIGUOUS", "H5D_CHUNKED", "H5D_STRUCT_CHUNK"


def record(kind: Any, dims: list[int], layout: str, chunk: list[int], **more: Any) -> dict[str, Any]:
    stored: dict[str, Any] = {"class": layout, "dims": chunk}
    if layout == SPARSE:
        stored["flags"] = ["H5D_SPARSE_DATA"]
    if layout == CONTIGUOUS:
        stored["class"] = CHUNKED
        more["askedLayout"] = {"class": CONTIGUOUS}
    shape: dict[str, Any] = {"class": "H5S_SIMPLE", "dims": dims}
    if "maxdims" in more:
        shape["maxdims"] = more.pop("maxdims")
    properties = more.pop("properties", {})
    return {
        "id": ID,
        "type": kind,
        "shape": shape,
        "layout": stored,
        "creationProperties": properties,
        **more,
    }


def chunks(places: list[list[int]], size: int, sections: int = 0) -> PlannedChunks:
    count = len(places)
    table = np.zeros((count, sections, 3), np.uint64)
    return PlannedChunks(
        np.array(places, np.uint64).reshape(count, 1),
        np.arange(count, dtype=np.uint64),
        np.full(count, size, np.uint64),
        table,
        np.ones(count, np.uint64),
        np.ones(count, np.bool_),
    )


def plan(about: dict[str, Any], some: PlannedChunks, layout: FileForm = STOCK) -> DatasetPlan:
    return plan_dataset(about, some, layout, (), GlobalHeapPlan(), lambda name: None)


def test_forms_of_chunks() -> None:
    for kind, layout, stock, structured in (
        (INT, CHUNKED, ChunkForm.STORED, ChunkForm.STORED),
        (TEXT, CHUNKED, ChunkForm.TRANSCODED, ChunkForm.TRANSCODED),
        (REFERENCE, CHUNKED, ChunkForm.TRANSCODED, ChunkForm.TRANSCODED),
        (INT, SPARSE, ChunkForm.TRANSCODED, ChunkForm.STORED),
        (TEXT, SPARSE, ChunkForm.TRANSCODED, ChunkForm.STORED),
    ):
        spec = chunk_spec(record(kind, [10], layout, [5]))
        assert (chunk_form(spec, STOCK), chunk_form(spec, STRUCTURED)) == (stock, structured)
    for kind, newest, older in (
        (INT, ChunkForm.STORED, ChunkForm.STORED),
        (TEXT, ChunkForm.STORED, ChunkForm.TRANSCODED_SECTIONS),
        (REFERENCE, ChunkForm.TRANSCODED_SECTIONS, ChunkForm.TRANSCODED_SECTIONS),
    ):
        spec = chunk_spec(record(kind, [10], SPARSE, [5]))
        assert chunk_form(spec, STRUCTURED) is newest
        assert chunk_form(spec, FileForm(FileLayout.STRUCTURED, FormatRevision.RFC_2025_10)) is older
    dense = chunk_spec(record(INT, [10], CHUNKED, [5]))
    assert chunk_form(dense, STOCK, foreign=True) is ChunkForm.TRANSCODED


def test_one_chunk_that_nobody_asked_for_is_contiguous() -> None:
    one = chunks([[0]], 40)
    assert plan(record(INT, [10], CONTIGUOUS, [10]), one).planned.layout.data[1] == 1
    assert plan(record(INT, [10], CHUNKED, [10]), one).planned.layout.data[1] == 2
    growing = record(INT, [10], CONTIGUOUS, [10], maxdims=["H5S_UNLIMITED"])
    assert plan(growing, one).planned.layout.data[1] == 2
    assert plan(record(INT, [20], CONTIGUOUS, [10]), one).planned.layout.data[1] == 2


def test_chunks_of_a_wrong_size() -> None:
    with pytest.raises(Corrupt, match=f"The chunk 1 of {ID} has 19 bytes, not 20"):
        plan(record(INT, [10], CHUNKED, [5]), chunks([[1]], 19))


def test_what_no_file_can_have() -> None:
    with pytest.raises(Unsupported, match="layout=stock"):
        plan(record(REGION, [10], SPARSE, [5]), chunks([[1]], 19, 2), STRUCTURED)
    wide = record(INT, [2**26], SPARSE, [1], maxdims=[2**27])
    with pytest.raises(TooLarge, match="layout=stock"):
        plan(wide, chunks([[1]], 19, 2), STRUCTURED)
    assert plan(wide, chunks([[1]], 4, 2)).region is not None
    initial = record(
        INT, [10**6], CHUNKED, [5], properties={"initializer": ["arange", "--start=0", "--step=1"]}
    )
    with pytest.raises(TooLarge, match="199999 chunks of 20 bytes that were never written"):
        plan(initial, chunks([[1]], 20))


def test_what_was_never_written_is_made_where_no_library_fills_it_in() -> None:
    filled = {"fillValue": "none"}
    for about, complete in (
        (record(INT, [23], CHUNKED, [5], properties={"fillValue": 3}), False),
        (record(TEXT, [23], CHUNKED, [5]), False),
        (record(TEXT, [23], CHUNKED, [5], properties=filled), True),
        (record(TEXT, [23], SPARSE, [5], properties=filled), True),
        (record(TEXT, [10**9], SPARSE, [5], properties=filled), False),
    ):
        found = plan(about, chunks([[1], [3]], 20, 2 if about["layout"]["class"] == SPARSE else 0)).region
        assert found is not None
        assert found.chunks.scaled[:, 0].tolist() == (list(range(5)) if complete else [1, 3])
        assert found.chunks.stored.tolist() == [place in (1, 3) for place in found.chunks.scaled[:, 0]]


def test_nothing_is_made_where_there_are_no_elements() -> None:
    for dims in ([0], [3, 0]):
        about = record(TEXT, dims, CHUNKED, [5] * len(dims), maxdims=["H5S_UNLIMITED"] * len(dims))
        about["creationProperties"] = {"fillValue": "none"}
        found = plan(about, PlannedChunks.of([], len(dims)))
        assert found.pieces == ()


def test_chunks_that_would_be_made_too_large() -> None:
    spec = chunk_spec(record(INT, [10**6], SPARSE, [10**6]))
    check_transcoded(spec, STRUCTURED, 1000)
    check_transcoded(spec, STOCK, 4 * 10**6)
    with pytest.raises(TooLarge, match="layout=structured"):
        check_transcoded(spec, STOCK, 4 * 10**6 - 1)


def test_the_names_are_those_that_clients_are_told() -> None:
    told = specification()["components"]["parameters"]["layout"]["schema"]
    assert told["enum"] == [layout.value for layout in FileLayout]
    assert told["default"] == FileLayout.AUTO.value


FORMS = [
    AUTO,
    STOCK,
    *(FileForm(matrices=encoding) for encoding in MatrixEncoding),
    *(FileForm(FileLayout.STRUCTURED, revision) for revision in FormatRevision),
]


def test_default_forms() -> None:
    assert FileForm.parse() == FileForm.parse("", "", "") == AUTO
    assert FileForm.parse("structured", NEWEST_REVISION.value) == STRUCTURED
    assert FileForm.parse(matrices="anndata-csr") == FileForm(matrices=MatrixEncoding.ANNDATA_CSR)
    assert STOCK.params == {"layout": "stock"}
    assert AUTO.params == {"layout": "auto"}
    assert len({tuple(form.params.values()) for form in FORMS}) == len(FORMS)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"layout": "flat"}, "layout must be one of auto, stock, structured, not 'flat'"),
        ({"layout": "structured", "revision": "new"}, "revision must be one of rfc-2023-07, .* not 'new'"),
        ({"matrices": "csr"}, "matrices must be one of anndata-csr, .* not 'csr'"),
        ({"revision": "rfc-2025-10"}, "needs layout=structured"),
        ({"layout": "structured", "matrices": "anndata-csr"}, "leave one of the two out"),
        ({"layout": "auto", "matrices": "anndata-csr"}, "leave one of the two out"),
    ],
)
def test_forms_that_are_refused(given: dict[str, str], words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        FileForm.parse(**given)


def test_a_structured_chunk_has_the_size_of_its_sections() -> None:
    rows = ChunkRows.of([(0,)], 1, [1000], ["a"])
    sections = np.array([[[12, 30, 0], [5, 5, 1]]], np.uint64)
    found = PlannedChunks.of([rows.described(sections, np.array([3], np.uint64))], 1)
    assert found.size.tolist() == [17]
    assert found.defined.tolist() == [3]


def test_a_grid_is_completed_in_row_major_order() -> None:
    rows = ChunkRows.of([(1, 0), (0, 1)], 2, [5, 6], ["a", "b"])
    found = PlannedChunks.of([rows], 2).completed((2, 2), 9)
    assert found.scaled.tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]
    assert found.size.tolist() == [9, 6, 5, 9]
    assert found.stored.tolist() == [False, True, True, False]
    assert found.digest[1:3].tolist() == digests(["b", "a"]).tolist()
    for stored in ([], [()]):
        scalar = PlannedChunks.of([ChunkRows.of(stored, 0, [4] * len(stored), ["a"] * len(stored))], 0)
        assert scalar.completed((), 9).stored.tolist() == [bool(stored)]


SPEC = ChunkSpec("d-x", "H5T_STD_U8LE", (4,), False, b"", ((),))


def region(sizes: list[int], form: ChunkForm) -> ChunkRegion:
    count = len(sizes)
    numbers = np.arange(count, dtype=np.uint64)
    none = np.zeros((count, 0, 3), np.uint64)
    chunks = PlannedChunks(numbers[:, None], numbers, np.array(sizes, np.uint64), none, numbers, numbers >= 0)
    return ChunkRegion.of("key", SPEC, form, chunks)


def test_what_making_a_chunk_takes() -> None:
    some = region([10, 20], ChunkForm.STORED)
    assert some.weights(range(2)).tolist() == [10, 20]
    sections = np.array([[[4, 50, 0], [6, 60, 0]], [[10, 3, 0], [10, 3, 0]]], np.uint64)
    converted = replace(
        some, form=ChunkForm.TRANSCODED_SECTIONS, chunks=replace(some.chunks, sections=sections)
    )
    assert converted.weights(range(2)).tolist() == [880, 48]
    defined = replace(converted, form=ChunkForm.DEFINED)
    assert defined.weights(range(2)).tolist() == [120, 26]
    linked = replace(some, form=ChunkForm.FILE_BACKED, spec=replace(SPEC, dims=(15,)))
    assert linked.weights(range(1, 2)).tolist() == [20]
    filtered = replace(linked, spec=replace(linked.spec, filters=((Filter(1, (4,)),),)))
    assert filtered.weights(range(2)).tolist() == [15, 20]


@given(
    st.lists(st.integers(1, 40), max_size=12),
    st.sampled_from(ChunkForm),
    st.integers(0, 400),
    st.integers(0, 400),
)
def test_the_chunks_in_a_range(sizes: list[int], form: ChunkForm, start: int, stop: int) -> None:
    some = region(sizes, form)
    starts = some.starts.tolist()
    multiple = 1 if form is ChunkForm.STORED else 8
    assert [begin % multiple for begin in starts] == [0] * (len(sizes) + 1)
    assert all(begin + size <= end for begin, size, end in zip(starts, sizes, starts[1:], strict=False))
    assert some.size == sum(-(-size // multiple) * multiple for size in sizes)
    start, stop = min(start, some.size), min(stop, some.size)
    wanted = [
        number for number, (begin, end) in enumerate(pairwise(starts)) if max(begin, start) < min(end, stop)
    ]
    assert list(some.rows(start, stop)) == wanted


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


def test_corrupt_heaps_are_named() -> None:
    spec = spec_of(TEXT, (), (), ())
    chunk = SparseVlenChunk(spec.dims, np.array([1], np.uint32), VlenArray.of([length_prefixed("abc")]))
    data, sections = opened(encode_sparse_vlen(chunk, spec.datatype.element, spec.filters))
    changed = data[:-9] + bytes((data[-9] ^ 1,)) + data[-8:]
    with pytest.raises(Corrupt, match=r"A chunk of d-1 is corrupt: Section 2"):
        transcode_sections(spec, changed, sections, OLD[0], lambda _: None)
