"""Chunk indexes of all kinds: libhdf5's are read, and it reads ours and goes on with them."""

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
from hsparse.hdf5.format.chunk_indexes.index_layout import IndexKind
from hsparse.hdf5.format.chunk_indexes.index_registry import index_info, plan_chunk_index, read_chunk_index
from hsparse.hdf5.format.file_fields import run_reads
from tests.format.hdf5.host_file import (
    assert_hdf5_finds,
    assert_same,
    fetch_from,
    make_file,
    open_image,
    open_layout,
    read_records,
    replace_index,
)
from tests.format.hdf5.record_cases import (
    choose_scaled,
    extent_of,
    load,
    make_layout,
    make_records,
    revisions,
    store,
    stored_and_loaded,
    structures,
)
from tests.support.endurance import repeats

OLD, NEW, NEWEST = "old", "new", "newest"


def fill(dset: h5py.Dataset) -> None:
    dset[...] = np.arange(dset.size).reshape(dset.shape)


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
@pytest.mark.parametrize("newest", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_what_libhdf5_wrote_is_read(name: str, newest: bool, filters: dict[str, Any]) -> None:
    libver, kind, arguments = CASES[name]
    if newest and libver == NEW:
        libver = NEWEST
    data = make_file(libver, fill, dtype="<i4", **arguments, **filters)
    assert open_layout(data)[0].kind is kind
    assert_hdf5_finds(data, read_records(data))


@pytest.mark.parametrize("filters", [{}, {"compression": 1}])
@pytest.mark.parametrize("name", WRITTEN)
def test_libhdf5_reads_ours(name: str, filters: dict[str, Any]) -> None:
    libver, _, arguments = CASES[name]
    data = written_again(make_file(libver, fill, dtype="<i4", **arguments, **filters))
    assert_hdf5_finds(data, read_records(data))
    with open_image(data) as file:
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


@pytest.mark.parametrize("filters", [{}, {"compression": 1}])
@pytest.mark.parametrize(
    ("name", "widths"),
    [
        (name, widths)
        for name, (_, _, arguments) in CASES.items()
        for widths in (
            [(4, 8), (8, 8)] if None in arguments.get("maxshape", ()) else [(4, 8), (4, 4), (8, 4)]
        )
    ],
)
def test_addresses_and_lengths_of_other_widths(
    name: str, widths: tuple[int, int], filters: dict[str, Any]
) -> None:
    """Of narrow lengths only datasets with limits: libhdf5 does not know "unlimited" again when it reads it."""
    libver, kind, arguments = CASES[name]
    data = make_file(libver, fill, dtype="<i4", widths=widths, **arguments, **filters)
    records = read_records(data)
    assert_hdf5_finds(data, records)
    if kind is not IndexKind.SINGLE:
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
    with pytest.raises(BadRequest, match="same place"):
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
