"""The implicit index: chunks that libhdf5 allocated at creation."""

from __future__ import annotations

from dataclasses import replace

import h5py
import numpy as np
import pytest

from hsparse.errors import Corrupt
from hsparse.format.hdf5.file_bounds import FileBounds
from hsparse.format.hdf5.implicit_index import implicit_records
from hsparse.format.hdf5.index_kind import IndexKind
from tests.format.hdf5.host_file import assert_hdf5_finds, make_file, open_layout, read_records


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
        with pytest.raises(Corrupt, match="sizes vary"):
            implicit_records(other, (4,), address, FileBounds(end))
