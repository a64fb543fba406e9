"""Virtual datasets and external raw files, imported as copies or links: equal to what h5py reads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from hsparse.cli.main import main
from hsparse.client.connection import Connection
from hsparse.errors import Unsupported
from hsparse.hdf5.format.messages.file_type import file_type
from hsparse.hdf5.importer import hdf5_import, source_files, virtual_data
from hsparse.hdf5.importer import source_dataset as source_parts
from hsparse.hdf5.importer.convert_elements import convert_elements
from tests.cli.importer.conftest import Import, Refused, value_bytes
from tests.cli.importer.domain_picture import assert_is_file, domain_differences
from tests.cli.importer.test_sparse_matrix import elements_at, elements_of, random_matrix
from tests.cli.importer.virtual_files import VIRTUAL, numbers, source, virtual


@pytest.mark.parametrize("topic", VIRTUAL)
def test_it_is_what_h5py_reads(imported: Import, tmp_path: Path, topic: str) -> None:
    VIRTUAL[topic](tmp_path)
    status = 3 if topic in ("missing sources", "unlimited without sources") else 0
    assert_is_file(imported(tmp_path / "v.h5", status=status), tmp_path / "v.h5")


@pytest.mark.parametrize(
    "topic", ["strided blocks", "other shapes", "one source twice", "irregular", "types", "texts", "arrays"]
)
def test_in_small_parts(
    imported: Import, tmp_path: Path, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Boxes of a source are limited, and so are the elements that are copied one by one."""
    monkeypatch.setattr(source_parts, "MAX_HULL_BYTES", 0)
    monkeypatch.setattr(virtual_data, "MAX_POINTS", 3)
    monkeypatch.setattr(source_files, "MAX_OPEN", 1)
    monkeypatch.setattr(virtual_data, "MAX_ROWS", 0)
    test_it_is_what_h5py_reads(imported, tmp_path, topic)


def record_of(connection: Connection, path: str = "/v") -> dict[str, Any]:
    found: dict[str, Any] = connection.json("GET", "/datasets/", h5path=path)
    return found


@pytest.mark.parametrize(("topic", "count"), [("missing sources", 2), ("unlimited without sources", 1)])
def test_missing_sources_are_reported(
    imported: Import, tmp_path: Path, topic: str, count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    VIRTUAL[topic](tmp_path)
    imported(tmp_path / "v.h5", status=3)
    told = capsys.readouterr()
    assert ", not all of it." in told.out
    assert f"datasets, whose elements have the fill value ({count}):\n  data in none.h5" in told.err
    assert f"(looked at {tmp_path / 'none.h5'})" in told.err


@pytest.mark.parametrize("topic", ["pattern of files", "unlimited"])
def test_the_end_of_a_pattern_is_not_missing(
    imported: Import, tmp_path: Path, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    VIRTUAL[topic](tmp_path)
    imported(tmp_path / "v.h5")
    assert "missing" not in capsys.readouterr().err


def test_only_what_sources_have_is_stored(imported: Import, tmp_path: Path) -> None:
    """Elsewhere is the fill value, so that a mapping of few files to a large extent is no large upload."""
    source(tmp_path, "s.h5", numbers(0, 1, 512, 512), chunks=(1, 512, 512), compression="gzip")
    layout = h5py.VirtualLayout((2000, 512, 512), "<i4")
    layout[1234] = h5py.VirtualSource("s.h5", "data", (1, 512, 512))[0]
    layout[77] = h5py.VirtualSource("none.h5", "data", (1, 512, 512))[0]
    virtual(tmp_path, layout, fill=-3)
    connection = imported(tmp_path / "v.h5", status=3)
    record = record_of(connection)
    chunks = connection.json("GET", f"/datasets/{record['id']}/chunks")["chunks"]
    assert 1234 in [one["scaled"][0] for one in chunks]
    assert len(chunks) <= 64
    data = connection.binary("GET", f"/datasets/{record['id']}/value", select="[1233:1236,0:512,0:512]")
    found = np.frombuffer(data, "<i4").reshape(3, 512, 512)
    assert np.array_equal(found[1], numbers(0, 1, 512, 512)[0])
    assert (found[[0, 2]] == -3).all()


def test_it_has_the_chunks_and_filters_of_its_sources(imported: Import, tmp_path: Path) -> None:
    VIRTUAL["filtered chunks"](tmp_path)
    record = record_of(imported(tmp_path / "v.h5"))
    names = [one["class"] for one in record["creationProperties"]["filters"]]
    assert names == ["H5Z_FILTER_SHUFFLE", "H5Z_FILTER_DEFLATE"]
    assert record["shape"]["maxdims"][0] in (0, "H5S_UNLIMITED")


def test_an_import_that_was_stopped_goes_on(
    resumed: Import, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    VIRTUAL["types"](tmp_path)
    monkeypatch.setattr(hdf5_import, "MAX_INLINE_BYTES", 0)
    assert_is_file(resumed(tmp_path / "v.h5", 4), tmp_path / "v.h5")


def map_source(folder: Path, name: str, path: str, length: int) -> None:
    layout = h5py.VirtualLayout((length,), "<i4")
    layout[:] = h5py.VirtualSource(name, path, (length,))[:]
    virtual(folder, layout)


def write_sources(folder: Path) -> None:
    source(folder, "s.h5", numbers(0, 5))
    source(folder, "s.h5", np.array([b"a"] * 5), "text")
    source(folder, "s.h5", numbers(0, 5), "g/x")
    (folder / "none.h5").write_bytes(b"text " * 100)


@pytest.mark.parametrize(
    ("name", "path", "length", "words"),
    [
        ("s.h5", "data", 9, "A mapped selection reaches 9 in dimension 0; its dataset ends at 5"),
        ("s.h5", "g", 5, "source g in s.h5: g is no dataset"),
        ("none.h5", "x", 5, "source x in none.h5: "),
        ("s.h5", "text", 5, "cannot be converted to"),
        ("../../s.h5", "data", 5, "'../../s.h5' is outside of the places"),
    ],
)
def test_sources_that_are_refused(
    refused: Refused, tmp_path: Path, name: str, path: str, length: int, words: str
) -> None:
    write_sources(tmp_path)
    map_source(tmp_path, name, path, length)
    error = refused(tmp_path / "v.h5")
    assert "/v: " in error
    assert words in error


def test_an_array_of_a_matrix_may_be_virtual(imported: Import, tmp_path: Path) -> None:
    matrix = random_matrix(3, "<f4").tocsr()
    source(tmp_path, "s.h5", matrix.data)
    layout = h5py.VirtualLayout(matrix.data.shape, "<f4")
    layout[:] = h5py.VirtualSource("s.h5", "data", matrix.data.shape)
    virtual(tmp_path, layout, path="X/data")
    with h5py.File(tmp_path / "v.h5", "a") as file:
        file["X/indices"], file["X/indptr"] = matrix.indices, matrix.indptr
        file["X"].attrs["encoding-type"], file["X"].attrs["shape"] = "csr_matrix", matrix.shape
    connection = imported(tmp_path / "v.h5")
    assert elements_at(connection, "/X") == elements_of(matrix)


COPIED = {"missing sources", "unlimited without sources"}
"""Those whose sources are not all there."""


class Linked:
    """Files of a directory as domains below a folder of its own, sources first."""

    def __init__(self, url: str, folder: str) -> None:
        self.url, self.folder = url, folder
        self._opened: list[Connection] = []

    def run(self, place: Path, *flags: str, status: int = 0) -> Connection:
        files = sorted(place.rglob("*.h5"), key=lambda one: (one.name == "v.h5", one.name == "inner.h5"))
        for folder in dict.fromkeys(file.parent.relative_to(place).as_posix() for file in files):
            assert (
                main(["mkdir", "-p", f"{self.folder}/{folder}".removesuffix("/."), "--endpoint", self.url])
                == 0
            )
        for file in files:
            domain = f"{self.folder}/{file.relative_to(place).as_posix()}"
            expected = (status,) if file.name == "v.h5" else (0, 3)
            assert main(["import", str(file), domain, "--endpoint", self.url, *flags]) in expected
        return self.open("v.h5")

    def open(self, name: str) -> Connection:
        self._opened.append(Connection(self.url, f"{self.folder}/{name}"))
        return self._opened[-1]

    def close(self) -> None:
        for one in self._opened:
            one.close()


@pytest.fixture
def linked(url: str, request: pytest.FixtureRequest) -> Iterator[Linked]:
    found = Linked(url, f"/home/admin/linked-{abs(hash(request.node.name))}")
    yield found
    found.close()


def layout_of(connection: Connection, path: str = "/v") -> dict[str, Any]:
    found: dict[str, Any] = dataset_of(connection, path)["creationProperties"]["layout"]
    return found


@pytest.mark.parametrize("topic", VIRTUAL)
def test_what_stays_virtual_is_what_h5py_reads(linked: Linked, tmp_path: Path, topic: str) -> None:
    VIRTUAL[topic](tmp_path)
    connection = linked.run(tmp_path, status=3 if topic in COPIED else 0)
    with h5py.File(tmp_path / "v.h5") as file:
        names = [name for name, one in file.items() if isinstance(one, h5py.Dataset) and one.is_virtual]
        kinds = {layout_of(connection, f"/{name}")["class"] for name in names}
        assert kinds == {"H5D_CHUNKED" if topic in COPIED else "H5D_VIRTUAL"}
        assert domain_differences(file, connection) == []


def test_copies_are_made_when_asked_for(linked: Linked, tmp_path: Path) -> None:
    VIRTUAL["several files"](tmp_path)
    connection = linked.run(tmp_path, "--copy")
    assert layout_of(connection)["class"] == "H5D_CHUNKED"
    assert_is_file(connection, tmp_path / "v.h5")


def test_sources_are_in_another_folder(
    linked: Linked, tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The folder of domains is named; files that are named absolutely are looked for by their last part."""
    (tmp_path / "run").mkdir()
    path = source(tmp_path / "run", "s.h5", numbers(0, 6))
    linked.run(tmp_path / "run")
    for number, other in enumerate(["run/s.h5", str(path)]):
        layout = h5py.VirtualLayout((2, 6), "<i4")
        for row, name in enumerate([str(path), other]):
            layout[row] = h5py.VirtualSource(name, "data", (6,))
        virtual(tmp_path, layout, f"v{number}.h5")
        target = f"{linked.folder}-{number}.h5"
        command = ["import", str(tmp_path / f"v{number}.h5"), target, "--endpoint", url]
        assert main([*command, "--linked", linked.folder]) == 0
        told = "/v stays virtual" in capsys.readouterr().out
        assert told == (number == 1)  # run/s.h5 is no domain below the folder, so that all is copied
        with Connection(url, target) as connection:
            found = connection.binary("GET", f"/datasets/{dataset_of(connection)['id']}/value")
            assert np.array_equal(np.frombuffer(found, "<i4").reshape(2, 6), [numbers(0, 6)] * 2)
            mappings = layout_of(connection).get("mappings", [])
            assert [one["file"] for one in mappings] == [f"{linked.folder}/s.h5"] * 2 * number


def dataset_of(connection: Connection, path: str = "/v") -> dict[str, Any]:
    found: dict[str, Any] = connection.json("GET", "/datasets/", h5path=path)
    return found


@pytest.mark.parametrize(
    "topic",
    [
        "several files",
        "strided blocks",
        "irregular",
        "unlimited strides",
        "pattern of files",
        "types",
        "texts",
    ],
)
def test_it_is_exported_as_a_virtual_dataset(linked: Linked, tmp_path: Path, url: str, topic: str) -> None:
    """An export beside the files that it names is read by libhdf5 as the first one; a copy is what it was."""
    VIRTUAL[topic](tmp_path)
    linked.run(tmp_path)
    out = tmp_path / "out.h5"
    assert main(["export", f"{linked.folder}/v.h5", str(out), "--endpoint", url]) == 0
    with h5py.File(tmp_path / "v.h5") as first, h5py.File(out) as second:
        for name, one in first.items():
            assert second[name].is_virtual
            assert second[name].shape == one.shape
            assert np.array_equal(second[name][()], one[()])
    assert main(["mkdir", f"{linked.folder}/copies", "--endpoint", url]) == 0
    for copy in ("copy.h5", "copies/copy.h5"):
        assert main(["cp", f"{linked.folder}/v.h5", f"{linked.folder}/{copy}", "--endpoint", url]) == 0
        with h5py.File(tmp_path / "v.h5") as file:
            names = [name for name, one in file.items() if one.is_virtual]
            assert layout_of(linked.open(copy), f"/{names[0]}")["class"] == "H5D_VIRTUAL"
            assert domain_differences(file, linked.open(copy)) == []


RAW = np.arange(200, dtype="<i2").tobytes()
REST = h5py.h5f.UNLIMITED


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with raw files; h5py looks for them where it runs."""
    for name, size in (("one.bin", 400), ("two.bin", 100), ("sub/three.bin", 60)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(RAW[:size])
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("shape", "kind", "parts"),
    [
        ((10,), "<i4", [("one.bin", 0, 40)]),
        ((10, 5), ">i2", [("one.bin", 7, 100)]),
        ((4, 5, 3), "<i2", [("one.bin", 3, 50), ("two.bin", 11, 17), ("sub/three.bin", 0, REST)]),
        ((30,), "<f4", [("two.bin", 0, 60), ("two.bin", 40, 60)]),
        ((40,), "<i4", [("two.bin", 50, 90), ("one.bin", 0, REST)]),
        ((40,), "<i4", [("two.bin", 500, 80), ("one.bin", 390, 80)]),
        ((90,), "<i2", [("sub/three.bin", 0, REST)]),
        ((), "<i8", [("one.bin", 16, 8)]),
        ((3,), np.dtype([("n", "<i2"), ("v", ">f4")]), [("one.bin", 0, 18)]),
        ((3,), "S5", [("one.bin", 66, 15)]),
    ],
    ids=["one", "offset", "three", "twice", "short", "beyond", "shorter", "scalar", "compound", "text"],
)
def test_raw_files_are_what_h5py_reads(
    imported: Import, folder: Path, shape: tuple[int, ...], kind: Any, parts: list[tuple[str, int, int]]
) -> None:
    with h5py.File(folder / "x.h5", "w") as file:
        file.create_dataset("x", shape, kind, external=parts, fillvalue=None)
        file["beside"] = 1
    assert_is_file(imported(folder / "x.h5"), folder / "x.h5")


def test_many_rows_with_gaps_are_read_in_runs(imported: Import, folder: Path) -> None:
    data = np.random.default_rng(1).integers(0, 2**31, (3000, 1000), np.int32)
    (folder / "large.bin").write_bytes(b"head" + data[:1000].tobytes())
    (folder / "rest.bin").write_bytes(data[1000:].tobytes())
    with h5py.File(folder / "x.h5", "w") as file:
        parts = [("large.bin", 4, 4_000_000), ("rest.bin", 0, REST)]
        file.create_dataset("x", data.shape, "<i4", external=parts)
    assert value_bytes(imported(folder / "x.h5"), "/x") == data.tobytes()


def test_an_extent_that_can_grow(imported: Import, folder: Path) -> None:
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_external(b"one.bin", 0, REST)
    with h5py.File(folder / "x.h5", "w") as file:
        space = h5py.h5s.create_simple((10, 4), (h5py.h5s.UNLIMITED, 4))
        h5py.h5d.create(file.id, b"x", h5py.h5t.STD_I16LE, space, plist)
    assert_is_file(imported(folder / "x.h5"), folder / "x.h5")


def test_it_is_found_beside_the_file_wherever_the_command_runs(
    imported: Import, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with h5py.File(folder / "x.h5", "w") as file:
        file.create_dataset("x", (10,), "<i4", external=[("one.bin", 0, 40)])
    monkeypatch.chdir(os.sep)
    assert value_bytes(imported(folder / "x.h5"), "/x") == RAW[:40]


def test_raw_files_that_are_refused(refused: Refused, imported: Import, folder: Path) -> None:
    outside = folder.parent / f"{folder.name}.bin"
    outside.write_bytes(RAW)
    for part, words in (
        (("none.bin", 0, 40), "There is no external file 'none.bin' beside"),
        ((str(outside), 0, 40), "is outside of the places"),
        ((f"../{outside.name}", 0, 40), "is outside of the places"),
    ):
        with h5py.File(folder / "x.h5", "w") as file:
            file.create_dataset("x", (10,), "<i4", external=[part])
        assert words in refused(folder / "x.h5")
    imported(folder / "x.h5", "--sources", str(folder.parent))


NUMBERS = (
    "H5T_STD_I8LE",
    "H5T_STD_U16BE",
    "H5T_STD_I64LE",
    "H5T_STD_U64LE",
    "H5T_IEEE_F32BE",
    "H5T_IEEE_F64LE",
)


def item(name: str) -> Any:
    return file_type(name).item


def text(length: Any, pad: str) -> Any:
    return {"class": "H5T_STRING", "charSet": "H5T_CSET_ASCII", "strPad": f"H5T_STR_{pad}", "length": length}


def enum(base: str, **members: int) -> Any:
    mapping = [{"name": name, "value": value} for name, value in members.items()]
    return file_type({"class": "H5T_ENUM", "base": item(base), "members": mapping}).item


@pytest.mark.parametrize("source", NUMBERS)
@pytest.mark.parametrize("target", NUMBERS)
def test_numbers_that_both_types_have(source: str, target: str) -> None:
    one, other = (np.dtype(_dtype(name)) for name in (source, target))
    values = np.array([0, 1, 100, 127], one)
    found = convert_elements(values, item(source), item(target))
    assert found.dtype == other
    assert found.tolist() == values.tolist()


def _dtype(name: str) -> str:
    kind, bits = name.rpartition("_")[2][0].lower(), name.rpartition("_")[2][1:-2]
    return f"{'>' if name.endswith('BE') else '<'}{kind}{int(bits) // 8}"


@pytest.mark.parametrize(
    ("source", "target", "value", "found"),
    [
        ("NULLPAD", "NULLPAD", b"abcdef", b"abcd"),
        ("NULLPAD", "NULLTERM", b"abcdef", b"abc\0"),
        ("NULLTERM", "NULLPAD", b"ab\0def", b"ab\0\0"),
        ("SPACEPAD", "NULLPAD", b"ab    ", b"ab\0\0"),
        ("NULLPAD", "SPACEPAD", b"ab\0\0\0\0", b"ab\0\0"),
        ("NULLPAD", "SPACEPAD", b"abcdef", b"abcd"),
    ],
)
def test_texts(source: str, target: str, value: bytes, found: bytes) -> None:
    values = np.frombuffer(value, "S6")
    assert convert_elements(values, text(6, source), text(4, target)).tobytes() == found


def test_a_text_of_one_byte_that_ends_with_zero() -> None:
    values = np.array([b"abc"])
    assert convert_elements(values, text(3, "NULLPAD"), text(1, "NULLTERM")).tobytes() == b"\0"


def test_enumerations_and_arrays() -> None:
    small, large = enum("H5T_STD_I8LE", a=1, b=2), enum("H5T_STD_I32BE", b=2, a=1)
    found = convert_elements(np.array([1, 2], "i1"), small, large)
    assert (found.dtype, found.tolist()) == (np.dtype(">i4"), [1, 2])
    arrays = [
        {"class": "H5T_ARRAY", "dims": [2], "base": item(base)} for base in ("H5T_STD_I64LE", "H5T_STD_I8LE")
    ]
    assert convert_elements(np.array([[1, 300]]), *arrays).tolist() == [[1, 127]]


INT = item("H5T_STD_I32LE")
VLEN = {"class": "H5T_VLEN", "base": INT}


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (INT, text(4, "NULLPAD")),
        (text("H5T_VARIABLE", "NULLTERM"), text(4, "NULLPAD")),
        (VLEN, INT),
        (VLEN, {"class": "H5T_VLEN", "base": item("H5T_STD_I8LE")}),
        (enum("H5T_STD_I8LE", a=1), enum("H5T_STD_I8LE", a=2)),
        (enum("H5T_STD_I8LE", a=1), INT),
        ({"class": "H5T_ARRAY", "dims": [2], "base": INT}, {"class": "H5T_ARRAY", "dims": [3], "base": INT}),
    ],
)
def test_types_that_do_not_convert(source: Any, target: Any) -> None:
    with pytest.raises(Unsupported, match="cannot be converted"):
        convert_elements(np.zeros(1, "i4"), source, target)
