"""Layout messages, against libhdf5's and the golden files'."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import BadRequest, Corrupt, Unsupported
from hsparse.format.dataspace_message import FormatRevision
from hsparse.format.structured.container import METADATA_FIXED, METADATA_VL, Section
from hsparse.hdf5.format.chunk_indexes.fixed_array import fixed_header_size
from hsparse.hdf5.format.chunk_indexes.index_layout import STRUCTURED_KINDS, IndexKind, IndexLayout
from hsparse.hdf5.format.chunk_indexes.index_registry import index_info, plan_chunk_index, read_chunk_index
from hsparse.hdf5.format.file_fields import Widths, run_reads
from hsparse.hdf5.format.messages.layout_message import (
    BTREE_1,
    BTREE_2,
    EXTENSIBLE_ARRAY,
    FIXED_ARRAY,
    IMPLICIT,
    SINGLE,
    SINGLE_FILTERED,
    ChunkedLayout,
    CompactLayout,
    ContiguousLayout,
    LayoutIndex,
    LayoutMessage,
    RawStructuredLayout,
    VirtualLayoutMessage,
    decode_layout,
    encode_layout,
)
from hsparse.hdf5.format.messages.structured_layout import (
    StructuredLayout,
    decode_structured_layout,
    encode_structured_layout,
)
from tests.format.hdf5.h5py_files import messages, reader, same
from tests.format.hdf5.index_files import (
    GoldenDataset,
    assert_same,
    fetch_from,
    golden_datasets,
    make_records,
    revisions,
)

DIMS = st.lists(st.integers(1, 2**32 - 1), min_size=1, max_size=32).map(tuple)
ADDRESS = st.none() | st.integers(0, 2**63)
INDEXES = {
    "single": (SINGLE, (), 0),
    "filtered": (SINGLE, (1000, 5), SINGLE_FILTERED),
    "implicit": (IMPLICIT, (), 0),
    "fixed array": (FIXED_ARRAY, (10,), 1),
    "extensible array": (EXTENSIBLE_ARRAY, (32, 4, 4, 16, 10), 0),
    "B-tree": (BTREE_2, (2048, 100, 40), 0),
}


def decode(data: bytes) -> LayoutMessage:
    return decode_layout(reader(data), Widths())


def test_bytes_of_libhdf5_round_trip() -> None:
    found = messages(8)
    assert {data[0] for data in found} == {3, 4, 5}
    for data in found:
        assert same(encode_layout(decode(data), data[0]), data)


@pytest.mark.endurance
@pytest.mark.parametrize("name", INDEXES)
@given(DIMS, ADDRESS, st.sampled_from([4, 5]))
def test_indexes_round_trip(name: str, dims: tuple[int, ...], address: int | None, version: int) -> None:
    kind, parameters, flags = INDEXES[name]
    layout = ChunkedLayout(dims, 8, LayoutIndex(kind, address, parameters), flags, version)
    assert decode(encode_layout(layout)) == layout


@given(
    st.builds(CompactLayout, st.binary(max_size=50))
    | st.builds(ContiguousLayout, ADDRESS, st.integers(0, 2**63))
    | st.builds(VirtualLayoutMessage, ADDRESS, st.integers(0, 2**32 - 1))
    | st.builds(
        ChunkedLayout, DIMS, st.integers(1, 2**32 - 1), st.builds(LayoutIndex, st.just(BTREE_1), ADDRESS)
    )
)
def test_others_round_trip(layout: LayoutMessage) -> None:
    assert decode(encode_layout(layout)) == layout


def test_versions_1_and_2() -> None:
    head = bytes((1, 2))
    address = (96).to_bytes(8, "little")
    sizes = b"\4\0\0\0\2\0\0\0"
    assert decode(head + b"\1" + bytes(5) + address + sizes) == ContiguousLayout(96, None)
    expected = ChunkedLayout((4,), 2, LayoutIndex(BTREE_1, 96), version=2)
    assert decode(head + b"\2" + bytes(5) + address + sizes) == expected
    assert decode(head + b"\0" + bytes(5) + sizes + b"\3\0\0\0abc") == CompactLayout(b"abc")


def test_structured_chunks_are_left_as_they_are() -> None:
    assert decode(b"\5\4anything") == RawStructuredLayout(b"\5\4anything")
    assert encode_layout(RawStructuredLayout(b"\5\4anything")) == b"\5\4anything"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\6\0", "version 6"),
        (b"\3\3", "class 3, which does not exist in version 3"),
        (b"\4\4", "class 4, which does not exist in version 4"),
        (b"\3\2\1" + bytes(12), "chunks of \\[0\\]"),
        (b"\4\2\0\2\1\4\4\x09" + bytes(9), "index of kind 9"),
        (b"\4\2\x10\2\1\4\4\2" + bytes(9), "flags 16"),
        (b"\3\0\5\0abc", "ends inside its compact data"),
    ],
)
def test_corrupt(data: bytes, words: str) -> None:
    with pytest.raises(Corrupt, match=words):
        decode(data)


def test_what_no_message_can_say() -> None:
    with pytest.raises(BadRequest, match="65535 bytes, not 65536"):
        encode_layout(CompactLayout(bytes(65536)))
    with pytest.raises(BadRequest, match="less than 2\\^32"):
        encode_layout(ChunkedLayout((2**32,), 8, LayoutIndex(BTREE_1, None)))


FOLDER = Path(__file__).parents[2] / "data" / "golden"
DATASETS = {
    "lib-2026-09-farray.h5": 7,
    "lib-2026-09-single.h5": 7,
    "lib-2026-09-vlen.h5": 3,
    "rfc-2025-10-farray.h5": 7,
}
MINIMAL = bytes.fromhex(
    "0504 00000000 02010504 08020100 01 4f00 4300000000000000 8f08000000000000 0000000000000000"
)
FILTERED = bytes.fromhex(
    "0504 00000002 02011e04 08020100 01 5100 3d00000000000000 6b00000000000000 2400000000000000"
    "00000000 00000000 7c09000000000000 0000000000000000"
)
FIXED = bytes.fromhex("0504 00000000 02010504 08020100 03 0a c300000000000000 0000")


def golden(name: str) -> tuple[bytes, list[GoldenDataset]]:
    data = (FOLDER / name).read_bytes()
    return data, list(golden_datasets(data))


@pytest.mark.parametrize("name", DATASETS)
def test_messages_of_the_golden_files_are_written_again(name: str) -> None:
    _, datasets = golden(name)
    assert len(datasets) == DATASETS[name]
    for dataset in datasets:
        index = dataset.layout.index
        info = index_info(index, dataset.records)
        again = replace(dataset.layout, index=replace(index, info=info))
        assert encode_structured_layout(again) == dataset.message


@pytest.mark.parametrize("name", DATASETS)
def test_indexes_of_the_golden_files_are_written_again(name: str) -> None:
    data, datasets = golden(name)
    revision = FormatRevision.RFC_2025_10 if name.startswith("rfc") else FormatRevision.LIB_2026_09
    arrays = [
        dataset
        for dataset in datasets
        if dataset.layout.index.kind is IndexKind.FIXED_ARRAY and dataset.layout.index.address is not None
    ]
    assert len(arrays) == sum(data.startswith(b"FAHD", at) for at in range(len(data)))
    for dataset in arrays:
        index = replace(dataset.layout.index, revision=revision)
        header = index.address or 0
        block = int.from_bytes(data[header + 16 : header + 24], "little")
        plan = plan_chunk_index(index, dataset.records.scaled)
        first, *rest = plan.pieces(header, dataset.records)
        assert first[1][:16] == data[header : header + 16]
        if block == header + fixed_header_size(index):
            assert first[1] == data[header:block]
        assert rest
        for offset, piece in rest:
            place = block + offset - fixed_header_size(index)
            assert bytes(piece) == data[place : place + len(piece)]


def test_the_minimal_message() -> None:
    layout = decode_structured_layout(MINIMAL, (5,), filtered=False)
    index = layout.index
    assert (index.kind, index.chunk, index.element_size, index.sections) == (IndexKind.SINGLE, (5,), 4, 2)
    assert (index.address, index.size_width, layout.metadata, layout.filtered_edges) == (
        2191,
        2,
        METADATA_FIXED,
        True,
    )
    (section, values) = run_reads(read_chunk_index(index, (5,), 3000), fetch_from(b"")).sections(0)
    assert section == Section(0, 67, 67, 0)
    assert values == Section(67, 12, 12, 0)
    assert encode_structured_layout(layout) == MINIMAL


@st.composite
def layouts(draw: st.DrawFn) -> StructuredLayout:
    rank = draw(st.integers(1, 4))
    chunk = tuple(draw(st.lists(st.integers(1, 2**32 - 1), min_size=rank, max_size=rank)))
    kind = draw(st.sampled_from(STRUCTURED_KINDS))
    limits: list[int | None] = [step * draw(st.integers(1, 3)) for step in chunk]
    if kind is IndexKind.SINGLE:
        limits = list(chunk)
    if kind is IndexKind.EXTENSIBLE_ARRAY:
        limits[draw(st.integers(0, rank - 1))] = None
    index = IndexLayout(
        kind,
        chunk,
        tuple(limits),
        draw(st.integers(1, 300)),
        draw(st.booleans()),
        draw(st.sampled_from([2, 3])),
        draw(revisions),
        message_version=5,
        address=draw(st.none() | st.integers(0, 2**50)),
    )
    records = make_records(index, np.zeros((int(index.address is not None), rank), np.uint64))
    return StructuredLayout(replace(index, info=index_info(index, records)), draw(st.booleans()))


@given(layouts())
def test_layouts_come_back(layout: StructuredLayout) -> None:
    index = layout.index
    message = encode_structured_layout(layout)
    found = decode_structured_layout(message, index.max_dims, filtered=index.filtered)
    if index.revision is FormatRevision.RFC_2025_10:
        found = replace(found, index=replace(found.index, revision=index.revision))
    assert found == layout
    assert found.metadata == (METADATA_VL if index.sections == 3 else METADATA_FIXED)
    if index.kind is IndexKind.SINGLE:
        address = index.address
        wanted = make_records(index, np.zeros((int(address is not None), index.rank), np.uint64))
        records = run_reads(read_chunk_index(found.index, index.chunk, 2**60), fetch_from(b""))
        if address is not None:
            wanted = replace(wanted, address=np.array([address], np.uint64))
        assert_same(records, wanted)


def test_version_17_has_the_composition_last_and_narrow_offsets() -> None:
    index = IndexLayout(
        IndexKind.SINGLE, (5,), (5,), 4, True, 2, FormatRevision.RFC_2023_07, message_version=5, address=2191
    )
    records = make_records(index, np.zeros((1, 1), np.uint64))
    sections = [
        int(value)
        for column in (records.masks, records.offsets, records.unfiltered)
        for value in column[0].tolist()
    ]
    message = encode_structured_layout(StructuredLayout(replace(index, info=index_info(index, records))))
    size = int(records.size[0]).to_bytes(2, "little")
    numbers = b"".join(value.to_bytes(4, "little") for value in sections)
    assert message == (
        bytes.fromhex("0504 00 0100 02 02010504 01")
        + size
        + numbers
        + (2191).to_bytes(8, "little")
        + b"\4\2\1\0"
    )
    vl = StructuredLayout(replace(index, kind=IndexKind.FIXED_ARRAY, sections=3, info=b"\x0a"))
    assert encode_structured_layout(vl).hex() == (
        "0504 00 0300 00 02010504 03 0a 8f08000000000000 040303000102".replace(" ", "")
    )


@pytest.mark.parametrize("kind", [1, 3])
def test_the_rfcs_bits_of_the_type_are_taken_too(kind: int) -> None:
    message = MINIMAL[:3] + bytes((kind,)) + MINIMAL[4:]
    assert decode_structured_layout(message, (5,), filtered=False).index.address == 2191


def test_dense_variable_length_data_is_not_supported() -> None:
    message = FIXED[:3] + b"\1" + FIXED[4:10] + bytes((8, 2, 2, 0, 1)) + FIXED[14:]
    with pytest.raises(Unsupported, match="dense variable-length"):
        decode_structured_layout(message, (50,), filtered=False)


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (0, 4, "version 4"), (1, 2, "class 2"), (2, 1, "property version 1"), (3, 4, "type 4"),
        (5, 4, "flags 0x4"), (5, 2, "contradict"), (6, 3, "3 dimensions"), (7, 0, "of 0 bytes"),
        (7, 9, "of 9 bytes"), (8, 0, r"chunks of \[0\]"), (9, 0, "of 0 bytes"), (10, 7, "index type 7"),
        (10, 5, "no composition"), (11, 1, "1 sections"), (13, 1, "metadata"), (14, 2, "index type 2"),
        (14, 0, "index type 0"),
    ],
)  # fmt: skip
def test_contradictions_are_named(place: int, value: int, words: str) -> None:
    message = bytearray(MINIMAL)
    message[place] = value
    with pytest.raises(Corrupt, match=words):
        decode_structured_layout(bytes(message), (5,), filtered=False)


def test_a_message_that_ends_early_is_corrupt() -> None:
    for message, limits, filtered in ((MINIMAL, 5, False), (FILTERED, 30, True), (FIXED, 50, False)):
        content = len(message) - (2 if message is FIXED else 8)
        for end in range(content):
            with pytest.raises(Corrupt):
                decode_structured_layout(message[:end], (limits,), filtered=filtered)
        decode_structured_layout(message[:content], (limits,), filtered=filtered)


@given(st.binary(max_size=80), st.integers(1, 3), st.booleans())
def test_any_bytes_end_in_an_error_or_a_layout(tail: bytes, rank: int, filtered: bool) -> None:
    for head in (b"", b"\5\4\0", MINIMAL[:10], MINIMAL[:15]):
        try:
            layout = decode_structured_layout(head + tail, (10,) * rank, filtered=filtered)
        except (Corrupt, Unsupported):
            continue
        assert layout.index.rank == rank
