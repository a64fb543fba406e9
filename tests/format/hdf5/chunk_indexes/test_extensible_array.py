"""The extensible array: its shape, libhdf5's headers and blocks, golden numbers, pages, damage."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import Corrupt
from hsparse.hdf5.format.chunk_indexes.extensible_array import DEFAULT_SHAPE, ArrayLevel, ExtensibleShape
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
    steps_of,
    store,
)


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
        (32, 4, 0, 4, 10),
        (32, 4, 15, 4, 10),
        (32, 4, 16, 3, 10),
        (32, 4, 16, 0, 10),
        (63, 4, 16, 4, 10),
        (4, 4, 16, 4, 3),
        (32, 4, 16, 4, 0),
        (32, 4, 16, 4, 33),
        (5, 4, 16, 64, 4),
        (32, 4, 128, 4, 5),
    ],
)
def test_parameters_that_make_no_array_are_corrupt(parameters: tuple[int, int, int, int, int]) -> None:
    with pytest.raises(Corrupt, match="parameters"):
        ExtensibleShape(*parameters)


KIND = IndexKind.EXTENSIBLE_ARRAY
FAR = [0, 3, 4, 50, 131_059, 131_060, 140_000, 300_000]


@pytest.mark.parametrize("places", [[0], range(10), range(3000), [77], [4, 2000], FAR])
@pytest.mark.parametrize("filters", [{}, {"compression": 1}])
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
    layout = IndexLayout(KIND, (5,), (None,), 4, False, 2, message_version=5)
    records = make_records(layout, np.array([[0], [1]], np.uint64))
    data = plan_chunk_index(layout, records.scaled).encode(0, records)
    assert data[:12].hex() == "454148440102122004100" + "40a"
    assert struct.unpack_from("<7Q", data, 12) == (0, 0, 0, 0, 2, 4, 72)
    assert data[72:78] == b"EAIB\x01\x02"
    filtered = replace(layout, filtered=True)
    records = make_records(filtered, np.array([[20]], np.uint64))
    data = plan_chunk_index(filtered, records.scaled).encode(0, records)
    assert data[5:7] == bytes((3, 42))


@pytest.mark.parametrize("structure", [(0, False), (2, True)])
def test_damage_is_found(structure: tuple[int, bool]) -> None:
    layout = make_layout(KIND, (5, 40), *structure)
    data = store(layout, make_records(layout, choose_scaled((5, 40), 0.4)))
    assert_damage_is_found(layout, extent_of(layout, (5, 40)), data, 7)
    layout = make_layout(KIND, (400_000,), *structure)
    data = store(layout, make_records(layout, np.array(FAR, np.uint64)[:, None]))
    assert_damage_is_found(layout, extent_of(layout, (400_000,)), data, 3001)


@given(st.lists(st.tuples(st.integers(0, 90), st.integers(0, 255)), max_size=4), st.integers(0, 7))
def test_damage_with_right_checksums_ends_in_an_error_or_an_answer(
    changes: list[tuple[int, int]], number: int
) -> None:
    counts = (5, 400)
    layout = make_layout(KIND, counts, 2, False)
    data = store(layout, make_records(layout, choose_scaled(counts, 0.4)))
    found = damage_sealed(layout, extent_of(layout, counts), data, number, changes)
    assert found is None or len(found) <= 2000


def test_every_block_is_of_this_array() -> None:
    counts = (400_000,)
    layout = make_layout(KIND, counts, 2, False)
    data = store(layout, make_records(layout, np.array(FAR, np.uint64)[:, None]))
    for block in blocks_of(layout, extent_of(layout, counts), data)[1:]:
        if data[block.address : block.address + 2] == b"EA":
            other = resealed(data, block, [(6, b"\x29")])
            with pytest.raises(Corrupt, match="belongs to the header at 41, not to the one at 40"):
                load(layout, extent_of(layout, counts), other)
