"""The structures of a file, made by hand or planned, and what is refused of them."""

from __future__ import annotations

import ctypes
import struct
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import Corrupt, HsparseError, Unsupported
from hsparse.format.codec_library import lookup3
from hsparse.format.dataspace_message import ByteReader
from hsparse.hdf5.format.btree_v2 import BtreeV2Shape, read_btree_v2, split_records
from hsparse.hdf5.format.chunk_indexes.index_registry import read_chunk_index
from hsparse.hdf5.format.file_fields import (
    Addressed,
    ByteRange,
    Reads,
    Widths,
    concurrently,
    decode_name,
    encode_name,
    open_block,
    seal_block,
    seal_page,
)
from hsparse.hdf5.format.fractal_heap import FractalHeap, read_fractal_heap, read_heap_objects
from hsparse.hdf5.format.global_heap import GlobalHeap, encode_global_heap, read_global_heap
from hsparse.hdf5.format.hdf5_file import FileBounds, Hdf5File
from hsparse.hdf5.format.object_header import ObjectHeader, read_object_header
from hsparse.hdf5.format.plan.file_plan import FilePlan
from hsparse.hdf5.format.plan.planned_object import PlannedGroup, plan_file
from hsparse.hdf5.format.plan.planned_structures import MAX_LEAF, plan_btree_v2, plan_fractal_heap
from hsparse.hdf5.format.superblock import SIZE_2, decode_chunk_k, encode_superblock
from tests.format.hdf5.h5py_files import LIBRARIES, FileBytes, needs_library, walk
from tests.format.hdf5.index_files import BOUNDS, open_layout


@pytest.mark.parametrize(("libver", "version"), [("earliest", 0), ("v108", 2), ("v110", 3), ("latest", 3)])
def test_superblocks_of_every_version(tmp_path: Path, libver: str, version: int) -> None:
    path = tmp_path / "f.h5"
    with h5py.File(path, "w", libver=libver) as file:
        root = h5py.h5o.get_info(file.id).addr
    found = FileBytes(path.read_bytes()).open()
    assert (found.version, found.root, found.base) == (version, root, 0)


def test_a_superblock_of_version_1(tmp_path: Path) -> None:
    path = tmp_path / "f.h5"
    h5py.File(path, "w", libver="earliest", userblock_size=1024).close()
    data = bytearray(path.read_bytes())
    data[1024 + 8] = 1
    data[1024 + 24 : 1024 + 24] = bytes((32, 0, 0, 0))  # the chunk B-tree's rank, that version 0 has not
    found = FileBytes(bytes(data)).open()
    assert (found.version, found.root, found.base) == (1, 96, 1024)


def test_damaged_superblocks() -> None:
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
def test_damaged_sizes_of_nodes(message: bytes, complaint: str) -> None:
    with pytest.raises(Corrupt, match=complaint):
        decode_chunk_k(ByteReader(memoryview(message + bytes(4)), subject="superblock extension"))


def read(data: bytes, address: int = 0) -> ObjectHeader:
    return FileBytes(data).run(read_object_header(Hdf5File(len(data), 0, Widths(), 0, 2), address))


def old(kind: int, data: bytes, flags: int = 0) -> bytes:
    return struct.pack("<HHB3x", kind, len(data), flags) + data


def new(kind: int, data: bytes, flags: int = 0) -> bytes:
    return struct.pack("<BHB", kind, len(data), flags) + data


def old_header(body: bytes) -> bytes:
    return struct.pack("<BxHIII", 1, 3, 7, len(body), 0) + body


def new_header(body: bytes) -> bytes:
    return seal_page(b"OHDR\2\0" + bytes((len(body),)) + body)


def found(header: ObjectHeader) -> list[tuple[int, bytes]]:
    return [(message.kind, bytes(message.data)) for message in header.messages]


def test_continuations_of_version_1() -> None:
    first = old_header(old(0x10, struct.pack("<QQ", 200, 32)) + old(1, b"eight_by"))
    data = first.ljust(200, b"\0") + old(0x10, struct.pack("<QQ", 300, 16)) + bytes(8)
    header = read(data.ljust(300, b"\0") + old(5, b"the_last"))
    assert found(header) == [(1, b"eight_by"), (5, b"the_last")]
    assert (header.version, header.references) == (1, 7)


def test_continuations_of_version_2() -> None:
    block = seal_page(b"OCHK" + new(3, b"more") + bytes(3))
    data = new_header(new(0x10, struct.pack("<QQ", 100, len(block))) + new(0, b"gap") + new(1, b"first"))
    assert found(read(data.ljust(100, b"\0") + block)) == [(1, b"first"), (3, b"more")]


def test_a_header_that_continues_in_itself() -> None:
    data = old_header(old(0x10, struct.pack("<QQ", 0, 40)))
    with pytest.raises(Corrupt, match="object header at address 0 leads to address 0 twice"):
        read(data)
    data = old_header(old(0x10, struct.pack("<QQ", 48, 24)) + bytes(8))
    with pytest.raises(Corrupt, match="address 48 twice"):
        read(data + old(0x10, struct.pack("<QQ", 48, 24)))


def test_a_message_that_must_be_known() -> None:
    with pytest.raises(Unsupported, match="message of the unknown type 0x30"):
        read(new_header(new(0x30, b"", 0x80)))
    assert found(read(new_header(new(0x30, b"", 0x08)))) == [(0x30, b"")]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\2" + bytes(20), "begins with 2"),
        (b"OHDR\3" + bytes(20), "checksum|version 3"),
        (old_header(old(1, b"eight_by"))[:-1], "the file ends at"),
        (old_header(old(1, b"eight_by")[:-4]), "ends inside its message of type 0x01"),
        (old_header(old(0x10, struct.pack("<QQ", 10**6, 100))), "continuation at address 1000000"),
        (old_header(old(0x10, b"\xff" * 16)), "continues at address None"),
        (new_header(new(1, b"x"))[:-1] + b"x", "has checksum"),
        (b"OHDR", "the file ends at"),
    ],
)
def test_damaged_object_headers(data: bytes, words: str) -> None:
    with pytest.raises(Corrupt, match=words):
        read(data)


@given(st.binary().filter(lambda data: b"\0" not in data))
def test_any_bytes_of_a_name_come_back(data: bytes) -> None:
    assert encode_name(decode_name(data)) == data


BLOCK = seal_block(b"FAHD", 1, 2, b"some", b"thing")


def test_the_golden_header_has_this_checksum() -> None:
    data = bytes.fromhex("46414844 0102120a 0a00000000000000 df00000000000000 9b54ee2f")
    assert seal_page(data[:-4]) == data
    assert bytes(open_block(data, b"FAHD", 2, "header")) == data[6:-4]


def test_every_changed_byte_is_found() -> None:
    for place in range(len(BLOCK)):
        damaged = bytearray(BLOCK)
        damaged[place] ^= 1
        with pytest.raises(Corrupt, match="The block at 7"):
            open_block(bytes(damaged), b"FAHD", 2, "block at 7")


@pytest.mark.parametrize(
    ("block", "words"),
    [
        (seal_block(b"FADB", 1, 2), "begins with b'FADB', not with b'FAHD'"),
        (seal_block(b"FAHD", 2, 2), "version 2; 0 and 1 exist"),
        (seal_block(b"FAHD", 1, 3), "records of type 3; the dataset's are of type 2"),
    ],
)
def test_another_block_is_corrupt(block: bytes, words: str) -> None:
    with pytest.raises(Corrupt, match=words):
        open_block(block, b"FAHD", 2, "block")


DATA = bytes(range(100)) * 2
FILE = Hdf5File(len(DATA), 50, Widths(), 0, 2)


def length(start: ByteReader) -> int:
    return start.data[0]


def test_no_place_is_walked_twice() -> None:
    source = FileBytes(DATA)
    walk = FILE.walk("tree")
    with pytest.raises(Corrupt, match="The tree leads to address 8 twice"):
        source.run(concurrently(walk.read(8, 1, "node") for _ in range(10**6)))
    assert not source.steps


def test_structures_do_not_overlap() -> None:
    source = FileBytes(DATA)
    walk = FILE.walk("tree")
    with pytest.raises(Corrupt, match="parts that overlap, the one at address 2"):
        source.run(concurrently(walk.read(address, 90, "node") for address in range(10)))
    assert not source.steps
    walk = FILE.walk("tree")
    with pytest.raises(Corrupt, match="parts that overlap"):
        source.run(concurrently(walk.read_sized(address, 1, 1, length, "node") for address in range(20)))
    assert source.bytes_read < 2 * len(DATA)


def test_a_block_lies_in_the_file() -> None:
    assert FileBounds(100).block(60, 40, "block") == ByteRange(60, 40)
    assert FileBounds(100, 512).block(60, 40, "block") == ByteRange(572, 40)
    for address, size in ((60, 41), (101, 0), (2**64 - 1, 8)):
        with pytest.raises(Corrupt, match=f"The block at {address} has {size} bytes and ends beyond"):
            FileBounds(100).block(address, size, "block")


def test_a_reader_is_sent_the_bytes_of_each_range_in_order() -> None:
    def two() -> Reads[bytes]:
        one, other = yield (ByteRange(10, 2), ByteRange(3, 1))
        return bytes(one) + bytes(other)

    assert FileBytes(DATA).run(two()) == bytes([10, 11, 3])


def read_heap(data: bytes) -> GlobalHeap:
    file = Hdf5File(len(data), 0, Widths(), 0, 2)
    return FileBytes(data).run(read_global_heap(file.walk("heap"), 0))


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (0, 7, "begins with"),
        (4, 2, "version 2"),
        (16, 2, "two objects 2"),
        (30, 1, "ends inside the object 1"),
        (12, 1, "the file ends at"),
    ],
)
def test_damaged_global_heaps(place: int, value: int, words: str) -> None:
    data = bytearray(encode_global_heap([b"a" * 8, b"b"]))
    data[place] = value
    with pytest.raises(Corrupt, match=words):
        read_heap(bytes(data))


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


def read_objects(source: FileBytes, heap: FractalHeap, ids: list[memoryview]) -> list[bytes]:
    return [bytes(data) for data in source.run(read_heap_objects(heap, ids))]


def test_tiny_objects() -> None:
    source, heap, _ = opened()
    assert read_objects(source, heap, [memoryview(b"\x22abc" + bytes(4))]) == [b"abc"]
    long = replace(heap, id_length=40)
    assert read_objects(source, long, [memoryview(b"\x20\x1d" + b"y" * 38)]) == [b"y" * 30]
    with pytest.raises(Corrupt, match="tiny object of 16 bytes"):
        read_objects(source, heap, [memoryview(b"\x2f" + bytes(7))])


def test_huge_objects_by_address() -> None:
    source, heap, _ = opened()
    direct = replace(heap, id_length=17)
    assert read_objects(source, direct, [memoryview(b"\x10" + struct.pack("<QQ", 0, 8))]) == [
        b"\x89HDF\r\n\x1a\n"
    ]
    with pytest.raises(Corrupt, match="huge object at address 10 has"):
        read_objects(source, direct, [memoryview(b"\x10" + struct.pack("<QQ", 10, 10**9))])
    with pytest.raises(Corrupt, match="no B-tree of them"):
        read_objects(source, replace(heap, huge_tree=None), [memoryview(b"\x10" + bytes(7))])
    with pytest.raises(Corrupt, match="no huge object 10"):
        read_objects(source, heap, [memoryview(b"\x10" + bytes(7))])


def test_objects_that_are_larger_than_the_file() -> None:
    source, heap, ids = opened()
    with pytest.raises(Corrupt, match="larger than the file"):
        read_objects(source, heap, ids[2:3] * 200)


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
        read_objects(source, heap, [memoryview(id)])


@pytest.mark.parametrize(
    ("place", "value", "error", "words"),
    [
        (7, 20, Unsupported, "has filters"),
        (110, 3, Corrupt, "no powers of two"),
        (128, 70, Corrupt, "invalid size: 70 bits"),
        (5, 3, Corrupt, "ids of 3 bytes"),
    ],
)
def test_headers_of_heaps_that_are_refused(
    place: int, value: int, error: type[HsparseError], words: str
) -> None:
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
        read_objects(wide, odd, ids)


@pytest.mark.parametrize(("count", "depth"), [(0, 0), (84, 0), (85, 1), (5269, 1), (5270, 2)])
def test_the_lowest_tree_is_chosen(count: int, depth: int) -> None:
    assert BtreeV2Shape.holding(count, 2048, 24).depth == depth


@pytest.mark.parametrize(
    "sizes", [(0, 24, 0), (33, 24, 0), (40, 24, 1), (2048, 24, 65535), (2**32 - 1, 1, 9)]
)
def test_a_tree_without_room_or_end_is_corrupt(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(Corrupt, match="cannot have nodes"):
        BtreeV2Shape.of(*sizes)


KIND = 6


def planned_tree(count: int) -> tuple[bytearray, FilePlan]:
    records = [Addressed(number.to_bytes(15, "big")) for number in range(count)]
    plan = plan_file([PlannedGroup("root")], "root", plan_btree_v2("t", KIND, records))
    return bytearray(plan.read(0, plan.size)), plan


def read_tree(data: bytes, plan: FilePlan, kind: int = KIND) -> list[int]:
    source = FileBytes(data)
    file = source.open()
    records = source.run(read_btree_v2(file.bounds, file.widths, plan.address_of(("t", KIND)), kind))
    return [int.from_bytes(record, "big") for record in split_records(records)]


def sealed(data: bytearray, start: int, size: int) -> bytes:
    """Return the bytes with the checksum at the end of a structure made right."""
    data[start + size - 4 : start + size] = lookup3(bytes(data[start : start + size - 4])).to_bytes(
        4, "little"
    )
    return bytes(data)


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (5, 5, "records of type 5"),
        (10, 0, "with records of 0"),
        (13, 1, "depth 256"),
        (24, 9, "10 records of 15 bytes, 9 in its root"),
        (31, 1, "records of 15 bytes, 10 in its root"),
    ],
)
def test_headers_of_trees_that_are_refused(place: int, value: int, words: str) -> None:
    data, plan = planned_tree(10)
    start = plan.address_of(("t", KIND))
    data[start + place] = value
    with pytest.raises(Corrupt, match=words):
        read_tree(sealed(data, start, 38), plan)


def test_a_tree_without_a_root() -> None:
    data, plan = planned_tree(10)
    start = plan.address_of(("t", KIND))
    data[start + 16 : start + 24] = b"\xff" * 8
    with pytest.raises(Corrupt, match="node without address"):
        read_tree(sealed(data, start, 38), plan)
    data[start + 24 : start + 34] = bytes(10)
    assert read_tree(sealed(data, start, 38), plan) == []


def test_a_child_that_is_there_twice() -> None:
    data, plan = planned_tree(2 * MAX_LEAF + 1)
    start = plan.address_of(("t", KIND, 0))
    pointers = start + 6 + 15
    data[pointers + 10 : pointers + 20] = data[pointers : pointers + 10]
    with pytest.raises(Corrupt, match="twice"):
        read_tree(sealed(data, start, 6 + 15 + 20 + 4), plan)
