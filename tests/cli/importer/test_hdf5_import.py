"""Files of every kind that h5py makes, imported and compared with what h5py reads."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path
from typing import Any

import h5py
import h5pyd
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from h5py import h5t

import hsparse
from hsparse.client.connection import Connection
from hsparse.hdf5.domain_file import DomainFile
from hsparse.hdf5.format.plan.file_form import FileForm
from hsparse.hdf5.importer.dense_upload import MAX_REQUEST_BYTES
from tests.cli.importer.conftest import Import, Refused, exported, opened, value_bytes
from tests.cli.importer.domain_picture import assert_is_file
from tests.clients.hdf5_files import FILES, OPTIONS
from tests.clients.netcdf_files import NETCDF
from tests.clients.test_h5pyd_types import plain
from tests.format.hdf5.h5py_files import needs_library
from tests.format.hdf5.test_file_structures import make_file
from tests.support.programs.values import RandomTypes

LEFT_OUT = {
    "filters": "/scaleoffset: The filter scaleoffset (id 6)",
    "filter blosc2": "/x: The filter Blosc2 (id 32026)",
    "filter bzip2": "/x: The filter bzip2 (id 307)",
    "filter nbit": "/x: The filter nbit (id 5)",
    "filter szip": "/x: The filter szip (id 4)",
}
NOT_READ = {
    "numbers": "complex numbers are compounds",
    "dates": "h5json has no dtype of dates",
    "bit fields": "h5json has no dtype of them",
    "complex numbers in compounds": "these are compounds",
    "field names that are not ASCII": "h5json refuses them",
    "object references": "they are bytes",
    "references in sequences": "they are bytes",
    "region references": "those that are null are None",
    "extents": "the dtype of what is empty is spelled otherwise",
}
"""Topics whose values h5pyd 1.0.0 does not read as h5py does, and what it does instead."""


def make(topic: str, root: Path) -> Path:
    path = root / "some.h5"
    if topic in NETCDF:
        NETCDF[topic](path)
        return path
    with h5py.File(path, "w", **OPTIONS.get(topic, {})) as file:
        FILES[topic](file)
    return path


def compared(imported: Import, path: Path, *flags: str) -> Connection:
    with h5py.File(path) as file:
        away = any(isinstance(file.get(name, getlink=True), h5py.ExternalLink) for name in file)
    connection = imported(path, *flags, status=3 if away else 0)
    assert_is_file(connection, path)
    return connection


@pytest.mark.parametrize("topic", [topic for topic in (*FILES, *NETCDF) if topic not in LEFT_OUT])
def test_a_domain_has_what_the_file_has(imported: Import, tmp_path: Path, topic: str) -> None:
    path = make(topic, tmp_path)
    connection = compared(imported, path)
    if topic not in NOT_READ:
        h5pyd_reads(connection, path)


def h5pyd_reads(connection: Connection, path: Path) -> None:
    """Check that h5pyd reads from a domain what h5py reads from the file."""
    options = {"endpoint": connection.url, "username": "admin", "password": "any", "retries": 1}
    with h5py.File(path) as file, h5pyd.File(connection.domain, "r", **options) as domain:
        assert set(domain) == set(file)
        names: list[str] = []
        file.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
        for name in names:
            assert domain[name].dtype.names == file[name].dtype.names
            assert repr(plain(domain[name][()])) == repr(plain(file[name][()]))


@pytest.mark.parametrize("topic", LEFT_OUT)
def test_what_no_server_has_is_left_out_and_named(
    refused: Refused, imported: Import, tmp_path: Path, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = make(topic, tmp_path)
    with h5py.File(path, "a") as file:
        file["rest"] = [1, 2]
    connection = imported(path, status=3)
    assert f"Not imported (1):\n  {LEFT_OUT[topic]}" in capsys.readouterr().err
    assert connection.json("GET", "/datasets/", h5path="/rest")["shape"]["dims"] == [2]
    with pytest.raises(hsparse.LeftOut, match=re.escape(LEFT_OUT[topic])):
        connection.json("GET", "/", h5path=LEFT_OUT[topic].partition(":")[0])
    assert LEFT_OUT[topic] in refused(path, "--strict")


@pytest.mark.parametrize("topic", NETCDF)
def test_xarray_reads_a_domain_as_the_file(imported: Import, tmp_path: Path, topic: str) -> None:
    path = make(topic, tmp_path)
    connection = imported(path)
    options = {"endpoint": connection.url, "username": "admin", "password": "any", "retries": 1}
    with (
        xr.open_datatree(path, engine="h5netcdf") as original,
        xr.open_datatree(
            connection.domain, engine="h5netcdf", driver_kwds={"backend": "h5pyd", **options}
        ) as found,
    ):
        xr.testing.assert_identical(found, original)


@pytest.mark.parametrize("seed", range(12))
def test_random_types(imported: Import, tmp_path: Path, seed: int) -> None:
    types = RandomTypes(h5py, seed)
    with h5py.File(tmp_path / "random.h5", "w", libver=("earliest", "latest")[seed % 2]) as file:
        for number, shape in enumerate([(), (3,), (4, 5), (7, 2, 3)]):
            dtype = types.draw()
            chunks = tuple(max(1, length // 2) for length in shape) if number % 2 else None
            options: dict[str, Any] = {"chunks": chunks, "compression": "gzip"} if chunks else {}
            data = file.create_dataset(f"x{number}", shape, dtype, **options)
            values = types.values(dtype, shape)
            for place in np.ndindex(shape):  # all at once, sequences of one length are taken for a table
                data[place] = values[place]
    compared(imported, tmp_path / "random.h5")


CHUNKS = {
    "earliest": (None, None),
    "limited": ((40, 50), "latest"),
    "one unlimited": ((None, 50), "latest"),
    "two unlimited": ((None, None), "latest"),
}


@pytest.mark.parametrize("topic", CHUNKS)
@pytest.mark.parametrize("filters", [{}, {"compression": "gzip", "shuffle": True}, {"fletcher32": True}])
def test_every_index_of_chunks(imported: Import, tmp_path: Path, topic: str, filters: dict[str, Any]) -> None:
    maxshape, version = CHUNKS[topic]
    rng = np.random.default_rng(5)
    with h5py.File(tmp_path / "chunks.h5", "w", libver=version) as file:
        options = {"maxshape": maxshape, "fillvalue": 7} | filters
        made = file.create_dataset("some", (40, 50), "<i4", chunks=(7, 9), **options)
        for row, column in product(range(0, 40, 11), range(0, 50, 13)):
            made[row, column] = rng.integers(100)
        file.create_dataset("all", data=rng.integers(0, 9, (40, 50)), chunks=(40, 50), **options)
        file.create_dataset("none", (40, 50), "<f8", chunks=(10, 10), **options)
    compared(imported, tmp_path / "chunks.h5")


def test_large_chunks_are_stored_as_they_are(imported: Import, tmp_path: Path) -> None:
    data = np.random.default_rng(6).integers(0, 1000, (1000, 1200), "<i4")
    with h5py.File(tmp_path / "large.h5", "w", libver="latest") as file:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((512, 512))
        plist.set_shuffle()
        plist.set_deflate(7)
        space = h5py.h5s.create_simple(data.shape)
        h5py.h5d.create(file.id, b"x", h5py.h5t.STD_I32LE, space, plist).write(
            h5py.h5s.ALL, h5py.h5s.ALL, data
        )
        first = file["x"].id.read_direct_chunk((0, 512))
    connection = imported(tmp_path / "large.h5")
    id = connection.json("GET", "/datasets/", h5path="/x")["id"]
    assert connection.binary("GET", f"/datasets/{id}/chunks/0_1/value") == first[1]
    assert connection.binary("GET", f"/datasets/{id}/value") == data.tobytes()


def test_a_chunk_that_skipped_a_filter(imported: Import, tmp_path: Path) -> None:
    data = np.arange(512 * 1024, dtype="<i4").reshape(512, 1024)
    with h5py.File(tmp_path / "mask.h5", "w") as file:
        made = file.create_dataset("x", data.shape, "<i4", chunks=(256, 1024), compression="gzip")
        made.id.write_direct_chunk((0, 0), data[:256].tobytes(), filter_mask=1)
        made[256:] = data[256:]
    compared(imported, tmp_path / "mask.h5")


@pytest.mark.parametrize("largest", [MAX_REQUEST_BYTES, 3_000_000, 300_000])
@pytest.mark.parametrize("shape", [(3_000_000,), (1500, 1700), (3, 900, 1001), (200, 2, 7000)])
def test_contiguous_data_of_several_chunks(
    imported: Import, tmp_path: Path, shape: tuple[int, ...], largest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hsparse.hdf5.importer.dense_upload.MAX_REQUEST_BYTES", largest)
    monkeypatch.setattr("hsparse.hdf5.importer.dense_upload.BAND_BYTES", largest // 2)
    data = np.random.default_rng(8).integers(0, 250, shape, "<i8")
    with h5py.File(tmp_path / "contiguous.h5", "w") as file:
        file["x"] = data
    assert value_bytes(imported(tmp_path / "contiguous.h5"), "/x") == data.tobytes()


def test_chunks_that_the_server_does_not_take_so_large(
    imported: Import, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hsparse.hdf5.importer.object_body.MAX_CHUNK_BYTES", 1_000_000)
    monkeypatch.setattr("hsparse.hdf5.importer.file_data.LARGE_CHUNK", 1_000_000)
    data = np.arange(2_500_000, dtype="<i8")
    with h5py.File(tmp_path / "huge.h5", "w") as file:
        file.create_dataset("x", data=data, chunks=(1_700_000,), compression="gzip", compression_opts=1)
    connection = imported(tmp_path / "huge.h5")
    record = connection.json("GET", "/datasets/", h5path="/x")
    assert record["layout"]["dims"] != [1_700_000]
    assert connection.binary("GET", f"/datasets/{record['id']}/value") == data.tobytes()


def odd_types(file: h5py.File) -> dict[str, Any]:
    """Write elements of types that no server has, and return what h5py reads of them; None for bytes."""
    short, inside = h5t.STD_U16LE.copy(), h5t.STD_I32BE.copy()
    short.set_precision(12)
    inside.set_precision(12)
    inside.set_offset(5)
    brain = h5t.IEEE_F16LE.copy()
    brain.set_fields(15, 7, 8, 0, 7)
    brain.set_ebias(127)
    mixed = h5t.create(h5t.COMPOUND, 32)
    for name, place, kind in (("n", 0, short), ("long", 16, h5t.NATIVE_LDOUBLE), ("i", 4, inside)):
        mixed.insert(name.encode(), place, kind)
    array = h5t.array_create(inside, (2,))
    kinds = {"short": short, "inside": inside, "brain": brain, "mixed": mixed, "array": array}
    kinds |= {"time": h5t.UNIX_D32LE, "long": h5t.NATIVE_LDOUBLE}
    for name, kind in kinds.items():
        made = h5py.h5d.create(file.id, name.encode(), kind, h5py.h5s.create_simple((3,)))
        if name in ("short", "inside", "array"):
            numbers = np.array([[4, 3], [0, 2], [7, 1]] if name == "array" else [4, 0, 2], "<i4")
            numbers = numbers if name == "short" else -numbers
            memory = h5t.array_create(h5t.STD_I32LE, (2,)) if name == "array" else h5t.STD_I32LE
            made.write(h5py.h5s.ALL, h5py.h5s.ALL, numbers, memory)
    file["long"][...] = np.array([1.5, -2.25, 3], np.longdouble)
    file["mixed"][...] = np.array([(9, -8, 0.5)] * 3, file["mixed"].dtype.newbyteorder("="))
    file.attrs["long"] = np.longdouble(0.1)
    file.attrs.create("short", np.uint16(4095), dtype=h5py.Datatype(short))
    inside.copy().commit(file.id, b"committed")
    return {name: file[name][...] for name in ("short", "inside", "array")}


def test_types_that_no_server_has(imported: Import, tmp_path: Path) -> None:
    """Their values or bytes are there, and those that are bytes have their types again in a file."""
    with h5py.File(tmp_path / "odd.h5", "w") as file:
        expected = odd_types(file)
    connection = imported(tmp_path / "odd.h5")
    for name, values in expected.items():
        record = connection.json("GET", "/datasets/", h5path=f"/{name}")
        found = connection.binary("GET", f"/datasets/{record['id']}/value")
        assert found == values.tobytes()
    back = exported(connection, tmp_path / "back.h5")
    with h5py.File(tmp_path / "odd.h5") as one, h5py.File(back) as other:
        assert set(one) == set(other)
        for name in ("time", "long", "brain"):
            assert one[name].id.get_type() == other[name].id.get_type()
        for name in ("short", "inside", "array", "long"):
            assert np.array_equal(one[name][...], other[name][...])
        for field in ("n", "i", "long"):
            assert np.array_equal(one["mixed"][field], other["mixed"][field])
        assert one.attrs["long"] == other.attrs["long"]
        assert one.attrs["short"] == other.attrs["short"]


def itself(file: h5py.File) -> None:
    layout = h5py.VirtualLayout((4,), "i4")
    layout[:] = h5py.VirtualSource(".", "x", (4,))
    file.create_virtual_dataset("x", layout)


def odd_name(file: h5py.File) -> None:
    file.create_group("g")[b"a\xff"] = 1


def odd_attribute(file: h5py.File) -> None:
    h5py.h5a.create(file.id, b"b\xff", h5py.h5t.STD_I32LE, h5py.h5s.create(h5py.h5s.SCALAR))


@pytest.mark.parametrize(
    ("fill", "text"),
    [
        (itself, "More than 16 virtual datasets are sources of each other"),
        (odd_name, "/g: The name b'a\\xff' is not UTF-8"),
        (odd_attribute, "/: The name b'b\\xff' is not UTF-8"),
    ],
)
def test_what_cannot_be_imported_is_refused(refused: Refused, tmp_path: Path, fill: Any, text: str) -> None:
    with h5py.File(tmp_path / "refused.h5", "w") as file:
        fill(file)
    assert text in refused(tmp_path / "refused.h5", "--strict", "--copy")


def test_links_that_are_left_behind(
    imported: Import, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of a class that programs define, and external ones to files that are no domains."""
    path = tmp_path / "some.h5"
    with h5py.File(path, "w") as file:
        file["g/own"] = h5py.ExternalLink("x.h5", "/x")
        file["g/there"] = h5py.ExternalLink("there.h5", "/x")
        file["gone"] = h5py.ExternalLink("gone.h5", "/x/y")
        file["g/up"] = h5py.ExternalLink("../gone.h5", "x")
    data = path.read_bytes()
    assert data.count(b"@\x03own") == 1
    path.write_bytes(data.replace(b"@\x03own", b"\xc8\x03own"))
    url = imported(path, status=3).url
    with Connection(url, "/home/admin/there.h5") as there:
        there.json("PUT", "/", {})
        connection = imported(path, status=3)
        there.json("DELETE", "/")
    told = capsys.readouterr().err.rpartition("Not imported (1):")[2]
    assert told.startswith("\n  /g/own: The link is user-defined")
    assert "External links to files that are not imported as domains; import them too (2):" in told
    assert "/gone: /x/y in gone.h5 (looked at /home/admin/gone.h5)" in told
    assert "/g/up: x in ../gone.h5 (looked at /home/gone.h5)" in told
    id = connection.json("GET", "/groups/", h5path="/g")["id"]
    assert [one["title"] for one in connection.json("GET", f"/groups/{id}/links")["links"]] == [
        "own",
        "there",
        "up",
    ]
    assert "/g/own" in (imported(path, "--strict", status=2) and capsys.readouterr().err)


def test_text_that_is_no_utf8(imported: Import, tmp_path: Path) -> None:
    values = np.array([b"\xff\xfe", b"x", b"\xe9"], object)
    with h5py.File(tmp_path / "bytes.h5", "w") as file:
        file.create_dataset("variable", data=values, dtype=h5py.string_dtype())
        file["fixed"] = values.astype("S2")
        file.attrs.create("variable", values, dtype=h5py.string_dtype())
        file.attrs["fixed"] = values.astype("S2")
        file.create_dataset("fill", (3,), "S2", fillvalue=b"\xff")
    connection = imported(tmp_path / "bytes.h5")
    root = connection.json("GET", "/")["root"]
    packed = b"".join(len(value).to_bytes(4, "little") + value for value in values)
    for name, expected in (("variable", packed), ("fixed", values.astype("S2").tobytes())):
        id = connection.json("GET", "/datasets/", h5path=f"/{name}")["id"]
        assert connection.binary("GET", f"/datasets/{id}/value") == expected
        assert connection.binary("GET", f"/groups/{root}/attributes/{name}/value") == expected
    assert value_bytes(connection, "/fill") == b"\xff\0" * 3


@needs_library
@pytest.mark.parametrize("libver", ["earliest", "old"])
def test_nodes_of_btrees_of_another_size(imported: Import, tmp_path: Path, libver: str) -> None:
    path = tmp_path / "f.h5"
    make_file(path, libver, chunk_k=3, group_k=2)
    compared(imported, path)


def test_a_committed_type_with_an_attribute_of_another(imported: Import, tmp_path: Path) -> None:
    """Whichever comes first."""
    path = tmp_path / "f.h5"
    with h5py.File(path, "w") as file:
        for number in range(12):
            file[f"t{number:02}"] = np.dtype([("a", "<i4"), (f"b{number}", "<f8")])
        for number in range(12):
            kind = file[f"t{(number + 5) % 12:02}"]
            file[f"t{number:02}"].attrs.create("some", np.zeros((), kind.dtype), dtype=kind)
    compared(imported, path)


def test_an_order_that_is_tracked_of_nothing_yet(imported: Import, tmp_path: Path) -> None:
    path = tmp_path / "f.h5"
    with h5py.File(path, "w") as file:
        file.create_group("tracked", track_order=True)
        file.create_group("not")
    connection = imported(path)
    for name, order in (("tracked", 1), ("not", None)):
        found = connection.json("GET", "/groups/", h5path=f"/{name}")
        assert found["creationProperties"].get("CreateOrder") == order


def text_type(length: int, padding: int) -> h5py.h5t.TypeStringID:
    found = h5py.h5t.C_S1.copy()
    found.set_size(length)
    found.set_strpad(padding)
    return found


def compound_type(size: int, *fields: tuple[bytes, int, Any]) -> h5py.h5t.TypeCompoundID:
    found = h5py.h5t.create(h5py.h5t.COMPOUND, size)
    for field in fields:
        found.insert(*field)
    return found


NULLTERM, NULLPAD, SPACEPAD = range(3)
BLANKS = text_type(8, SPACEPAD)
GAPS = compound_type(16, (b"n", 0, h5py.h5t.STD_U8LE), (b"x", 8, h5py.h5t.IEEE_F64LE))
ELEMENTS = {
    "blanks": (BLANKS, b"abc     " + b" d  e   " + b"        " + b"12345678"),
    "rubbish": (text_type(8, NULLTERM), b"abc\0junk" + b"\0unk    " + b"12345678" + b"a b     "),
    "zeros": (text_type(8, NULLPAD), b"abc\0jun\0" + bytes(8) + b"12345678" + b"a  \0\0\0\0\0"),
    "array of blanks": (h5py.h5t.array_create(BLANKS, (2,)), b"ab      cd      " * 4),
    "compound of text": (
        compound_type(
            20, (b"f", 0, BLANKS), (b"c", 8, text_type(8, NULLTERM)), (b"i", 16, h5py.h5t.STD_I32LE)
        ),
        b"abc     xyz\0rub \1\0\0\0" * 4,
    ),
    "gaps": (
        GAPS,
        b"".join(bytes([number]) + bytes(7) + np.float64(number).tobytes() for number in range(4)),
    ),
    "array of gaps": (h5py.h5t.array_create(GAPS, (2,)), (b"\1" + bytes(7) + np.float64(2).tobytes()) * 8),
    "gaps in gaps": (
        compound_type(40, (b"g", 4, GAPS), (b"t", 28, text_type(8, SPACEPAD))),
        (bytes(4) + b"\1" + bytes(7) + np.float64(2).tobytes() + bytes(8) + b"abc     " + bytes(4)) * 4,
    ),
    "fields in another order": (
        compound_type(6, (b"b", 4, h5py.h5t.STD_U16LE), (b"a", 0, h5py.h5t.STD_U32BE)),
        bytes(range(24)),
    ),
    "complex": (h5py.h5t.COMPLEX_IEEE_F64LE, np.array([1 + 2j, 3, 4j, -1]).tobytes()),
    "complex in a compound": (
        compound_type(12, (b"z", 0, h5py.h5t.COMPLEX_IEEE_F32BE), (b"n", 8, h5py.h5t.STD_I32LE)),
        bytes(range(48)),
    ),
}


def write_elements(path: Path, kind: Any, data: bytes) -> None:
    """Write elements as these bytes in the file, in datasets of each layout and an attribute."""
    with h5py.File(path, "w") as file:
        bits = np.frombuffer(data, f"V{kind.get_size()}")
        for name, layout in {"chunked": {"chunks": (2,), "compression": "gzip"}, "contiguous": {}}.items():
            sample = file.create_dataset("sample", (4,), "i1", **layout)
            plist = sample.id.get_create_plist()
            made = h5py.h5d.create(file.id, name.encode(), kind, h5py.h5s.create_simple((4,)), plist)
            made.write(h5py.h5s.ALL, h5py.h5s.ALL, bits, kind)
            del file["sample"]
        h5py.h5a.create(file.id, b"attribute", kind, h5py.h5s.create_simple((4,))).write(bits, kind)


@pytest.mark.parametrize("name", ELEMENTS)
def test_elements_with_gaps_and_padding(imported: Import, tmp_path: Path, name: str) -> None:
    kind, data = ELEMENTS[name]
    path = tmp_path / "some.h5"
    write_elements(path, kind, data)
    connection = imported(path)
    found = opened(connection)
    with h5py.File(path) as file, h5py.File(exported(connection, tmp_path / "out.h5")) as copy:
        for dataset in ("chunked", "contiguous"):
            expected = file[dataset]
            assert found[dataset].dtype.itemsize == expected.dtype.itemsize
            np.testing.assert_array_equal(found[dataset][...], expected[...])
            np.testing.assert_array_equal(copy[dataset][...], expected[...])
            if not name.startswith("complex"):
                assert copy[dataset].id.get_type() == kind
        np.testing.assert_array_equal(copy.attrs["attribute"], file.attrs["attribute"])
        ours = np.asarray(found.attrs["attribute"]).astype(file.attrs["attribute"].dtype)
        np.testing.assert_array_equal(ours, file.attrs["attribute"])
        bits = np.empty(4, f"V{kind.get_size()}")
        if "complex" not in name and "rubbish" not in name and name not in ("zeros", "compound of text"):
            copy["chunked"].id.read(h5py.h5s.ALL, h5py.h5s.ALL, bits, kind)
            assert bits.tobytes() == data


FIDELITY: dict[str, dict[str, Any]] = {
    "small chunks": {"chunks": (3, 5)},
    "growing": {"chunks": (7, 20), "maxshape": (None, 20)},
    "limited": {"chunks": (2, 20), "maxshape": (90, 40), "compression": "gzip", "compression_opts": 7},
    "shuffled": {"chunks": (10, 20), "shuffle": True, "compression": "gzip", "fletcher32": True},
    "filled": {"chunks": (11, 3), "compression": "gzip", "fillvalue": 9},
    "never filled": {"chunks": (4, 4), "fill_time": "never"},
    "filled at once": {"fill_time": "alloc", "fillvalue": 3},
}


def shape_of(item: h5py.Dataset) -> list[Any]:
    """Return what a dataset is made of, besides its elements."""
    plist = item.id.get_create_plist()
    filters = [plist.get_filter(number) for number in range(plist.get_nfilters())]
    return [
        item.dtype, item.shape, item.maxshape, item.chunks, item.fillvalue, plist.get_fill_time(), filters,
        list(item.attrs),
    ]  # fmt: skip


@pytest.mark.parametrize("flags", [(), ("--filter", "gzip=1")], ids=["as it is", "filtered"])
@pytest.mark.parametrize("user_block", [0, 512, 4096])
def test_a_file_comes_out_as_it_went_in(
    imported: Import, tmp_path: Path, user_block: int, flags: tuple[str, ...]
) -> None:
    """By export, and by ranges of /files."""
    path, back, served = (tmp_path / name for name in ("in.h5", "out.h5", "served.h5"))
    with h5py.File(path, "w", userblock_size=user_block, track_order=True) as file:
        for name, options in FIDELITY.items():
            file.create_dataset(name, data=np.arange(600).reshape(30, 20), track_order=True, **options)
        file.create_dataset("part", (100, 100), "i4", chunks=(9, 10))[50:60, 3] = 4
        file["text"] = ["a", "bc", ""] * 9
        file["text"].attrs["ref"] = file["part"].ref
        for name in ("z", "a", "m"):
            file["growing"].attrs[name] = file.attrs[name] = 1
    head = b"MATLAB 7.3 MAT-file".ljust(user_block, b" ")[:user_block]
    if user_block:
        path.write_bytes(head + path.read_bytes()[user_block:])
    connection = imported(path)
    exported(connection, back, *flags)
    domain = DomainFile(connection, str(connection.domain), FileForm())
    size, etag = domain.state()
    whole = b"".join(domain.read(at, min(size, at + 7001), etag) for at in range(0, size, 7001))
    served.write_bytes(whole)
    assert back.read_bytes()[:user_block] == whole[:user_block] == head
    for other in [served] if flags else [back, served]:
        with h5py.File(path) as one, h5py.File(other) as two:
            assert list(two) == list(one)
            assert list(two.attrs) == list(one.attrs)
            for name in one:
                assert shape_of(two[name]) == shape_of(one[name]), name
                assert np.array_equal(two[name][...], one[name][...]), name
    with h5py.File(back) as file:
        assert file[file["text"].attrs["ref"]].name == "/part"
        assert file["text"].asstr()[1] == "bc"
    chunk = connection.json("GET", "/map", addresses="file")
    assert chunk["file"]["size"] == len(whole)


def test_a_table_of_pandas_is_the_frame_again(imported: Import, tmp_path: Path) -> None:
    frame = pd.DataFrame({"n": np.arange(500), "v": np.linspace(0, 1, 500), "t": ["a", "bc"] * 250})
    frame.to_hdf(tmp_path / "in.h5", key="t", format="table", data_columns=["n"])
    connection = imported(tmp_path / "in.h5")
    target = exported(connection, tmp_path / "out.h5")
    pd.testing.assert_frame_equal(pd.read_hdf(target), frame)
    assert len(pd.read_hdf(target, where="n > 400")) == 99
