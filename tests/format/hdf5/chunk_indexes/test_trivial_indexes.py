"""The single chunk's record in the layout message, and implicit indexes of libhdf5."""

from __future__ import annotations

from dataclasses import replace

import h5py
import numpy as np
import pytest

from hsparse.errors import Corrupt
from hsparse.hdf5.format.chunk_indexes.fixed_array import implicit_records, single_records
from hsparse.hdf5.format.chunk_indexes.index_layout import IndexKind
from hsparse.hdf5.format.chunk_indexes.index_registry import index_info, index_info_size
from hsparse.hdf5.format.hdf5_file import FileBounds
from tests.format.hdf5.host_file import assert_hdf5_finds, assert_same, make_file, open_layout, read_records
from tests.format.hdf5.record_cases import make_layout, make_records


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
