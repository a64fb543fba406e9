"""Old-style groups that are damaged; whole ones of libhdf5 are read in `test_stored_object`."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

import h5py
import pytest

from hsparse.errors import Corrupt
from hsparse.hdf5.format.parse.parsed_object import parse_object
from tests.format.hdf5.file_walk import FileBytes

COUNT = 200


@lru_cache
def whole() -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "f.h5"
        with h5py.File(path, "w", libver="earliest") as file:
            for number in range(COUNT):
                file[f"l{number}"] = h5py.SoftLink("/x")
        return path.read_bytes()


def read(data: bytes) -> int:
    source = FileBytes(data)
    file = source.open()
    return len(source.run(parse_object(file, file.root)).links)


def nodes(data: bytes, level: int) -> list[int]:
    """Return the places of the B-tree's nodes of a level."""
    found, at = [], -1
    while (at := data.find(b"TREE\0" + bytes((level,)), at + 1)) >= 0:
        found.append(at)
    return found


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (4, 1, "version 1; only 0"),
        (5, 7, "node whose level is not 0"),
        (0, 1, r"begins with b'\\x01REE'"),
        (7, 255, "overlap|the file ends at"),
    ],
)
def test_nodes_that_are_refused(place: int, value: int, words: str) -> None:
    data = bytearray(whole())
    data[nodes(whole(), 0)[0] + place] = value
    with pytest.raises(Corrupt, match=words):
        read(bytes(data))


def test_a_tree_that_is_its_own_child() -> None:
    data = bytearray(whole())
    (root,) = nodes(whole(), 1)
    data[root + 32 : root + 40] = root.to_bytes(8, "little")
    with pytest.raises(Corrupt, match=f"address {root} twice"):
        read(bytes(data))


def test_names_that_are_not_in_the_heap() -> None:
    data = bytearray(whole())
    leaf = whole().find(b"SNOD")
    data[leaf + 8 : leaf + 16] = (10**6).to_bytes(8, "little")
    with pytest.raises(Corrupt, match="has no name at offset 1000000"):
        read(bytes(data))
    data[leaf + 8 : leaf + 16] = bytes(8)  # the empty name that every heap begins with
    with pytest.raises(Corrupt, match="entry '' without a name or an address"):
        read(bytes(data))
