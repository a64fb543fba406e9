"""Superblocks of libhdf5 and our own, and what is no superblock."""

from __future__ import annotations

from pathlib import Path

import h5py
import pytest

from hsparse.errors import Corrupt, Unsupported
from hsparse.format.checksum import lookup3
from hsparse.format.hdf5.superblock import SIZE_2, encode_superblock
from tests.format.hdf5.file_walk import FileBytes


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


@pytest.mark.parametrize("version", [2, 3])
def test_our_own(version: int) -> None:
    data = encode_superblock(48, 1000, version)
    assert len(data) == SIZE_2
    found = FileBytes(data + bytes(1000 - SIZE_2)).open()
    assert (found.version, found.root, found.shared) == (version, 48, ())


def test_a_file_that_was_moved_behind_other_bytes() -> None:
    data = encode_superblock(48, 1000)
    assert FileBytes(bytes(4096) + data + bytes(1000 - SIZE_2)).open().base == 4096


@pytest.mark.parametrize("data", [b"", b"\x89HDF", bytes(10_000), bytes(100) + encode_superblock(48, 48)])
def test_no_superblock(data: bytes) -> None:
    with pytest.raises(Corrupt, match="no HDF5 file"):
        FileBytes(data).open()


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


def test_one_of_several_files(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "f%d.h5", "w", driver="family", memb_size=10_000, libver="earliest") as file:
        file["d"] = [1, 2, 3]
    with pytest.raises(Unsupported, match="one of several files"):
        FileBytes((tmp_path / "f0.h5").read_bytes()).open()
