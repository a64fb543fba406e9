"""Objects of files that libhdf5 wrote, compared with what it says of them, and planned again."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

import h5py
import numpy as np
import pytest

from hsparse.errors import Corrupt, HsparseError, NotFound, Unsupported
from hsparse.format.codec_library import lookup3
from hsparse.format.selections.selection_encoding import encode_simple
from hsparse.format.selections.serialized_selection import AllElements, Regular
from hsparse.hdf5.format.global_heap import encode_global_heap
from hsparse.hdf5.format.messages.group_messages import StoredHardLink
from hsparse.hdf5.format.messages.layout_message import (
    ChunkedLayout,
    VirtualLayoutMessage,
)
from hsparse.hdf5.format.parse.dataset_chunks import find_dataset, read_dataset_chunks
from hsparse.hdf5.format.parse.parsed_object import ObjectKind, parse_object
from hsparse.hdf5.format.parse.virtual_mapping import (
    VirtualMapping,
    block_name,
    parse_external_files,
    parse_virtual_mappings,
)
from tests.cli.importer.virtual_files import VIRTUAL
from tests.format.hdf5.h5py_files import (
    LIBVERS,
    FileBytes,
    compare,
    reader,
    walk,
    write_everything,
    write_types,
)
from tests.support.endurance import repeats


@pytest.mark.parametrize("track_order", [False, True])
@pytest.mark.parametrize("libver", LIBVERS)
def test_everything(tmp_path: Path, libver: str, track_order: bool) -> None:
    path = tmp_path / "f.h5"
    with h5py.File(path, "w", libver=libver, track_order=track_order) as file:
        write_everything(file, track_order)
    found = compare(path)
    assert found["/typed"].dataset is not None
    assert found["/typed"].dataset.committed == found["/type"].header.address
    assert {one.kind for one in found.values()} == set(ObjectKind)


@pytest.mark.endurance
@pytest.mark.parametrize("track_order", [False, True])
@pytest.mark.parametrize("libver", LIBVERS)
def test_thousands(tmp_path: Path, libver: str, track_order: bool) -> None:
    path = tmp_path / "f.h5"
    links, attributes = (
        repeats(4000, short=1500),
        repeats(2000, short=700),
    )  # trees of three levels in short, too
    with h5py.File(path, "w", libver=libver, track_order=track_order) as file:
        group = file.create_group("g")
        for number in range(links):
            group[f"link {number * 7919 % links}"] = h5py.SoftLink("/" + "x" * (number % 300))
        for number in range(attributes):
            group.attrs[f"a{number * 7919 % attributes}"] = "v" * (number % 50)
        group.attrs["huge"] = np.arange(6000) if libver == "earliest" else np.arange(60000)
    assert len(compare(path)["/g"].links) == links
    source = FileBytes(path.read_bytes())
    file = source.open()
    source.steps = 0
    address = next(
        link.target.address
        for link in source.run(parse_object(file, file.root)).links
        if isinstance(link.target, StoredHardLink)
    )
    source.run(parse_object(file, address))
    assert source.steps < 40  # many pieces are asked for at once
    assert source.bytes_read < 2 * len(source.data)


@pytest.mark.parametrize("widths", [(4, 4), (8, 4), (2, 2)])
def test_other_widths(tmp_path: Path, widths: tuple[int, int]) -> None:
    path = tmp_path / "f.h5"
    plist = h5py.h5p.create(h5py.h5p.FILE_CREATE)
    plist.set_sizes(*widths)
    plist.set_userblock(512)
    with h5py.File(h5py.h5f.create(str(path).encode(), h5py.h5f.ACC_TRUNC, plist)) as file:
        group = file.create_group("g")
        if widths[1] == 2:  # of dense attributes libhdf5 itself cannot read the heap then
            group.attrs["texts"] = ["one", "", "three"]
        else:
            write_types(group)
            for name in (
                ("region", "pieces", "object", "mixed") if widths[0] < 8 else ()
            ):  # which libhdf5 itself cannot follow then
                del group.attrs[name]
        file.create_dataset("d", (3,), "i4", chunks=(2,), maxshape=(9,))
    compare(path)


NETCDF = """
import sys, netCDF4
with netCDF4.Dataset(sys.argv[1], "w") as file:
    file.createDimension("time")
    file.createDimension("größe", 3)
    variable = file.createGroup("g").createVariable("v", "f4", ("time", "größe"), zlib=True, fill_value=-1)
    variable.units = "m"
    variable[0:2] = [[1, 2, 3], [4, 5, 6]]
    file.createVariable("s", str, ("größe",))
"""


def test_a_netcdf_file(tmp_path: Path) -> None:
    path = tmp_path / "f.nc"
    # in a process of its own: netCDF4 has another libhdf5, and changes where h5py's looks for filters
    subprocess.run([sys.executable, "-c", NETCDF, str(path)], check=True)
    found = compare(path)
    assert {"DIMENSION_LIST", "units", "_FillValue"} <= {one.name for one in found["/g/v"].attributes}


def test_a_comment(tmp_path: Path) -> None:
    path = tmp_path / "f.h5"
    with h5py.File(path, "w") as file:
        h5py.h5o.set_comment(file.create_group("g").id, b"some words")
    assert walk(path)["/g"].comment == "some words"


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_chunks_are_where_h5py_finds_them(libver: str) -> None:
    held = io.BytesIO()
    with h5py.File(held, "w", libver=libver) as file:
        dataset = file.create_dataset(
            "a/b", data=np.arange(1000), chunks=(70,), compression="gzip", maxshape=(None,)
        )
        file["soft"] = h5py.SoftLink("/a/b")
        info = [dataset.id.get_chunk_info(number) for number in range(dataset.id.get_num_chunks())]
    data = held.getvalue()
    source = FileBytes(data)
    opened = source.open()
    found = source.run(find_dataset(opened, "/a/b"))
    assert isinstance(found.layout, ChunkedLayout)
    records = source.run(read_dataset_chunks(opened, found, found.layout))
    places = zip(records.scaled[:, 0].tolist(), records.address.tolist(), records.size.tolist(), strict=True)
    assert sorted(places) == sorted((one.chunk_offset[0] // 70, one.byte_offset, one.size) for one in info)
    for path in ("/", "/a", "/none", "/soft", "/a/b/c"):
        with pytest.raises(NotFound):
            source.run(find_dataset(opened, path))


def test_external_files(tmp_path: Path) -> None:
    path = tmp_path / "f.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset(
            "d", (10,), "i4", external=[("one.bin", 4, 20), ("two.bin", 0, h5py.h5f.UNLIMITED)]
        )
    dataset = walk(path)["/d"].dataset
    assert dataset is not None
    assert [(one.name, one.offset, one.size) for one in dataset.external] == [
        ("one.bin", 4, 20),
        ("two.bin", 0, None),
    ]


def test_corrupt_external_files(tmp_path: Path) -> None:
    path = tmp_path / "f.h5"
    h5py.File(path, "w").close()
    source = FileBytes(path.read_bytes())
    with pytest.raises(Corrupt, match="external files message of version 2"):
        source.run(parse_external_files(source.open(), reader(b"\2" + bytes(15))))


COUNT = 200


@lru_cache
def old_group() -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "f.h5"
        with h5py.File(path, "w", libver="earliest") as file:
            for number in range(COUNT):
                file[f"l{number}"] = h5py.SoftLink("/x")
        return path.read_bytes()


def count_links(data: bytes) -> int:
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
    data = bytearray(old_group())
    data[nodes(old_group(), 0)[0] + place] = value
    with pytest.raises(Corrupt, match=words):
        count_links(bytes(data))


def test_a_tree_that_is_its_own_child() -> None:
    data = bytearray(old_group())
    (root,) = nodes(old_group(), 1)
    data[root + 32 : root + 40] = root.to_bytes(8, "little")
    with pytest.raises(Corrupt, match=f"address {root} twice"):
        count_links(bytes(data))


def test_names_that_are_not_in_the_heap() -> None:
    data = bytearray(old_group())
    leaf = old_group().find(b"SNOD")
    data[leaf + 8 : leaf + 16] = (10**6).to_bytes(8, "little")
    with pytest.raises(Corrupt, match="has no name at offset 1000000"):
        count_links(bytes(data))
    data[leaf + 8 : leaf + 16] = bytes(8)  # the empty name that every heap begins with
    with pytest.raises(Corrupt, match="entry '' without a name or an address"):
        count_links(bytes(data))


ALL = encode_simple(3)
END = 2**64 - 1


def endless(count: int, block: int, stride: int = 1) -> bytes:
    """Return a hyperslab of version 2, as libhdf5 writes one without end."""
    return struct.pack("<IIBII4Q", 2, 2, 1, 36, 1, 0, stride, count, block)


def block_of(*mappings: bytes, version: int = 0, count: int | None = None) -> bytes:
    content = struct.pack("<BQ", version, len(mappings) if count is None else count) + b"".join(mappings)
    return content + struct.pack("<I", lookup3(content))


def parse_block(block: bytes) -> tuple[VirtualMapping, ...]:
    """Parse a block that is in a heap of a file."""
    stream = io.BytesIO()
    h5py.File(stream, "w").close()
    whole = stream.getvalue()
    source = FileBytes(whole + encode_global_heap([block]))
    return source.run(parse_virtual_mappings(source.open(), VirtualLayoutMessage(len(whole), 1)))


@pytest.mark.parametrize("topic", VIRTUAL)
def test_names_and_number_are_those_of_h5py(tmp_path: Path, topic: str) -> None:
    VIRTUAL[topic](tmp_path)
    source = FileBytes((tmp_path / "v.h5").read_bytes())
    with h5py.File(tmp_path / "v.h5") as file:
        for path, one in walk(tmp_path / "v.h5").items():
            if one.dataset is None or not isinstance(one.dataset.layout, VirtualLayoutMessage):
                continue
            found = source.run(parse_virtual_mappings(source.open(), one.dataset.layout))
            plist = file[path].id.get_create_plist()
            names = [
                (plist.get_virtual_filename(n), plist.get_virtual_dsetname(n))
                for n in range(plist.get_virtual_count())
            ]
            assert [(mapping.file, mapping.dataset) for mapping in found] == names
            for number, mapping in enumerate(found):
                space = plist.get_virtual_vspace(number)
                if isinstance(mapping.virtual, Regular) and space.is_regular_hyperslab():
                    numbers = zip(*space.get_regular_hyperslab(), strict=True)
                    assert [tuple(map(int, some)) for some in numbers] == [
                        (span.start, span.stride, span.count, span.block) for span in mapping.virtual.spans
                    ]


def test_a_virtual_dataset_that_maps_nothing() -> None:
    source = FileBytes(b"")
    assert source.run(parse_virtual_mappings(None, VirtualLayoutMessage(None, 0))) == ()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("pattern", "number", "name"),
    [
        ("s.h5", 3, "s.h5"),
        ("s%b.h5", 12, "s12.h5"),
        ("%b%%%b", 1, "1%1"),
        ("50%%", 0, "50%"),
        ("50%x", 0, "50%x"),
    ],
)
def test_patterns_of_files(pattern: str, number: int, name: str) -> None:
    assert block_name(pattern, number) == name
    mapping = VirtualMapping(pattern, "d", AllElements(), AllElements())
    assert mapping.by_blocks == ("%b" in pattern.replace("%%", ""))


def test_mappings_that_share_names() -> None:
    first, again = b"\0a.h5\0x/y\0", b"\3" + struct.pack("<QQ", 0, 0)
    found = parse_block(block_of(*(one + ALL * 2 for one in (first, again, b"\4d\0")), version=1))
    assert [(one.file, one.dataset) for one in found] == [("a.h5", "x/y"), ("a.h5", "x/y"), (".", "d")]


@pytest.mark.parametrize(
    ("block", "error", "words"),
    [
        (block_of(version=2), Unsupported, "version 2, which is not known"),
        (
            block_of(b"\1" + struct.pack("<Q", 1) + b"d" * 9 + b"\0" + ALL * 2, version=1),
            Corrupt,
            "mapping 1",
        ),
        (block_of(b"\2" + b"a" * 9 + bytes(9) + ALL * 2, version=1), Corrupt, "mapping 0"),
        (block_of(b"\x08" + b"a" * 9 + b"\0d\0" + ALL * 2, version=1), Corrupt, "flags 8"),
        (block_of()[:-1] + b"x", Corrupt, "checksum"),
        (b"\0" * 5, Corrupt, "5 bytes"),
        (block_of(count=2**40), Corrupt, "mappings"),
        (block_of(b"a" * 60 + b"\0d\0" + ALL + ALL, count=2), Corrupt, "ends inside"),
        (block_of(b"x" * 40), Corrupt, "ends inside a name"),
        (block_of(b"a\0d\0" + endless(END, 2, 5) + ALL), Corrupt, "unlimited"),
        (block_of(b"a\0d\0" + ALL + endless(END, 2, 5)), Corrupt, "unlimited"),
        (block_of(b"a%b\0d\0" + endless(END, 2, 5) * 2), Corrupt, "unlimited"),
        (block_of(b"a%b\0d\0" + ALL + ALL), Corrupt, "by block"),
        (block_of(b"a\0d\0" + endless(0, 2, 5) * 2), Corrupt, "is empty"),
        (block_of(b"a\0d\0" + endless(2, 5, 2) * 2), Corrupt, "overlaps itself"),
        (block_of(b"a\0d\0" + endless(2, END, END) * 2), Corrupt, "blocks of"),
        (block_of(b"a\0d\0" + endless(2**40, 2, 2**40) * 2), Corrupt, "blocks of"),
        (block_of(b"a\0d\0" + struct.pack("<IIBBI", 2, 3, 1, 2, 33) + bytes(400)), Corrupt, "rank 33"),
    ],
)
def test_damaged_mappings(block: bytes, error: type[HsparseError], words: str) -> None:
    with pytest.raises(error, match=words):
        parse_block(block)
