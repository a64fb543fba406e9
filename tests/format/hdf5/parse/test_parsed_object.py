"""Objects of files that libhdf5 wrote, compared with what it says of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from hsparse.hdf5.format.messages.group_messages import StoredHardLink
from hsparse.hdf5.format.parse.parsed_object import ObjectKind, parse_object
from tests.format.hdf5.file_walk import FileBytes, walk
from tests.format.hdf5.h5py_judge import compare
from tests.support.endurance import repeats

LIBVERS = ["earliest", "v108", "v110", "latest"]


def write_types(group: h5py.Group) -> None:
    attrs = group.attrs
    attrs["int"] = np.int16(-3)
    attrs["float"] = np.arange(6, dtype=">f4").reshape(2, 3)
    attrs["text"] = "größe"
    attrs["texts"] = ["one", "", "three"]
    attrs["fixed"] = np.bytes_("abc")
    attrs["bool"] = np.array([True, False])
    attrs["empty"] = h5py.Empty("f4")
    attrs["none"] = np.zeros((0, 3), "u1")
    attrs["compound"] = np.array([(1, 2.5)], [("a", "i2"), ("b", "f8")])
    padded = np.dtype({"names": ["p", "q"], "formats": ["<i2", "<f8"], "offsets": [4, 16], "itemsize": 32})
    attrs["padded"] = np.array([(1, 2.5), (3, 4.5)], padded)
    attrs.create("array", np.arange(12).reshape(2, 2, 3), shape=(2, 2, 3), dtype=np.dtype(("i4", (2, 3))))
    attrs.create("enum", 700, dtype=h5py.enum_dtype({"a": -3, "b": 700}, basetype=">i2"))
    ragged = np.empty(2, object)
    ragged[:] = [np.arange(3, dtype="<i4"), np.arange(0, dtype="<i4")]
    attrs.create("ragged", ragged, dtype=h5py.vlen_dtype(np.dtype("<i4")))
    mixed = np.dtype([("s", h5py.string_dtype()), ("n", "<i4"), ("r", h5py.ref_dtype)])
    attrs.create("mixed", np.array([("x", 1, group.ref), ("yy", 2, None)], mixed), dtype=mixed)
    attrs["object"] = group.ref
    data = group.require_dataset("pointed", (8, 9), "i4")
    attrs["region"] = data.regionref[2:5, 1:4]
    attrs["pieces"] = data.regionref[1, [2, 4, 5]]
    deep = h5py.vlen_dtype(np.dtype([("s", h5py.string_dtype()), ("v", "<i2")]))
    nested = np.empty(1, object)
    nested[0] = np.array([("in", 1), ("out", 2)], [("s", h5py.string_dtype()), ("v", "<i2")])
    attrs.create("nested", nested, dtype=deep)


def write_datasets(file: h5py.File) -> None:
    file["contiguous"] = np.arange(10.0)
    file.create_dataset(
        "chunked", (30, 40), ">i2", chunks=(10, 10), shuffle=True, compression=4, fletcher32=True
    )
    file.create_dataset("lzf", (30,), "f8", chunks=(10,), compression="lzf", maxshape=(None,), fillvalue=2.5)
    file.create_dataset("text", (3,), h5py.string_dtype())
    file["scalar"] = 3
    file["null"] = h5py.Empty("i8")
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_layout(h5py.h5d.COMPACT)
    space = h5py.h5s.create_simple((5,))
    id = h5py.h5d.create(file.id, b"compact", h5py.h5t.STD_I32LE, space, plist)
    id.write(h5py.h5s.ALL, h5py.h5s.ALL, np.arange(5, dtype="i4"))
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    h5py.h5d.create(file.id, b"early", h5py.h5t.STD_I32LE, space, plist)


def write_everything(file: h5py.File, track_order: bool = False) -> None:
    write_datasets(file)
    group = file.create_group("group", track_order=track_order)
    write_types(group)
    write_types(file["contiguous"].parent)
    group["again"] = file["contiguous"]
    group["up"] = file
    group["soft"] = h5py.SoftLink("/a/b")
    group["external"] = h5py.ExternalLink("other.h5", "/p")
    group["日本"] = h5py.SoftLink("größe")
    file["type"] = np.dtype([("a", "i4"), ("b", "f8", (2,))])
    file.create_dataset("typed", (3,), dtype=file["type"])
    file["typed"].attrs.create("typed", np.zeros(2, file["type"].dtype), dtype=file["type"])
    file["type"].attrs["of"] = "a type"


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
