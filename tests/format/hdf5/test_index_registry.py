"""Chunk indexes of all kinds: their choice, their records, and libhdf5 that reads ours and goes on with them."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
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
from hsparse.hdf5.format.chunk_indexes.fixed_array import implicit_records, single_records
from hsparse.hdf5.format.chunk_indexes.index_layout import (
    STRUCTURED_KINDS,
    IndexKind,
    IndexLayout,
    choose_index_kind,
    parse_index_kind,
)
from hsparse.hdf5.format.chunk_indexes.index_registry import (
    index_info,
    index_info_size,
    plan_chunk_index,
    read_chunk_index,
)
from hsparse.hdf5.format.file_fields import run_reads
from hsparse.hdf5.format.hdf5_file import FileBounds
from tests.format.hdf5.index_files import (
    assert_hdf5_finds,
    assert_same,
    choose_scaled,
    extent_of,
    fetch_from,
    load,
    make_file,
    make_layout,
    make_records,
    open_image,
    open_layout,
    read_records,
    replace_index,
    revisions,
    store,
    stored_and_loaded,
    structured_records,
    structures,
)
from tests.support.endurance import repeats


@given(
    st.lists(
        st.tuples(st.integers(1, 4), st.integers(0, 2), st.booleans(), st.integers(1, 4)),
        min_size=1,
        max_size=3,
    ),
    st.sampled_from(["earliest", "new", "newest"]),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=200)
def test_libhdf5_chooses_the_same(
    dims: list[tuple[int, int, bool, int]], libver: str, early: bool, filtered: bool
) -> None:
    extent = tuple(length for length, *_ in dims)
    limits = tuple(None if endless else length + more for length, more, endless, _ in dims)
    chunk = tuple(
        step if limit is None else min(step, limit) for limit, (*_, step) in zip(limits, dims, strict=True)
    )
    early = early and not filtered

    def write(dset: h5py.Dataset) -> None:
        dset[...] = 1

    arguments: dict[str, Any] = {"shape": extent, "maxshape": limits, "chunks": chunk}
    if not early:
        arguments |= {"dtype": "<i4", "compression": 1 if filtered else None}
    layout = open_layout(make_file(libver, write, early=early, **arguments))[0]
    version = layout.message_version
    assert choose_index_kind(extent, limits, chunk, early=early, message_version=version) is layout.kind
    if version > 3 and not early:
        assert layout.kind in STRUCTURED_KINDS


def test_kinds_that_are_not_there_are_corrupt() -> None:
    assert parse_index_kind(3, STRUCTURED_KINDS) is IndexKind.FIXED_ARRAY
    assert parse_index_kind(2, list(IndexKind)) is IndexKind.IMPLICIT
    for number in (0, 2, 6):
        with pytest.raises(Corrupt, match=f"type {number}; it can be 1, 3, 4, 5"):
            parse_index_kind(number, STRUCTURED_KINDS)


LAYOUT = IndexLayout(IndexKind.FIXED_ARRAY, (5, 2), (11, None), 4)


def test_widths_of_addresses_and_lengths() -> None:
    narrow = replace(LAYOUT, address_width=4, length_width=2)
    assert (LAYOUT.undefined, narrow.undefined) == (2**64 - 1, 2**32 - 1)
    assert (LAYOUT.fields("BOLH").size, narrow.fields("BOLH").size) == (19, 9)
    assert narrow.fields("OL").pack(1, 2) == b"\1\0\0\0\2\0"
    assert replace(narrow, message_version=5).size_width == 2


def test_counts_and_clients() -> None:
    assert (LAYOUT.counts, LAYOUT.chunk_bytes, LAYOUT.rank) == ((3, None), 40, 2)
    clients = [replace(LAYOUT, sections=n, filtered=f).client for n in (0, 2, 3) for f in (False, True)]
    assert clients == [0, 1, 2, 3, 2, 3]


@pytest.mark.parametrize(("revision", "version"), list(zip(FormatRevision, (1, 0, 1), strict=True)))
def test_versions_of_blocks(revision: FormatRevision, version: int) -> None:
    assert replace(LAYOUT, revision=revision).block_version == 0
    assert replace(LAYOUT, revision=revision, sections=2).block_version == version


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


@pytest.mark.parametrize(
    ("sections", "filtered", "size"),
    [(0, False, 0), (0, True, 12), (2, False, 10), (2, True, 34), (3, False, 24), (3, True, 60)],
)
def test_the_record_comes_back(sections: int, filtered: bool, size: int) -> None:
    layout = make_layout(IndexKind.SINGLE, (1, 1), sections, filtered)
    records = make_records(layout, np.zeros((1, 2), np.uint64))
    info = index_info(layout, records)
    assert len(info) == index_info_size(layout) == size
    found = single_records(replace(layout, info=info), int(records.address[0]))
    assert_same(found, records)
    assert index_info(layout) == bytes(size)
    with pytest.raises(Corrupt, match="index information"):
        single_records(replace(layout, info=info + b"\0"), 0)


def test_an_address_that_the_prototype_leaves_means_no_chunk() -> None:
    layout = make_layout(IndexKind.SINGLE, (1,), 2, False)
    layout = replace(layout, info=index_info(layout))
    assert len(single_records(layout, 2**64 - 2)) == 0
    assert len(single_records(layout, 2**64 - 1)) == 0
    assert len(single_records(layout, 2**40)) == 1


def fill(dset: h5py.Dataset) -> None:
    dset[...] = np.arange(dset.size).reshape(dset.shape)


@pytest.mark.parametrize(("shape", "limits"), [((9, 7), (9, 7)), ((5, 4), (9, 7)), ((2,), (50,))])
def test_what_libhdf5_allocated_is_found(shape: tuple[int, ...], limits: tuple[int, ...]) -> None:
    data = make_file("new", fill, early=True, shape=shape, maxshape=limits, chunks=(2, 3)[: len(shape)])
    assert open_layout(data)[0].kind is IndexKind.IMPLICIT
    records = read_records(data)
    assert len(records) == np.prod([-(-end // step) for end, step in zip(shape, (2, 3), strict=False)])
    assert_hdf5_finds(data, records)


def test_contradictions_are_corrupt() -> None:
    data = make_file("new", fill, early=True, shape=(8,), maxshape=(9,), chunks=(2,))
    layout = open_layout(data)[0]
    address = layout.address or 0
    end = address + 5 * 8
    assert len(implicit_records(layout, (4,), address, FileBounds(end))) == 4
    assert implicit_records(layout, (0,), address, FileBounds(end)).scaled.shape == (0, 1)
    flat = replace(layout, chunk=(2, 3), max_dims=(9, 9))
    assert implicit_records(flat, (4, 0), 0, FileBounds(2000)).scaled.shape == (0, 2)
    with pytest.raises(Corrupt, match="file's end"):
        implicit_records(layout, (4,), address, FileBounds(end - 1))
    with pytest.raises(Corrupt, match="beyond"):
        implicit_records(layout, (6,), address, FileBounds(end))
    for other in (replace(layout, filtered=True), replace(layout, sections=2)):
        with pytest.raises(Corrupt, match="varying sizes"):
            implicit_records(other, (4,), address, FileBounds(end))


OLD, NEW, NEWEST = "old", "new", "newest"


def written_again(data: bytes) -> bytes:
    """Return the file with our index of the same chunks."""
    layout, records = open_layout(data)[0], read_records(data)
    plan = plan_chunk_index(layout, records.scaled)
    return replace_index(data, lambda address: plan.encode(address, records))


CASES: dict[str, tuple[str, IndexKind, dict[str, Any]]] = {
    "single": (NEW, IndexKind.SINGLE, {"shape": (10,), "chunks": (10,)}),
    "fixed": (NEW, IndexKind.FIXED_ARRAY, {"shape": (10, 7), "chunks": (3, 2), "maxshape": (13, 17)}),
    "fixed-one-page": (NEW, IndexKind.FIXED_ARRAY, {"shape": (1024,), "chunks": (1,)}),
    "fixed-two-pages": (NEW, IndexKind.FIXED_ARRAY, {"shape": (1025,), "chunks": (1,)}),
    "fixed-pages": (NEW, IndexKind.FIXED_ARRAY, {"shape": (70, 81), "chunks": (1, 1)}),
    "extensible-index-block": (
        NEW,
        IndexKind.EXTENSIBLE_ARRAY,
        {"shape": (10,), "chunks": (3,), "maxshape": (None,)},
    ),
    "extensible": (NEW, IndexKind.EXTENSIBLE_ARRAY, {"shape": (3000,), "chunks": (1,), "maxshape": (None,)}),
    "extensible-last": (
        NEW,
        IndexKind.EXTENSIBLE_ARRAY,
        {"shape": (3, 5, 120), "chunks": (3, 1, 1), "maxshape": (7, 6, None)},
    ),
    "tree-leaf": (NEW, IndexKind.BTREE_V2, {"shape": (9, 10), "chunks": (3, 3), "maxshape": (None, None)}),
    "tree-two-levels": (
        NEW,
        IndexKind.BTREE_V2,
        {"shape": (30, 31), "chunks": (1, 1), "maxshape": (None, None)},
    ),
    "tree-three-levels": (
        NEW,
        IndexKind.BTREE_V2,
        {"shape": (90, 80), "chunks": (1, 1), "maxshape": (None, None)},
    ),
    "old": (OLD, IndexKind.BTREE_V1, {"shape": (10, 7), "chunks": (3, 2)}),
    "old-three-levels": (OLD, IndexKind.BTREE_V1, {"shape": (70, 80), "chunks": (1, 1)}),
    "oldest": ("earliest", IndexKind.BTREE_V1, {"shape": (100,), "chunks": (1,), "maxshape": (None,)}),
}
WRITTEN = [name for name in CASES if name != "single"]


@pytest.mark.parametrize("filters", [{}, {"compression": 1}, {"fletcher32": True, "shuffle": True}])
@pytest.mark.parametrize(
    ("name", "libver", "widths"),
    [
        (name, libver, widths)
        for name, (oldest, _, arguments) in CASES.items()
        for libver in ([NEW, NEWEST] if oldest == NEW else [oldest])
        for widths in [(8, 8), (4, 8)] + ([] if None in arguments.get("maxshape", ()) else [(4, 4), (8, 4)])
    ],
)
def test_what_libhdf5_wrote_is_read_and_it_reads_ours(
    name: str, libver: str, widths: tuple[int, int], filters: dict[str, Any]
) -> None:
    """Of narrow lengths only datasets with limits: libhdf5 does not know "unlimited" again when it reads it."""
    _, kind, arguments = CASES[name]
    data = make_file(libver, fill, dtype="<i4", widths=widths, **arguments, **filters)
    assert open_layout(data)[0].kind is kind
    records = read_records(data)
    assert_hdf5_finds(data, records)
    if kind is not IndexKind.SINGLE:
        again = written_again(data)
        assert_same(read_records(again), records)
        assert_hdf5_finds(again, records)
        with open_image(again) as file:
            np.testing.assert_array_equal(file["d"], np.arange(file["d"].size).reshape(file["d"].shape))


@pytest.mark.parametrize("name", [name for name in WRITTEN if "maxshape" in CASES[name][2]])
def test_libhdf5_goes_on_with_ours(name: str) -> None:
    """It grows the dataset, adds chunks between and after ours, shrinks it again; the values are numpy's."""
    libver, _, arguments = CASES[name]
    data = io.BytesIO(written_again(make_file(libver, fill, dtype="<i4", compression=1, **arguments)))
    with h5py.File(data, "r+") as file:
        dset = file["d"]
        grown = tuple(
            length + 8 if limit is None else limit
            for length, limit in zip(dset.shape, dset.maxshape, strict=True)
        )
        dset.resize(grown)
        dset[...] = np.arange(dset.size).reshape(grown) + 7
        shrunk = tuple(max(1, length - 9) for length in grown)
        dset.resize(shrunk)
    wanted = (np.arange(np.prod(grown)).reshape(grown) + 7)[tuple(slice(end) for end in shrunk)]
    with h5py.File(data) as file:
        np.testing.assert_array_equal(file["d"], wanted)
    records = read_records(data.getvalue())
    assert_hdf5_finds(data.getvalue(), records)
    assert len(records) == np.prod(
        [-(-end // step) for end, step in zip(shrunk, arguments["chunks"], strict=True)]
    )


@st.composite
def datasets(draw: st.DrawFn) -> tuple[str, dict[str, Any], list[tuple[int, ...]]]:
    """Return library bounds, arguments of a dataset, and the chunks that are written."""
    rank = draw(st.integers(1, 3))
    chunk = tuple(draw(st.lists(st.integers(1, 4), min_size=rank, max_size=rank)))
    shape = tuple(draw(st.lists(st.integers(1, 17), min_size=rank, max_size=rank)))
    limits: list[int | None] = []
    for length, step in zip(shape, chunk, strict=True):
        least = max(length, step)
        limits.append(draw(st.sampled_from([least, least + 1, least + 9, None])))
    counts = tuple(-(-length // step) for length, step in zip(shape, chunk, strict=True))
    places = st.tuples(*(st.integers(0, count - 1) for count in counts))
    written = draw(st.lists(places, max_size=30, unique=True))
    arguments = {"shape": shape, "chunks": chunk, "maxshape": tuple(limits), "dtype": "<i4"}
    if draw(st.booleans()):
        arguments["compression"] = 1
    arguments["widths"] = draw(
        st.sampled_from([(8, 8), (4, 8)] if None in limits else [(8, 8), (4, 4), (8, 4)])
    )
    return draw(st.sampled_from(["earliest", OLD, NEW, NEWEST])), arguments, written


@pytest.mark.endurance
@given(datasets())
@settings(max_examples=repeats(200, short=60), suppress_health_check=[HealthCheck.too_slow])
def test_some_chunks_of_any_dataset(case: tuple[str, dict[str, Any], list[tuple[int, ...]]]) -> None:
    libver, arguments, written = case

    def write(dset: h5py.Dataset) -> None:
        for number, place in enumerate(written):
            dset[tuple(at * step for at, step in zip(place, arguments["chunks"], strict=True))] = number + 1

    data = make_file(libver, write, **arguments)
    layout, records = open_layout(data)[0], read_records(data)
    assert_hdf5_finds(data, records)
    assert sorted(written) == list(map(tuple, records.scaled.tolist()))
    if len(records) and layout.kind is not IndexKind.SINGLE:
        again = written_again(data)
        assert_same(read_records(again), records)
        assert_hdf5_finds(again, records)


def test_far_chunks_of_an_extensible_array_are_in_pages() -> None:
    """Data blocks of more than 1,024 elements begin at chunk 131,060."""
    places = [0, 3, 4, 5000, 131_059, 131_060, 133_107, 133_108, 190_000, 262_131, 262_132, 299_999]

    def write(dset: h5py.Dataset) -> None:
        for place in places:
            dset[place] = place + 1

    data = make_file(NEW, write, shape=(300_000,), chunks=(1,), maxshape=(None,), dtype="<i4")
    records = read_records(data)
    assert records.scaled[:, 0].tolist() == places
    assert_hdf5_finds(data, records)
    again = written_again(data)
    assert_same(read_records(again), records)
    assert_hdf5_finds(again, records)
    with open_image(again) as file:
        values = file["d"][...]
    assert np.flatnonzero(values).tolist() == places
    assert (values[places] == np.array(places) + 1).all()


@pytest.mark.parametrize("kind", [kind for kind in IndexKind if kind is not IndexKind.IMPLICIT])
def test_nothing_is_planned_or_read_of_a_dataset_without_chunks(kind: IndexKind) -> None:
    layout = make_layout(kind, (4, 5), 0, False)
    plan = plan_chunk_index(layout, np.zeros((0, 2), np.uint64))
    records = load(replace(layout, address=None), (9, 9), b"")
    assert plan.encode(0, records) == b""
    assert (plan.size, len(records), records.scaled.shape) == (0, 0, (0, 2))


@pytest.mark.parametrize(
    "kind", [kind for kind in IndexKind if kind not in (IndexKind.IMPLICIT, IndexKind.SINGLE)]
)
def test_records_may_come_in_any_order_and_those_beyond_the_extent_are_left_out(kind: IndexKind) -> None:
    counts = (30, 50)
    layout = make_layout(kind, counts, 0, True)
    records = make_records(layout, choose_scaled(counts, 0.5))
    order = np.random.default_rng(1).permutation(len(records))
    data = store(layout, records.take(order))
    assert data == store(layout, records)
    assert_same(load(layout, extent_of(layout, counts), data), records)
    smaller = (11, 29)
    inside = (records.scaled < np.array(smaller, np.uint64)).all(1)
    assert_same(load(layout, extent_of(layout, smaller), data), records.take(inside))


def test_chunks_that_cannot_be_there_are_not_planned() -> None:
    layout = make_layout(IndexKind.FIXED_ARRAY, (4, 5), 0, False)
    with pytest.raises(BadRequest, match="same coordinates"):
        plan_chunk_index(layout, np.array([[1, 2], [0, 0], [1, 2]], np.uint64))
    with pytest.raises(BadRequest, match="maximum of 5 chunks in dimension 1"):
        plan_chunk_index(layout, np.array([[1, 2], [0, 5]], np.uint64))
    with pytest.raises(BadRequest, match="implicit"):
        plan_chunk_index(replace(layout, kind=IndexKind.IMPLICIT), np.zeros((1, 2), np.uint64))
    with pytest.raises(BadRequest, match="cannot have chunk index type 3"):
        plan_chunk_index(replace(layout, max_dims=(12, None)), np.zeros((1, 2), np.uint64))


@pytest.mark.parametrize("name", CASES)
def test_index_information_is_libhdf5s(name: str) -> None:
    libver, _, arguments = CASES[name]
    for filters in ({}, {"compression": 1}):
        data = make_file(libver, fill, dtype="<i4", **arguments, **filters)
        layout = open_layout(data)[0]
        assert index_info(layout, read_records(data)) == layout.info


def test_an_index_of_another_kind_of_chunks_is_corrupt() -> None:
    data = make_file(NEW, fill, dtype="<i4", shape=(50,), chunks=(2,), maxshape=(None,))
    layout, extent, _, _ = open_layout(data)
    for other in (
        replace(layout, filtered=True),
        replace(layout, sections=2),
        replace(layout, kind=IndexKind.FIXED_ARRAY),
        replace(layout, kind=IndexKind.BTREE_V2),
        replace(layout, kind=IndexKind.BTREE_V1),
        replace(layout, max_dims=(50,)),
        replace(layout, max_dims=(None, None)),
        replace(layout, chunk=(0,)),
        replace(layout, chunk=(2, 2), max_dims=(50, None)),
    ):
        with pytest.raises(Corrupt):
            run_reads(read_chunk_index(other, extent, len(data)), fetch_from(data))


@pytest.mark.parametrize(("kind", "most"), [(IndexKind.FIXED_ARRAY, 40), (IndexKind.EXTENSIBLE_ARRAY, 12)])
@given(
    data=st.data(),
    structure=structures,
    revision=revisions,
    share=st.floats(0, 1),
    seed=st.integers(0, 2**32),
)
def test_records_come_back(
    kind: IndexKind,
    most: int,
    data: st.DataObject,
    structure: tuple[int, bool],
    revision: FormatRevision,
    share: float,
    seed: int,
) -> None:
    counts = tuple(data.draw(st.lists(st.integers(1, most), min_size=1, max_size=3)))
    layout = replace(make_layout(kind, counts, *structure), revision=revision)
    stored = stored_and_loaded(layout, counts, share, seed)
    assert stored[44:46] == bytes((layout.block_version, layout.client))
