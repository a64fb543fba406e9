"""Files whose v1 B-trees have nodes of other sizes than usual, as libhdf5 makes them when it is told."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from hsparse.errors import Corrupt
from hsparse.format.dataspace_message import Reader
from hsparse.format.hdf5.btree_k_message import check_chunk_k, decode_chunk_k
from hsparse.format.hdf5.chunk_index import read_index
from tests.format.hdf5.file_walk import FileBytes, walk
from tests.format.hdf5.host_file import BOUNDS, open_layout

LIBRARIES = list((Path(h5py.__file__).parent.parent / "h5py.libs").glob("libhdf5-*"))
needs_library = pytest.mark.skipif(not LIBRARIES, reason="h5py was not installed with a libhdf5 of its own")


def make_file(path: Path, libver: str, chunk_k: int, group_k: int) -> None:
    """Make a file of 300 links and a dataset `d` of 150 chunks, with so many entries to each side of a node."""
    library = ctypes.CDLL(str(LIBRARIES[0]))  # h5py has no call for it
    creation, access = h5py.h5p.create(h5py.h5p.FILE_CREATE), h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    access.set_libver_bounds(*BOUNDS[libver])
    assert library.H5Pset_istore_k(ctypes.c_int64(creation.id), chunk_k) == 0
    assert library.H5Pset_sym_k(ctypes.c_int64(creation.id), group_k, group_k) == 0
    with h5py.File(h5py.h5f.create(str(path).encode(), h5py.h5f.ACC_TRUNC, creation, access)) as file:
        file.create_dataset("d", data=np.arange(300), chunks=(2,))
        for number in range(300):
            file[f"g{number}"] = h5py.SoftLink("/d")


@needs_library
@pytest.mark.parametrize(("libver", "version"), [("earliest", 1), ("old", 2)])
@pytest.mark.parametrize("k", [1, 2, 31, 33, 700])
def test_nodes_of_other_sizes(tmp_path: Path, libver: str, version: int, k: int) -> None:
    path = tmp_path / "f.h5"
    make_file(path, libver, k, max(2, k))
    data = path.read_bytes()
    source = FileBytes(data)
    file = source.open()
    assert (file.version, file.chunk_k) == (version, k)
    assert len(walk(data)["/"].links) == 301
    layout, extent, _, _ = open_layout(data)
    records = source.run(read_index(replace(layout, k=file.chunk_k), extent, len(data)))
    values = [np.frombuffer(data, "<i8", 2, address) for address in records.address.tolist()]
    np.testing.assert_array_equal(np.concatenate(values), np.arange(300))


@pytest.mark.parametrize(("message", "complaint"), [(b"\1\5\0", "version 1"), (b"\0\0\0", "no entries")])
def test_corrupt(message: bytes, complaint: str) -> None:
    with pytest.raises(Corrupt, match=complaint):
        decode_chunk_k(Reader(memoryview(message + bytes(4)), thing="superblock extension"))


def test_what_no_superblock_says() -> None:
    assert check_chunk_k(3, "superblock at byte 0") == 3
    with pytest.raises(Corrupt, match="superblock at byte 0 says that nodes"):
        check_chunk_k(0, "superblock at byte 0")
