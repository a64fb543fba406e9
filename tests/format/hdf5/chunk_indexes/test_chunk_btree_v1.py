"""The v1 B-tree of chunks: libhdf5's bytes, nodes of any size, what can be found of damage without checksums."""

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

from hsparse.errors import BadRequest, Corrupt
from hsparse.hdf5.format.chunk_indexes.index_layout import IndexKind
from hsparse.hdf5.format.chunk_indexes.index_registry import plan_chunk_index
from tests.format.hdf5.host_file import assert_same, make_file, open_layout, read_records
from tests.format.hdf5.record_cases import (
    ADDRESS,
    choose_scaled,
    extent_of,
    load,
    make_layout,
    make_records,
    steps_of,
    store,
)

KIND = IndexKind.BTREE_V1


@pytest.mark.parametrize("filters", [{}, {"compression": 1}])
def test_the_bytes_of_a_node_are_libhdf5s(filters: dict[str, Any]) -> None:
    def write(dset: h5py.Dataset) -> None:
        dset[...] = np.arange(35).reshape(5, 7)

    data = make_file("earliest", write, shape=(5, 7), chunks=(1, 2), dtype="<i4", **filters)
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
    layout = replace(make_layout(KIND, shape, 0, filtered), k=k)
    records = make_records(layout, choose_scaled(shape, share, seed), seed)
    data = store(layout, records)
    assert_same(load(layout, extent_of(layout, shape), data), records)
    sizes = {block.size for step in steps_of(layout, extent_of(layout, shape), data) for block in step}
    assert sizes == {24 + 2 * k * 8 + (2 * k + 1) * (16 + 8 * len(shape))}


def test_a_chunk_of_4_gib_has_no_record() -> None:
    layout = make_layout(KIND, (3,), 0, True)
    records = make_records(layout, np.array([[1]], np.uint64))
    records.size[0] = 2**32
    with pytest.raises(BadRequest, match="4 GiB"):
        store(layout, records)


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (0, 0x55, "signature"),
        (4, 0, "type 0"),
        (5, 1, "file's end|overlap|signature"),
        (6, 65, "65 entries"),
        (24, 1, "unfiltered chunk"),
        (32, 1, "chunk boundary"),
        (48, 4, "chunk boundary"),
        (56 + 24, 0, "not in order"),
    ],
)
def test_damage_that_can_be_told_is_found(place: int, value: int, words: str) -> None:
    layout = make_layout(KIND, (3, 4), 0, False)
    data = bytearray(store(layout, make_records(layout, choose_scaled((3, 4), 1))))
    data[ADDRESS + place] = value
    with pytest.raises(Corrupt, match=words):
        load(layout, extent_of(layout, (3, 4)), bytes(data))


@given(st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 255)), min_size=1, max_size=6))
def test_damage_ends_in_an_error_or_an_answer(changes: list[tuple[int, int]]) -> None:
    layout = replace(make_layout(KIND, (10, 10), 0, True), k=2)
    data = bytearray(store(layout, make_records(layout, choose_scaled((10, 10), 1))))
    for place, value in changes:
        data[ADDRESS + place % (len(data) - ADDRESS)] = value
    try:
        found = load(layout, extent_of(layout, (10, 10)), bytes(data))
    except Corrupt:
        return
    assert len(found) <= 100


def test_a_tree_that_leads_to_itself_is_refused() -> None:
    layout = replace(make_layout(KIND, (10, 10), 0, False), k=2)
    data = bytearray(store(layout, make_records(layout, choose_scaled((10, 10), 1))))
    child = ADDRESS + 24 + 8 + 3 * 8
    data[child : child + 8] = ADDRESS.to_bytes(8, "little")
    with pytest.raises(Corrupt, match="level 3"):
        load(layout, extent_of(layout, (10, 10)), bytes(data))


def test_a_tree_whose_nodes_have_one_child_many_times_is_refused() -> None:
    """Each level would multiply what is read: the file's size is the limit, before any memory is taken."""
    layout = replace(make_layout(KIND, (10, 10), 0, False), k=2)
    extent, entry = extent_of(layout, (10, 10)), 5 * 8
    data = bytearray(store(layout, make_records(layout, choose_scaled((10, 10), 1))))
    steps = steps_of(layout, extent, data)
    for (node, *_), (child, *_) in pairwise(steps):
        for number in range(data[node.address + 6]):
            place = node.address + 24 + number * entry + entry - 8
            data[place : place + 8] = child.address.to_bytes(8, "little")
    leaf = steps[-1][0]
    with pytest.raises(Corrupt, match="overlap"):
        load(layout, extent, bytes(data[: leaf.address + leaf.size]))


def test_a_file_that_ends_inside_a_node_is_corrupt() -> None:
    layout = make_layout(KIND, (3, 4), 0, False)
    data = store(layout, make_records(layout, choose_scaled((3, 4), 1)))
    with pytest.raises(Corrupt, match="file's end"):
        load(layout, extent_of(layout, (3, 4)), data[:-1])
