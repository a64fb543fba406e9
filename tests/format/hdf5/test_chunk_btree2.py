"""The v2 B-tree of chunks: libhdf5's bytes, the prototype's numbers, levels, damage."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.format.hdf5.chunk_btree2 import HEADER, HEADER_SIZE, INFO
from hsparse.format.hdf5.chunk_index import plan_index
from hsparse.format.hdf5.format_revision import FormatRevision
from hsparse.format.hdf5.index_kind import IndexKind
from hsparse.format.hdf5.index_layout import IndexLayout
from tests.format.hdf5.host_file import assert_same, make_file, open_layout, read_records
from tests.format.hdf5.record_cases import (
    ADDRESS,
    assert_damage_is_found,
    choose_scaled,
    extent_of,
    load,
    make_layout,
    make_records,
    revisions,
    sealed_damage,
    steps_of,
    store,
    structures,
)

KIND = IndexKind.BTREE_V2


@pytest.mark.parametrize("filters", [{}, {"compression": 1}])
def test_the_bytes_of_a_leaf_are_libhdf5s(filters: dict[str, Any]) -> None:
    def write(dset: h5py.Dataset) -> None:
        dset[...] = np.arange(35).reshape(5, 7)

    data = make_file(
        "latest", write, shape=(5, 7), chunks=(1, 2), maxshape=(None, None), dtype="<i4", **filters
    )
    layout, records = open_layout(data)[0], read_records(data)
    header = layout.address or 0
    ours = plan_index(layout, records.scaled).encode(header, records)
    (root,) = np.frombuffer(data, "<u8", 1, header + 16).tolist()
    assert ours[:16] == data[header : header + 16]
    assert ours[24:34] == data[header + 24 : header + 34]
    assert ours[38 : 38 + 2048] == data[root : root + 2048]


@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=3),
    structures,
    revisions,
    st.floats(0, 1),
    st.integers(0, 2**32),
)
def test_records_come_back(
    counts: list[int], structure: tuple[int, bool], revision: FormatRevision, share: float, seed: int
) -> None:
    shape = tuple(counts)
    layout = replace(make_layout(KIND, shape, *structure), revision=revision)
    records = make_records(layout, choose_scaled(shape, share, seed), seed)
    data = store(layout, records)
    assert_same(load(layout, extent_of(layout, shape), data), records)
    assert data[44:46] == bytes((layout.block_version, 10 + layout.client))


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
    head = HEADER.unpack(data[ADDRESS + 6 : ADDRESS + 6 + HEADER.size])
    assert head[:5] == (2048, 72, depth, 100, 40)
    _, *levels = steps_of(layout, extent, data)
    assert [len(step) for step in levels[:1]] == [1]
    for level, step in zip(range(depth - 1, -1, -1), levels[1:], strict=True):
        assert min(block.size for block in step) >= 0.4 * (25 if level else 28) * 72


def test_structured_numbers_are_the_prototypes() -> None:
    layout = IndexLayout(KIND, (2, 5), (None, None), 4, False, 2, message_version=5)
    records = make_records(layout, np.array([[0, 0], [0, 1]], np.uint64))
    plan = plan_index(layout, records.scaled)
    assert plan.size == 2086
    assert plan.encode(0, records)[:16].hex() == "42544844010c00080000220000006428"
    filtered = replace(layout, filtered=True)
    records = make_records(filtered, np.array([[7, 1]], np.uint64))
    data = plan_index(filtered, records.scaled).encode(0, records)
    assert data[5:12].hex() == "0d000800003a00"
    assert INFO.hex() == "000800006428"
    older = replace(layout, revision=FormatRevision.RFC_2025_10)
    assert plan_index(older, records.scaled).encode(0, records)[4] == 0


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
    blocks = iter(range(100))
    found = sealed_damage(
        layout, extent_of(layout, counts), data, lambda _: changes if next(blocks) == number else []
    )
    assert found is None or len(found) <= 200


def test_a_tree_whose_nodes_have_one_child_many_times_is_refused() -> None:
    """Each level would double what is read: the file's size is the limit, before any memory is taken."""
    layout = make_layout(KIND, (20, 20), 0, False)
    data = store(layout, make_records(layout, choose_scaled((20, 20), 1)))
    root = ADDRESS + HEADER_SIZE

    def same_child(block: Any) -> list[tuple[int, int]]:
        if block.address != root:
            return []
        own = int.from_bytes(data[ADDRESS + 24 : ADDRESS + 26], "little")
        first = 6 + own * 24
        pointer = data[root + first : root + first + 8]
        return [
            (first + 9 * child + at, value) for child in range(1, own + 1) for at, value in enumerate(pointer)
        ]

    assert sealed_damage(layout, extent_of(layout, (20, 20)), data, same_child) is None
