"""Superblocks of libhdf5 and our own, invalid ones, and files with other B-tree K values."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from hsparse.errors import Corrupt, Unsupported
from hsparse.format.codec_library import lookup3
from hsparse.format.dataspace_message import ByteReader
from hsparse.hdf5.format.chunk_indexes.index_registry import read_chunk_index
from hsparse.hdf5.format.superblock import SIZE_2, decode_chunk_k, encode_superblock
from tests.format.hdf5.file_walk import FileBytes, walk
from tests.format.hdf5.host_file import BOUNDS, open_layout


@pytest.mark.parametrize(("libver", "version"), [("earliest", 0), ("v108", 2), ("v110", 3), ("latest", 3)])
def test_versions(tmp_path: Path, libver: str, version: int) -> None:
    path = tmp_path / "f.h5"
    with h5py.File(path, "w", libver=libver) as file:
        root = h5py.h5o.get_info(file.id).addr
    found = FileBytes(path.read_bytes()).open()
    assert (found.version, found.root, found.base) == (version, root, 0)


def test_version_1(tmp_path: Path) -> None:
    path = tmp_path / "f.h5"
    h5py.File(path, "w", libver="earliest", userblock_size=1024).close()
    data = bytearray(path.read_bytes())
    data[1024 + 8] = 1
    data[1024 + 24 : 1024 + 24] = bytes((32, 0, 0, 0))  # the chunk B-tree's rank, that version 0 has not
    found = FileBytes(bytes(data)).open()
    assert (found.version, found.root, found.base) == (1, 96, 1024)


def test_corrupt() -> None:
    data = bytearray(encode_superblock(48, 1000))
    with pytest.raises(Corrupt, match="999 bytes, its superblock says 1000"):
        FileBytes(bytes(data) + bytes(999 - SIZE_2)).open()
    data[20] ^= 1
    with pytest.raises(Corrupt, match="superblock at byte 0 has checksum"):
        FileBytes(bytes(data) + bytes(1000)).open()


def test_widths_that_nobody_writes() -> None:
    data = bytearray(encode_superblock(48, 48))
    data[9] = 16
    data[44:] = lookup3(bytes(data[:44])).to_bytes(4, "little")
    with pytest.raises(Unsupported, match="addresses of 16 bytes"):
        FileBytes(bytes(data)).open()


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
    records = source.run(read_chunk_index(replace(layout, k=file.chunk_k), extent, len(data)))
    values = [np.frombuffer(data, "<i8", 2, address) for address in records.address.tolist()]
    np.testing.assert_array_equal(np.concatenate(values), np.arange(300))


@pytest.mark.parametrize(("message", "complaint"), [(b"\1\5\0", "version 1"), (b"\0\0\0", "no entries")])
def test_corrupt_btree_k(message: bytes, complaint: str) -> None:
    with pytest.raises(Corrupt, match=complaint):
        decode_chunk_k(ByteReader(memoryview(message + bytes(4)), subject="superblock extension"))
