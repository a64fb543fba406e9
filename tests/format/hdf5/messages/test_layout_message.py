"""Layout messages, against libhdf5's."""

from __future__ import annotations

from pathlib import Path

import h5py
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import BadRequest, Corrupt
from hsparse.hdf5.format.file_fields import Widths
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
from tests.format.hdf5.file_walk import walk
from tests.format.hdf5.sample_messages import messages, reader, same

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


def test_libhdf5s_indexes(tmp_path: Path) -> None:
    path = tmp_path / "f.h5"
    with h5py.File(path, "w", libver="v110") as file:
        file.create_dataset("single", (4,), chunks=(4,), data=[1, 2, 3, 4])
        file.create_dataset("filtered", (4,), chunks=(4,), data=[1, 2, 3, 4], compression=1)
        file.create_dataset("fixed", (9,), "i4", chunks=(4,))
        file.create_dataset("extensible", (9,), "i4", chunks=(4,), maxshape=(None,))
        file.create_dataset("tree", (9, 9), "i4", chunks=(4, 4), maxshape=(None, None))
    found = {name: one.dataset.layout for name, one in walk(path).items() if one.dataset}
    kinds = {name: layout.index.kind for name, layout in found.items() if isinstance(layout, ChunkedLayout)}
    expected = [SINGLE, SINGLE, FIXED_ARRAY, EXTENSIBLE_ARRAY, BTREE_2]
    assert kinds == dict(
        zip(["/single", "/filtered", "/fixed", "/extensible", "/tree"], expected, strict=True)
    )
    filtered = found["/filtered"]
    assert isinstance(filtered, ChunkedLayout)
    assert 0 < filtered.index.parameters[0] < 100


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
