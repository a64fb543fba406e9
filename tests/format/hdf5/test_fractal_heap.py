"""Heap ids of every kind, and headers that are refused. Heaps of libhdf5 are read in `test_stored_object`."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import h5py
import pytest

from hsparse.errors import Corrupt, HsparseError, Unsupported
from hsparse.format.codec_library import lookup3
from hsparse.hdf5.format.file_fields import Addressed
from hsparse.hdf5.format.fractal_heap import FractalHeap, read_fractal_heap, read_heap_objects
from hsparse.hdf5.format.hdf5_file import Hdf5File
from hsparse.hdf5.format.plan.file_plan import FilePlan
from hsparse.hdf5.format.plan.planned_object import PlannedGroup, plan_file
from hsparse.hdf5.format.plan.planned_structures import plan_fractal_heap
from tests.format.hdf5.file_walk import FileBytes, walk

OBJECTS = [b"one", b"three", b"x" * 700, b"huge" * 20_000]


def planned() -> tuple[FileBytes, Hdf5File, int, list[memoryview]]:
    """Return a file, a heap's address in it, and its objects' ids."""
    pieces, ids = plan_fractal_heap("h", [Addressed(data) for data in OBJECTS], 8)
    root = plan_file([PlannedGroup("root")], "root").pieces[1]
    plan = FilePlan([root, *pieces], "root")
    source = FileBytes(plan.read(0, plan.size))
    return source, source.open(), plan.address_of(("h", "heap")), [memoryview(id) for id in ids]


def opened() -> tuple[FileBytes, FractalHeap, list[memoryview]]:
    source, file, address, ids = planned()
    return source, source.run(read_fractal_heap(file, address)), ids


def read(source: FileBytes, heap: FractalHeap, ids: list[memoryview]) -> list[bytes]:
    return [bytes(data) for data in source.run(read_heap_objects(heap, ids))]


def test_tiny_objects() -> None:
    source, heap, _ = opened()
    assert read(source, heap, [memoryview(b"\x22abc" + bytes(4))]) == [b"abc"]
    long = replace(heap, id_length=40)
    assert read(source, long, [memoryview(b"\x20\x1d" + b"y" * 38)]) == [b"y" * 30]
    with pytest.raises(Corrupt, match="tiny object of 16 bytes"):
        read(source, heap, [memoryview(b"\x2f" + bytes(7))])


def test_huge_objects_by_address() -> None:
    source, heap, _ = opened()
    direct = replace(heap, id_length=17)
    assert read(source, direct, [memoryview(b"\x10" + struct.pack("<QQ", 0, 8))]) == [b"\x89HDF\r\n\x1a\n"]
    with pytest.raises(Corrupt, match="huge object at address 10 has"):
        read(source, direct, [memoryview(b"\x10" + struct.pack("<QQ", 10, 10**9))])
    with pytest.raises(Corrupt, match="no B-tree of them"):
        read(source, replace(heap, huge_tree=None), [memoryview(b"\x10" + bytes(7))])
    with pytest.raises(Corrupt, match="no huge object 10"):
        read(source, heap, [memoryview(b"\x10" + bytes(7))])


def test_objects_that_are_larger_than_the_file() -> None:
    source, heap, ids = opened()
    with pytest.raises(Corrupt, match="larger than the file"):
        read(source, heap, ids[2:3] * 200)


@pytest.mark.parametrize("libver", ["v108", "latest"])
def test_huge_objects_by_key(tmp_path: Path, libver: str) -> None:
    path = tmp_path / "f.h5"
    with h5py.File(path, "w", libver=libver) as file:
        for number in range(5):
            file.attrs[f"a{number}"] = [number] * 20_000
    attributes = walk(path)["/"].attributes
    expected = [struct.pack("<q", number) * 20_000 for number in range(5)]
    assert [one.data for one in attributes] == expected


@pytest.mark.parametrize(
    ("id", "words"),
    [
        (b"\x40" + bytes(7), "has an invalid id: 40"),
        (b"\x30" + bytes(7), "has an invalid id: 30"),
        (b"\x00" * 7, "has an invalid id: 00"),
        (struct.pack("<BI", 0, 3) + b"\5\0\0", "no object of 5 bytes at 3"),
        (struct.pack("<BI", 0, 1000) + b"\xff\0\0", "no object of 255 bytes at 1000"),
        (struct.pack("<BI", 0, 5000) + b"\5\0\0", "no object of 5 bytes at 5000"),
    ],
)
def test_ids_that_are_none(id: bytes, words: str) -> None:
    source, heap, _ = opened()
    with pytest.raises(Corrupt, match=words):
        read(source, heap, [memoryview(id)])


@pytest.mark.parametrize(
    ("place", "value", "error", "words"),
    [
        (7, 20, Unsupported, "has filters"),
        (110, 3, Corrupt, "no powers of two"),
        (128, 70, Corrupt, "invalid size: 70 bits"),
        (5, 3, Corrupt, "ids of 3 bytes"),
    ],
)
def test_headers_that_are_refused(place: int, value: int, error: type[HsparseError], words: str) -> None:
    source, _, address, _ = planned()
    changed = bytearray(source.data)
    changed[address + place] = value
    header = bytes(changed[address : address + 142])
    changed[address + 142 : address + 146] = lookup3(header).to_bytes(4, "little")
    damaged = FileBytes(bytes(changed))
    with pytest.raises(error, match=words):
        damaged.run(read_fractal_heap(damaged.open(), address))


def test_rows_that_no_heap_has() -> None:
    source, heap, ids = opened()
    rows = 40
    block = b"FHIB\0" + struct.pack("<QI", heap.address, 0) + bytes(8 * rows * 64)
    block += lookup3(block).to_bytes(4, "little")
    wide = FileBytes(bytes(source.data) + block)
    file = wide.open()
    odd = replace(
        heap,
        file=replace(file, size=len(wide.data)),
        width=64,
        start=512,
        max_direct=512,
        root=len(source.data),
        rows=rows,
    )
    with pytest.raises(Corrupt, match="row 2 whose blocks are too small"):
        read(wide, odd, ids)
