"""The v2 B-tree of chunks: libhdf5's bytes, the prototype's numbers, levels, damage."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import Corrupt
from hsparse.format.dataspace_message import FormatRevision
from hsparse.hdf5.format.chunk_indexes.chunk_btree_v2 import HEADER, INFO
from hsparse.hdf5.format.chunk_indexes.index_layout import IndexKind, IndexLayout
from hsparse.hdf5.format.chunk_indexes.index_registry import plan_chunk_index
from tests.format.hdf5.host_file import assert_same, make_file, open_layout, read_records
from tests.format.hdf5.record_cases import (
    ADDRESS,
    assert_damage_is_found,
    blocks_of,
    choose_scaled,
    damage_sealed,
    extent_of,
    load,
    make_layout,
    make_records,
    resealed,
    steps_of,
    store,
)

KIND = IndexKind.BTREE_V2


@pytest.mark.parametrize("filters", [{}, {"compression": 1}])
def test_the_bytes_of_a_leaf_are_libhdf5s(filters: dict[str, Any]) -> None:
    def write(dset: h5py.Dataset) -> None:
        dset[...] = np.arange(35).reshape(5, 7)

    data = make_file(
        "newest", write, shape=(5, 7), chunks=(1, 2), maxshape=(None, None), dtype="<i4", **filters
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
    layout = replace(make_layout(KIND, extent, 0, False), chunk=(1,) * 8)
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
    layout = IndexLayout(KIND, (2, 5), (None, None), 4, False, 2, message_version=5)
    records = make_records(layout, np.array([[0, 0], [0, 1]], np.uint64))
    plan = plan_chunk_index(layout, records.scaled)
    assert plan.size == 2086
    assert plan.encode(0, records)[:16].hex() == "42544844010c00080000220000006428"
    filtered = replace(layout, filtered=True)
    records = make_records(filtered, np.array([[7, 1]], np.uint64))
    data = plan_chunk_index(filtered, records.scaled).encode(0, records)
    assert data[5:12].hex() == "0d000800003a00"
    assert INFO.hex() == "000800006428"
    older = replace(layout, revision=FormatRevision.RFC_2025_10)
    assert plan_chunk_index(older, records.scaled).encode(0, records)[4] == 0


@pytest.mark.parametrize("structure", [(0, False), (2, True)])
def test_damage_is_found(structure: tuple[int, bool]) -> None:
    counts = (20, 20)
    layout = make_layout(KIND, counts, *structure)
    data = store(layout, make_records(layout, choose_scaled(counts, 0.5)))
    assert_damage_is_found(layout, extent_of(layout, counts), data, 13)


@given(st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), max_size=4), st.integers(0, 4))
def test_damage_with_right_checksums_ends_in_an_error_or_an_answer(
    changes: list[tuple[int, int]], number: int
) -> None:
    counts = (20, 20)
    layout = make_layout(KIND, counts, 2, False)
    data = store(layout, make_records(layout, choose_scaled(counts, 0.5)))
    found = damage_sealed(layout, extent_of(layout, counts), data, number, changes)
    assert found is None or len(found) <= 200


@pytest.fixture
def tree() -> tuple[Any, tuple[int, ...], bytes, list[Any]]:
    """Layout, extent, file and blocks of a tree of two levels: header, root, leaves."""
    counts = (20, 20)
    layout = make_layout(KIND, counts, 0, False)
    data = store(layout, make_records(layout, choose_scaled(counts, 1)))
    extent = extent_of(layout, counts)
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
