"""The fixed array: libhdf5's bytes, those of the golden files, pages, damage."""

from __future__ import annotations

from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import Corrupt, TooLarge
from hsparse.hdf5.format.chunk_indexes.chunk_records import number_chunks
from hsparse.hdf5.format.chunk_indexes.fixed_array import INFO, fixed_header_size
from hsparse.hdf5.format.chunk_indexes.index_layout import IndexKind, IndexLayout
from hsparse.hdf5.format.chunk_indexes.index_registry import plan_chunk_index
from tests.format.hdf5.host_file import make_file, open_layout, read_records
from tests.format.hdf5.record_cases import (
    assert_damage_is_found,
    blocks_of,
    choose_scaled,
    damage_sealed,
    extent_of,
    load,
    make_layout,
    make_records,
    resealed,
    store,
)

KIND = IndexKind.FIXED_ARRAY


@pytest.mark.parametrize("places", [range(7), [0, 1023, 1024, 2500, 2999]])
@pytest.mark.parametrize("filters", [{}, {"compression": 1}])
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
    layout = IndexLayout(KIND, (5,), (50,), 4, filtered, 2, message_version=5)
    assert plan_chunk_index(layout, np.zeros((1, 1), np.uint64)).size == size
    assert INFO == b"\x0a"


def test_an_array_with_room_for_more_than_a_file_is_written_in_pieces() -> None:
    layout = make_layout(KIND, (2**13, 2**13), 2, False)
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
        plan_chunk_index(make_layout(KIND, (2**20, 2**20), 2, False), records.scaled)
    with pytest.raises(Corrupt, match="too many chunks"):
        number_chunks(make_layout(KIND, (2**40, 2**40), 2, False), records.scaled)


@pytest.mark.parametrize("structure", [(0, False), (2, True)])
@pytest.mark.parametrize("counts", [(3, 4), (1500,)])
def test_damage_is_found(counts: tuple[int, ...], structure: tuple[int, bool]) -> None:
    layout = make_layout(KIND, counts, *structure)
    data = store(layout, make_records(layout, choose_scaled(counts, 0.7)))
    assert_damage_is_found(layout, extent_of(layout, counts), data, 1 if len(counts) == 2 else 501)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 255)), max_size=4), st.integers(0, 4))
def test_damage_with_right_checksums_ends_in_an_error_or_an_answer(
    changes: list[tuple[int, int]], number: int
) -> None:
    counts = (1500,)
    layout = make_layout(KIND, counts, 2, True)
    data = store(layout, make_records(layout, choose_scaled(counts, 0.7)))
    found = damage_sealed(layout, extent_of(layout, counts), data, number, changes)
    assert found is None or len(found) <= 1500


def test_headers_and_data_blocks_that_contradict_the_dataset_are_corrupt() -> None:
    for counts in ((3, 4), (1500,)):
        layout = make_layout(KIND, counts, 2, False)
        extent = extent_of(layout, counts)
        data = store(layout, make_records(layout, choose_scaled(counts, 0.7)))
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
    layout = make_layout(KIND, (3, 4), 2, False)
    extent = extent_of(layout, (3, 4))
    data = store(layout, make_records(layout, choose_scaled((3, 4), 0.7)))
    header = blocks_of(layout, extent, data)[0]
    assert len(load(layout, extent, resealed(data, header, [(16, b"\xff" * 8)]))) == 0
