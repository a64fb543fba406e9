"""Chunk indexes of each kind: libhdf5's bytes, the prototype's numbers, shapes, and damage."""

from __future__ import annotations

import struct
from dataclasses import replace
from itertools import pairwise
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import BadRequest, Corrupt, TooLarge
from hsparse.format.dataspace_message import FormatRevision
from hsparse.hdf5.format.chunk_indexes import chunk_btree_v2, fixed_array
from hsparse.hdf5.format.chunk_indexes.chunk_btree_v2 import HEADER
from hsparse.hdf5.format.chunk_indexes.chunk_records import number_chunks
from hsparse.hdf5.format.chunk_indexes.extensible_array import DEFAULT_SHAPE, ArrayLevel, ExtensibleShape
from hsparse.hdf5.format.chunk_indexes.fixed_array import fixed_header_size
from hsparse.hdf5.format.chunk_indexes.index_layout import IndexKind, IndexLayout
from hsparse.hdf5.format.chunk_indexes.index_registry import plan_chunk_index
from tests.format.hdf5.index_files import (
    ADDRESS,
    assert_damage_is_found,
    assert_same,
    blocks_of,
    choose_scaled,
    damage_sealed,
    extent_of,
    load,
    make_file,
    make_layout,
    make_records,
    open_layout,
    read_records,
    resealed,
    steps_of,
    store,
)

BTREE_V1, BTREE_V2 = IndexKind.BTREE_V1, IndexKind.BTREE_V2
EXTENSIBLE, FIXED = IndexKind.EXTENSIBLE_ARRAY, IndexKind.FIXED_ARRAY
FAR = [0, 3, 4, 50, 131_059, 131_060, 140_000, 300_000]
PLAIN, FILTERED = (0, False), (2, True)
filtered_or_not = pytest.mark.parametrize("filters", [{}, {"compression": 1}])
Stored = tuple[IndexLayout, tuple[int, ...], bytes]


def stored(
    kind: IndexKind,
    counts: tuple[int, ...],
    structure: tuple[int, bool] = PLAIN,
    share: float = 1,
    **more: int,
) -> Stored:
    """Return the layout of an index, the extent of its dataset, and a file with it: of `FAR` or a share of chunks."""
    layout = replace(make_layout(kind, counts, *structure), **more)  # type: ignore[arg-type]
    scaled = np.array(FAR, np.uint64)[:, None] if counts == (400_000,) else choose_scaled(counts, share)
    return layout, extent_of(layout, counts), store(layout, make_records(layout, scaled))


def fill(dset: h5py.Dataset) -> None:
    dset[...] = np.arange(dset.size).reshape(dset.shape)


@pytest.mark.parametrize("structure", [PLAIN, FILTERED])
@pytest.mark.parametrize(
    ("kind", "counts", "share", "step"),
    [
        (BTREE_V2, (20, 20), 0.5, 13),
        (EXTENSIBLE, (5, 40), 0.4, 7),
        (EXTENSIBLE, (400_000,), 1, 3001),
        (FIXED, (3, 4), 0.7, 1),
        (FIXED, (1500,), 0.7, 501),
    ],
)
def test_damage_is_found(
    kind: IndexKind, counts: tuple[int, ...], share: float, step: int, structure: tuple[int, bool]
) -> None:
    assert_damage_is_found(*stored(kind, counts, structure, share), step)


@pytest.mark.parametrize(
    ("kind", "counts", "structure", "share", "most", "last"),
    [
        (BTREE_V2, (20, 20), (2, False), 0.5, 200, 2000),
        (EXTENSIBLE, (5, 400), (2, False), 0.4, 2000, 90),
        (FIXED, (1500,), FILTERED, 0.7, 1500, 60),
    ],
)
@given(data=st.data(), number=st.integers(0, 7))
def test_damage_with_right_checksums_ends_in_an_error_or_an_answer(
    kind: IndexKind,
    counts: tuple[int, ...],
    structure: tuple[int, bool],
    share: float,
    most: int,
    last: int,
    data: st.DataObject,
    number: int,
) -> None:
    changes = data.draw(st.lists(st.tuples(st.integers(0, last), st.integers(0, 255)), max_size=4))
    found = damage_sealed(*stored(kind, counts, structure, share), number, changes)
    assert found is None or len(found) <= most


@filtered_or_not
def test_the_bytes_of_a_node_are_libhdf5s(filters: dict[str, Any]) -> None:
    data = make_file("earliest", fill, shape=(5, 7), chunks=(1, 2), dtype="<i4", **filters)
    layout, records = open_layout(data)[0], read_records(data)
    root = layout.address or 0
    plan = plan_chunk_index(layout, records.scaled)
    assert plan.size == 24 + 64 * 8 + 65 * 32
    (piece,) = [bytes(piece) for _, piece in plan.pieces(root, records)]
    # The last key is beyond the last chunk; how far depends on the order in which libhdf5 was given them.
    assert piece[:-24] == data[root : root + len(piece) - 24]
    assert piece[-24:] == struct.pack("<3Q", 5, 8, 4)
    last = struct.unpack_from("<3Q", data, root + len(piece) - 24)
    assert (4, 6, 0) < last <= (5, 8, 4)


@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=3),
    st.booleans(),
    st.sampled_from([1, 2, 5, 32]),
    st.floats(0, 1),
    st.integers(0, 2**32),
)
def test_records_come_back(counts: list[int], filtered: bool, k: int, share: float, seed: int) -> None:
    shape = tuple(counts)
    layout = replace(make_layout(BTREE_V1, shape, 0, filtered), k=k)
    records = make_records(layout, choose_scaled(shape, share, seed), seed)
    data = store(layout, records)
    assert_same(load(layout, extent_of(layout, shape), data), records)
    sizes = {block.size for step in steps_of(layout, extent_of(layout, shape), data) for block in step}
    assert sizes == {24 + 2 * k * 8 + (2 * k + 1) * (16 + 8 * len(shape))}


def test_a_chunk_of_4_gib_has_no_record() -> None:
    layout = make_layout(BTREE_V1, (3,), 0, True)
    records = make_records(layout, np.array([[1]], np.uint64))
    records.size[0] = 2**32
    with pytest.raises(BadRequest, match="4 GiB"):
        store(layout, records)


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (0, 0x55, "signature"), (4, 0, "type 0"), (5, 1, "file's end|overlap|signature"),
        (6, 65, "65 entries"), (24, 1, "unfiltered chunk"), (32, 1, "chunk boundary"),
        (48, 4, "chunk boundary"), (56 + 24, 0, "not in order"),
    ],
)  # fmt: skip
def test_damage_that_can_be_told_is_found(place: int, value: int, words: str) -> None:
    layout, extent, whole = stored(BTREE_V1, (3, 4))
    data = bytearray(whole)
    data[ADDRESS + place] = value
    with pytest.raises(Corrupt, match=words):
        load(layout, extent, bytes(data))
    with pytest.raises(Corrupt, match="file's end"):
        load(layout, extent, whole[:-1])


@given(st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 255)), min_size=1, max_size=6))
def test_damage_ends_in_an_error_or_an_answer(changes: list[tuple[int, int]]) -> None:
    layout, extent, whole = stored(BTREE_V1, (10, 10), (0, True), k=2)
    data = bytearray(whole)
    for place, value in changes:
        data[ADDRESS + place % (len(data) - ADDRESS)] = value
    try:
        found = load(layout, extent, bytes(data))
    except Corrupt:
        return
    assert len(found) <= 100


def test_a_tree_that_leads_to_itself_is_refused() -> None:
    layout, extent, whole = stored(BTREE_V1, (10, 10), k=2)
    data = bytearray(whole)
    child = ADDRESS + 24 + 8 + 3 * 8
    data[child : child + 8] = ADDRESS.to_bytes(8, "little")
    with pytest.raises(Corrupt, match="level 3"):
        load(layout, extent, bytes(data))


def test_a_tree_whose_nodes_have_one_child_many_times_is_refused() -> None:
    """Each level would multiply what is read: the file's size is the limit, before any memory is taken."""
    layout, extent, whole = stored(BTREE_V1, (10, 10), k=2)
    data, entry = bytearray(whole), 5 * 8
    steps = steps_of(layout, extent, data)
    for (node, *_), (child, *_) in pairwise(steps):
        for number in range(data[node.address + 6]):
            place = node.address + 24 + number * entry + entry - 8
            data[place : place + 8] = child.address.to_bytes(8, "little")
    leaf = steps[-1][0]
    with pytest.raises(Corrupt, match="overlap"):
        load(layout, extent, bytes(data[: leaf.address + leaf.size]))


@filtered_or_not
def test_the_bytes_of_a_leaf_are_libhdf5s(filters: dict[str, Any]) -> None:
    data = make_file(
        "newest", fill, shape=(5, 7), chunks=(1, 2), maxshape=(None, None), dtype="<i4", **filters
    )
    layout, records = open_layout(data)[0], read_records(data)
    header = layout.address or 0
    ours = plan_chunk_index(layout, records.scaled).encode(header, records)
    (root,) = np.frombuffer(data, "<u8", 1, header + 16).tolist()
    assert ours[:16] == data[header : header + 16]
    assert ours[24:34] == data[header + 24 : header + 34]
    assert ours[38 : 38 + 2048] == data[root : root + 2048]


@pytest.mark.parametrize(
    ("count", "depth"),
    [(1, 0), (28, 0), (29, 1), (57, 1), (753, 1), (754, 2), (755, 2), (18_849, 2), (18_850, 3), (20_000, 3)],
)
def test_trees_of_every_height_are_full_enough(count: int, depth: int) -> None:
    """Nodes but the root have at least the 40 % of the records at which libhdf5 merges them."""
    extent = (6,) * 8
    layout = replace(make_layout(BTREE_V2, extent, 0, False), chunk=(1,) * 8)
    records = make_records(layout, choose_scaled(extent, (count + 0.5) / 6**8))
    assert len(records) == count
    data = store(layout, records)
    assert_same(load(layout, extent, data), records)
    head = layout.fields(HEADER).unpack_from(data, ADDRESS + 6)
    assert head[:5] == (2048, 72, depth, 100, 40)
    _, *levels = steps_of(layout, extent, data)
    assert [len(step) for step in levels[:1]] == [1]
    for level, step in zip(range(depth - 1, -1, -1), levels[1:], strict=True):
        assert min(block.size for block in step) >= 0.4 * (25 if level else 28) * 72


def test_structured_numbers_are_the_prototypes() -> None:
    layout = IndexLayout(BTREE_V2, (2, 5), (None, None), 4, False, 2, message_version=5)
    records = make_records(layout, np.array([[0, 0], [0, 1]], np.uint64))
    plan = plan_chunk_index(layout, records.scaled)
    assert plan.size == 2086
    assert plan.encode(0, records)[:16].hex() == "42544844010c00080000220000006428"
    filtered = replace(layout, filtered=True)
    records = make_records(filtered, np.array([[7, 1]], np.uint64))
    data = plan_chunk_index(filtered, records.scaled).encode(0, records)
    assert data[5:12].hex() == "0d000800003a00"
    assert chunk_btree_v2.INFO.hex() == "000800006428"
    older = replace(layout, revision=FormatRevision.RFC_2025_10)
    assert plan_chunk_index(older, records.scaled).encode(0, records)[4] == 0


@pytest.fixture
def tree() -> tuple[Any, tuple[int, ...], bytes, list[Any]]:
    """Layout, extent, file and blocks of a tree of two levels: header, root, leaves."""
    layout, extent, data = stored(BTREE_V2, (20, 20))
    return layout, extent, data, blocks_of(layout, extent, data)


def refuse(tree: Any, number: int, changes: list[tuple[int, bytes]], words: str) -> None:
    layout, extent, data, blocks = tree
    with pytest.raises(Corrupt, match=words):
        load(layout, extent, resealed(data, blocks[number], changes))


def test_records_that_are_not_in_order_are_corrupt(tree: Any) -> None:
    _, _, data, (_, _, leaf, *_) = tree
    first, second = (data[leaf.address + at : leaf.address + at + 24] for at in (6, 30))
    refuse(tree, 2, [(6, second), (30, first)], "not in order")
    refuse(tree, 2, [(6, second)], "not in order")


def test_counts_that_contradict_one_another_are_corrupt(tree: Any) -> None:
    _, _, data, (header, root, *_) = tree
    own = data[header.address + 24]
    first = 6 + own * 24
    counts = [data[root.address + first + 9 * child + 8] for child in range(own + 1)]
    assert sum(counts) + own == 400
    refuse(tree, 1, [(first + 8, bytes((counts[0] - 1,)))], "399 records in and below it, not 400|checksum")
    refuse(tree, 1, [(first + 8, b"\xff")], "records in and below it|has 255 records of 84")
    refuse(tree, 0, [(26, (399).to_bytes(2, "little"))], "records in and below it, not 399")
    refuse(tree, 0, [(24, b"\0")], "has 0 records")
    refuse(tree, 0, [(24, b"\x3e")], "has 62 records, not 1 to 61")
    refuse(tree, 0, [(26, b"\xff" * 8)], "records of 24 bytes, ")
    refuse(tree, 0, [(12, b"\0")], "400 records of 24 bytes, ")


def test_children_that_are_the_same_are_corrupt(tree: Any) -> None:
    _, _, data, (header, root, *_) = tree
    own = data[header.address + 24]
    first = 6 + own * 24
    pointer = data[root.address + first : root.address + first + 9]
    refuse(tree, 1, [(first + 9, pointer)], "not in order|records in and below it")


def test_levels_are_the_specifications() -> None:
    levels = DEFAULT_SHAPE.levels()
    assert levels[:5] == (
        ArrayLevel(1, 16, 0, 0),
        ArrayLevel(1, 32, 16, 1),
        ArrayLevel(2, 32, 48, 2),
        ArrayLevel(2, 64, 112, 4),
        ArrayLevel(4, 64, 240, 6),
    )
    assert len(levels) == 29
    assert sum(level.blocks * level.elements for level in levels) >= 2**32 - 16
    assert (DEFAULT_SHAPE.direct, DEFAULT_SHAPE.direct_blocks, DEFAULT_SHAPE.addresses) == (4, 6, 31)
    assert DEFAULT_SHAPE.info.hex() == "200404100a"


@pytest.mark.parametrize(
    "parameters",
    [
        (32, 4, 0, 4, 10), (32, 4, 15, 4, 10), (32, 4, 16, 3, 10), (32, 4, 16, 0, 10), (63, 4, 16, 4, 10),
        (4, 4, 16, 4, 3), (32, 4, 16, 4, 0), (32, 4, 16, 4, 33), (5, 4, 16, 64, 4), (32, 4, 128, 4, 5),
    ],
)  # fmt: skip
def test_parameters_that_make_no_array_are_corrupt(parameters: tuple[int, int, int, int, int]) -> None:
    with pytest.raises(Corrupt, match="parameters"):
        ExtensibleShape(*parameters)


@pytest.mark.parametrize("places", [[0], range(10), range(3000), [77], [4, 2000], FAR])
@filtered_or_not
def test_headers_and_data_blocks_are_libhdf5s(places: Any, filters: dict[str, Any]) -> None:
    """Blocks lie elsewhere; the statistics, and what each block says it is the place of, are the same."""

    def write(dset: h5py.Dataset) -> None:
        if len(places) > 100:
            dset[: len(places)] = np.arange(len(places))
        else:
            for place in places:
                dset[place] = place

    length = max(places) + 1
    data = make_file("new", write, shape=(length,), chunks=(1,), maxshape=(None,), dtype="<i4", **filters)
    layout, extent, _, _ = open_layout(data)
    records = read_records(data)
    header = layout.address or 0
    ours = plan_chunk_index(layout, records.scaled).encode(header, records)
    assert ours[:60] == data[header : header + 60]
    again = bytes(header) + ours
    theirs, steps = (steps_of(layout, extent, image) for image in (data, again))
    assert [[size for _, size in step] for step in steps] == [[size for _, size in step] for step in theirs]
    for step, other in zip(steps[2:], theirs[2:], strict=True):
        for block, same in zip(step, other, strict=True):
            assert again[block.address : block.address + 18] == data[same.address : same.address + 18]


def test_structured_headers_are_the_prototypes() -> None:
    layout = IndexLayout(EXTENSIBLE, (5,), (None,), 4, False, 2, message_version=5)
    records = make_records(layout, np.array([[0], [1]], np.uint64))
    data = plan_chunk_index(layout, records.scaled).encode(0, records)
    assert data[:12].hex() == "454148440102122004100" + "40a"
    assert struct.unpack_from("<7Q", data, 12) == (0, 0, 0, 0, 2, 4, 72)
    assert data[72:78] == b"EAIB\x01\x02"
    filtered = replace(layout, filtered=True)
    records = make_records(filtered, np.array([[20]], np.uint64))
    data = plan_chunk_index(filtered, records.scaled).encode(0, records)
    assert data[5:7] == bytes((3, 42))


def test_every_block_is_of_this_array() -> None:
    layout, extent, data = stored(EXTENSIBLE, (400_000,), (2, False))
    for block in blocks_of(layout, extent, data)[1:]:
        if data[block.address : block.address + 2] == b"EA":
            other = resealed(data, block, [(6, b"\x29")])
            with pytest.raises(Corrupt, match="belongs to the header at 41, not to the one at 40"):
                load(layout, extent, other)


@pytest.mark.parametrize("places", [range(7), [0, 1023, 1024, 2500, 2999]])
@filtered_or_not
def test_the_bytes_are_libhdf5s(places: Any, filters: dict[str, Any]) -> None:
    def write(dset: h5py.Dataset) -> None:
        for place in places:
            dset[place] = place

    length = 7 if len(places) == 7 else 3000
    data = make_file("newest", write, shape=(length,), chunks=(1,), dtype="<i4", **filters)
    layout, records = open_layout(data)[0], read_records(data)
    header = layout.address or 0
    plan = plan_chunk_index(layout, records.scaled)
    pieces = list(plan.pieces(header, records))
    block = int.from_bytes(data[header + 16 : header + 24], "little")
    assert pieces[0][1][:16] == data[header : header + 16]
    assert len(pieces) == (2 if length == 7 else 5)
    for offset, piece in pieces[1:]:
        place = block + offset - fixed_header_size(layout)
        assert bytes(piece) == data[place : place + len(piece)]


@pytest.mark.parametrize(("filtered", "size"), [(False, 226), (True, 466)])
def test_ten_chunks_of_five_integers_take_what_the_prototype_says(filtered: bool, size: int) -> None:
    layout = IndexLayout(FIXED, (5,), (50,), 4, filtered, 2, message_version=5)
    assert plan_chunk_index(layout, np.zeros((1, 1), np.uint64)).size == size
    assert fixed_array.INFO == b"\x0a"


def test_an_array_with_room_for_more_than_a_file_is_written_in_pieces() -> None:
    layout = make_layout(FIXED, (2**13, 2**13), 2, False)
    records = make_records(layout, np.array([[0, 0], [1, 1], [8191, 8191]], np.uint64))
    plan = plan_chunk_index(layout, records.scaled)
    assert plan.size > 2**30
    assert [offset for offset, _ in plan.pieces(0, records)] == [
        0,
        28,
        28 + 18 + 2**13,
        28 + 18 + 2**13 + 8 * (18 * 1024 + 4),
        plan.size - 18 * 1024 - 4,
    ]
    with pytest.raises(TooLarge, match="bytes"):
        plan.encode(0, records)
    with pytest.raises(TooLarge, match="choose larger chunks"):
        plan_chunk_index(make_layout(FIXED, (2**20, 2**20), 2, False), records.scaled)
    with pytest.raises(Corrupt, match="too many chunks"):
        number_chunks(make_layout(FIXED, (2**40, 2**40), 2, False), records.scaled)


def test_headers_and_data_blocks_that_contradict_the_dataset_are_corrupt() -> None:
    for counts in ((3, 4), (1500,)):
        layout, extent, data = stored(FIXED, counts, (2, False), 0.7)
        header, block, *_ = blocks_of(layout, extent, data)
        for place, value, words in (
            (8, b"\1", "has 1 elements|elements in pages"),
            (7, b"\0", "pages of 2\\^0"),
            (7, b"\x40", "pages of 2\\^64"),
        ):
            with pytest.raises(Corrupt, match=words):
                load(layout, extent, resealed(data, header, [(place, value)]))
        with pytest.raises(Corrupt, match="belongs to the header at 41, not to the one at 40"):
            load(layout, extent, resealed(data, block, [(6, b"\x29")]))


def test_an_array_without_data_has_no_chunks() -> None:
    layout, extent, data = stored(FIXED, (3, 4), (2, False), 0.7)
    header = blocks_of(layout, extent, data)[0]
    assert len(load(layout, extent, resealed(data, header, [(16, b"\xff" * 8)]))) == 0
