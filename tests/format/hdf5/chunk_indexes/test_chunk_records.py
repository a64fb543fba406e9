"""Records of chunks: fields, types in three revisions, overflow; numbers and order of chunks, against numpy's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import BadRequest, Corrupt
from hsparse.format.dataspace_message import FormatRevision
from hsparse.format.structured.container import Section
from hsparse.hdf5.format.chunk_indexes.chunk_records import (
    decode_records,
    encode_records,
    locate_chunks,
    number_chunks,
    record_type,
    sized_record_type,
    slots,
    view_elements,
)
from hsparse.hdf5.format.chunk_indexes.index_layout import IndexKind, IndexLayout
from tests.format.hdf5.host_file import assert_same
from tests.format.hdf5.record_cases import make_layout, make_records, structured_records

SCALED = np.zeros((1, 1), np.uint64)
INTEGERS = IndexLayout(IndexKind.FIXED_ARRAY, (5,), (50,), 4, False, 2, message_version=5)


def test_the_golden_element_of_a_chunk_without_filters() -> None:
    element = bytes.fromhex("0008000000000000 5300 4b00000000000000")
    found = decode_records(INTEGERS, view_elements(element, record_type(INTEGERS, 2)), SCALED)
    assert (found.address.tolist(), found.size.tolist()) == ([2048], [83])
    assert found.sections(0) == (Section(0, 75, 75, 0), Section(75, 8, 8, 0))
    assert encode_records(found, record_type(INTEGERS, 2)).tobytes() == element


def test_the_golden_element_of_a_filtered_chunk() -> None:
    layout = replace(INTEGERS, filtered=True)
    element = bytes.fromhex(
        "d60d000000000000 3a00 2c00000000000000 4b00000000000000 0800000000000000 00000000 00000000"
    )
    found = decode_records(layout, view_elements(element, record_type(layout, 2)), SCALED)
    assert found.address.tolist() == [0xDD6]
    assert found.sections(0) == (Section(0, 44, 75, 0), Section(44, 14, 8, 0))
    assert encode_records(found, record_type(layout, 2)).tobytes() == element
    assert_same(structured_records(SCALED, found.address, [found.sections(0)]), found)


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("sections", [0, 2, 3])
@pytest.mark.parametrize("filtered", [False, True])
def test_the_width_of_sizes_follows_from_the_records(sections: int, filtered: bool, scaled: bool) -> None:
    layout = replace(INTEGERS, sections=sections, filtered=filtered)
    widths = range(1, 9) if sections or filtered else [1]
    sizes = [record_type(layout, width, scaled=scaled).itemsize for width in widths]
    for size, width in zip(sizes, widths, strict=True):
        assert sized_record_type(layout, size, "x", scaled=scaled) == record_type(
            layout, width, scaled=scaled
        )
    for size in (sizes[0] - 1, sizes[-1] + 1, 0):
        with pytest.raises(Corrupt, match=f"The x has records of {size} bytes"):
            sized_record_type(layout, size, "x", scaled=scaled)


def test_numbers_without_room_are_refused() -> None:
    records = make_records(INTEGERS, SCALED)
    records.size[0] = 2**16
    with pytest.raises(BadRequest, match="65536 as size; the index has 2 bytes"):
        encode_records(records, record_type(INTEGERS, 2))
    older = replace(INTEGERS, revision=FormatRevision.RFC_2023_07)
    records = make_records(older, SCALED)
    records.offsets[0, 0] = 2**32
    with pytest.raises(BadRequest, match="as offsets; the index has 4 bytes"):
        encode_records(records, record_type(older, 8))


def test_sections_that_do_not_follow_one_another_are_corrupt() -> None:
    layout = make_layout(IndexKind.FIXED_ARRAY, (4,), 3, False)
    records = make_records(layout, np.arange(3, dtype=np.uint64)[:, None])
    dtype = record_type(layout, 8)
    for offsets in ([5, 4], [11, 12], [2, 11]):
        records.offsets[1], records.size[1] = offsets, 10
        with pytest.raises(Corrupt, match=r"chunk at \[1\] has 10 bytes"):
            decode_records(layout, encode_records(records, dtype), records.scaled)


def test_a_chunk_larger_than_a_file_is_corrupt() -> None:
    layout = replace(INTEGERS, sections=0, chunk=(2**32,) * 2, max_dims=(None, None))
    with pytest.raises(Corrupt, match="cannot have"):
        decode_records(layout, np.zeros(1, record_type(layout, 8)), np.zeros((1, 2), np.uint64))


counts = st.lists(st.integers(1, 6), min_size=1, max_size=4).map(tuple)


@given(counts, st.none() | st.integers(0, 3))
def test_numbers_are_row_major_with_the_unlimited_dimension_first(
    shape: tuple[int, ...], unlimited: int | None
) -> None:
    layout = make_layout(IndexKind.FIXED_ARRAY, shape, 0, False)
    order = list(range(len(shape)))
    if unlimited is not None:
        unlimited %= len(shape)
        limits = list(layout.max_dims)
        limits[unlimited] = None
        layout = replace(layout, max_dims=tuple(limits))
        order.insert(0, order.pop(unlimited))
    scaled = np.indices(shape, np.uint64).reshape(len(shape), -1).T
    numbers = number_chunks(layout, scaled)
    wanted = np.ravel_multi_index(tuple(scaled[:, dim] for dim in order), tuple(shape[dim] for dim in order))
    assert numbers.tolist() == wanted.tolist()
    assert locate_chunks(layout, numbers).tolist() == scaled.tolist()


def test_chunks_that_cannot_be_numbered_are_corrupt() -> None:
    layout = make_layout(IndexKind.FIXED_ARRAY, (2**31, 2**31, 3), 0, False)
    assert slots(layout) == 3 * 2**62
    with pytest.raises(Corrupt, match="too many chunks"):
        slots(make_layout(IndexKind.FIXED_ARRAY, (2**31, 2**31, 4), 0, False))
