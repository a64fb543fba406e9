"""Uploads imported: the same as the file itself, whatever its format, or a refusal that leaves the upload."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import scipy.io
import scipy.sparse

from hsparse.cli.main import main
from hsparse.client.connection import Connection
from hsparse.errors import Gone, HsparseError
from tests.cli.importer.conftest import Stopped, stop_after
from tests.cli.importer.domain_picture import Picture, assert_is_file, domain_differences, picture_of
from tests.cli.importer.mutated_file import Seed
from tests.cli.importer.test_command import write_file
from tests.support.file_upload import dataset_body, scalar, upload

FOLDER = "/home/admin/uploads"
Place = tuple[str, str]


@pytest.fixture(scope="session")
def server(embedded_url: str) -> Iterator[Connection]:
    with Connection(embedded_url) as connection:
        connection.json("PUT", "/", {"folder": 1}, domain=FOLDER)
        yield connection


@pytest.fixture
def place(server: Connection, request: pytest.FixtureRequest) -> Place:
    """The paths of a domain and of its upload."""
    path = f"{FOLDER}/{request.node.originalname}-{abs(hash(request.node.name))}.h5"
    return path, f"{path}.upload"


def domains(server: Connection) -> list[str]:
    return [one["name"] for one in server.json("GET", "/domains", domain=f"{FOLDER}/")["domains"]]


def values(server: Connection, path: str, name: str) -> Any:
    id = server.json("GET", "/datasets/", domain=path, h5path=f"/{name}")["id"]
    return server.json("GET", f"/datasets/{id}/value", domain=path)["value"]


def run_import(server: Connection, place: Place, *flags: str) -> int:
    return main(["import", f"upload://{place[1]}", place[0], "--endpoint", server.url, *flags])


def matrix_market() -> bytes:
    file = io.BytesIO()
    scipy.io.mmwrite(file, scipy.sparse.random(30, 20, 0.2, random_state=1))
    return file.getvalue()


def npz() -> bytes:
    file = io.BytesIO()
    scipy.sparse.save_npz(file, scipy.sparse.random(30, 20, 0.2, "csr", random_state=1))
    return file.getvalue()


def loom() -> bytes:
    data = io.BytesIO()
    with h5py.File(data, "w") as file:
        file["matrix"] = np.arange(12, dtype="f4").reshape(3, 4)
        for group, length in (("row_attrs", 3), ("col_attrs", 4)):
            file[f"{group}/n"] = np.arange(length)
        file.create_group("layers")
    return data.getvalue()


FORMATS = {
    "m.MTX": matrix_market,
    "m.mtx.gz": lambda: gzip.compress(matrix_market()),
    "m.npz": npz,
    "m.loom": loom,
}


def pictured(server: Connection, path: str) -> Picture:
    return picture_of(server.for_domain(path))


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_is_known_by_the_name_of_the_file(
    server: Connection, place: Place, tmp_path: Path, name: str
) -> None:
    path, own = tmp_path / name, f"{place[0]}-own"
    path.write_bytes(FORMATS[name]())
    upload(server, place[1], path.read_bytes(), name)
    assert run_import(server, place) == 0
    assert main(["import", str(path), own, "--endpoint", server.url]) == 0
    assert pictured(server, place[0]) == pictured(server, own) != {}
    assert place[1] not in domains(server)


def test_an_hdf5_file_and_its_progress(
    server: Connection, place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_file(tmp_path / "all.h5").read_bytes()
    upload(server, place[1], data)
    assert run_import(server, place, "--progress", "json") == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (len(data), len(data)) in [(line.get("done"), line.get("total")) for line in lines]
    assert lines[-1] == {"message": f"Imported upload://{place[1]} into {place[0]}."}
    with h5py.File(tmp_path / "all.h5") as file, Connection(server.url, place[0]) as imported:
        assert domain_differences(file, imported) == []
    with pytest.raises(Gone):
        server.json("GET", "/", domain=place[1])


def test_what_is_no_whole_upload(
    server: Connection, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*words: str) -> None:
        assert run_import(server, place) == 2
        error = capsys.readouterr().err
        assert all(word in error for word in words), error
        assert place[0] not in domains(server)

    refused(f"{place[1]} does not exist")
    root = server.json("PUT", "/", {}, domain=place[1])["root"]
    refused(f"{place[1]} is no upload", "no dataset bytes")

    def put(**values: Any) -> None:
        body = {"attributes": {key: scalar(value) for key, value in values.items()}}
        server.json("PUT", f"/groups/{root}/attributes", body, domain=place[1], replace=1)

    id = server.json("POST", "/datasets", dataset_body(root, 9), domain=place[1])["id"]
    for name in ("", "a/b.h5", "../x.h5", "a\nb.h5", "x" * 256):
        put(name=name, size=9, received=9)
        refused("is no upload", "attribute name")
    put(name="x.h5", size="9")
    refused("is no upload", "size and received")
    put(size=8)
    refused("is no upload", "bytes must be 8 elements of H5T_STD_U8LE")
    put(size=9, received=7)
    refused(f"{place[1]} has 7 of the 9 bytes of 'x.h5'", "go on with its upload")
    put(received=9)
    server.json("PUT", f"/datasets/{id}/value", b"\0" * 9, domain=place[1])
    refused("x.h5", "no HDF5 file")
    assert place[1] in domains(server)
    for kind in ("H5T_STD_I8LE", "H5T_STD_U16LE"):
        server.json("DELETE", f"/groups/{root}/links/bytes", domain=place[1])
        server.json("POST", "/datasets", dataset_body(root, 9) | {"type": kind}, domain=place[1])
        refused("is no upload", "H5T_STD_U8LE")
    assert main(["import", "upload:///home/admin/a.h5", place[0], "--endpoint", server.url]) == 2
    assert "names no upload" in capsys.readouterr().err
    assert main(["import", f"upload://{FOLDER}.upload", place[0], "--endpoint", server.url]) == 2
    folder = f"{FOLDER}/f.upload"
    server.json("PUT", "/", {"folder": 1}, domain=folder)
    assert main(["import", f"upload://{folder}", place[0], "--endpoint", server.url]) == 2
    assert f"{folder} is no upload: it is a folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "word"),
    [("a.hic", "Juicer"), ("a.RDS", "zellkonverter"), ("a.zarr.zip", "hsparse import a.zarr.zip")],
)
def test_formats_that_are_refused_by_name(
    server: Connection, place: Place, name: str, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    upload(server, place[1], b"abc", name)
    assert run_import(server, place) == 2
    assert word in capsys.readouterr().err
    assert place[1] in domains(server)


def test_the_target_is_not_replaced_and_an_empty_file_is_none(
    server: Connection, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    upload(server, place[1], b"")
    assert run_import(server, place) == 2
    assert "no HDF5 file" in capsys.readouterr().err
    server.json("PUT", "/", {}, domain=place[0])
    assert run_import(server, place) == 2
    assert f"{place[0]} exists already" in capsys.readouterr().err
    assert {*place} <= {*domains(server)}


def test_an_uploaded_file_reads_no_other_file(
    server: Connection, place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = tmp_path / "secret"
    with h5py.File(tmp_path / "s.h5", "w") as file:
        file["data"] = np.arange(6)
    secret.write_bytes(np.arange(6).tobytes())
    for source in (str(tmp_path / "s.h5"), "s.h5", "../s.h5", f"upload://{place[1]}", "s3://lab/s.h5"):
        with h5py.File(tmp_path / "v.h5", "w") as file:
            layout = h5py.VirtualLayout((6,), "<i8")
            layout[:] = h5py.VirtualSource(source, "data", (6,))
            file.create_virtual_dataset("v", layout, fillvalue=7)
        path = f"{place[0]}-{abs(hash(source))}.h5"
        upload(server, f"{path}.upload", (tmp_path / "v.h5").read_bytes())
        assert run_import(server, (path, f"{path}.upload"), "--sources", str(tmp_path)) == 3
        assert "Missing sources of virtual datasets" in capsys.readouterr().err
        assert values(server, path, "v") == [7] * 6
    for raw in (str(secret), "secret", "/etc/hostname"):
        with h5py.File(tmp_path / "x.h5", "w") as file:
            file.create_dataset("x", (6,), "<i8", external=[(raw, 0, 48)])
        path = f"{place[0]}-{abs(hash(raw))}.h5"
        upload(server, f"{path}.upload", (tmp_path / "x.h5").read_bytes())
        assert run_import(server, (path, f"{path}.upload"), "--sources", str(tmp_path)) == 2
        assert "no external file" in capsys.readouterr().err
        assert path not in domains(server)


@pytest.mark.parametrize("is_changed", [False, True])
def test_a_stopped_import_of_the_same_upload_goes_on(
    server: Connection, place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str], is_changed: bool
) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for number in range(4):
            file[f"g/{number}"] = np.arange(number, 1000.0)
    upload(server, place[1], (tmp_path / "a.h5").read_bytes())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hsparse.hdf5.importer.hdf5_import.MAX_OBJECTS", 1)
        stop_after(8, patch)
        with pytest.raises(Stopped):
            run_import(server, place, "--keep")
    assert {*place} <= {*domains(server)}
    assert run_import(server, place) == 2
    assert "exists already" in capsys.readouterr().err
    if is_changed:
        root = server.json("GET", "/", domain=place[1])["root"]
        server.json("PUT", f"/groups/{root}/attributes/modified", scalar(1), domain=place[1], replace=1)
        assert run_import(server, place, "--resume") == 2
        assert "changed since" in capsys.readouterr().err
        assert place[1] in domains(server)
        return
    assert run_import(server, place, "--resume") == 0
    assert_is_file(server.for_domain(place[0]), tmp_path / "a.h5")
    assert place[1] not in domains(server)


def test_damaged_files_are_refused_or_imported_right(
    server: Connection, place: Place, tmp_path: Path
) -> None:
    with h5py.File(tmp_path / "small.h5", "w", libver="latest") as file:
        file.create_dataset("g/d", data=np.arange(600).reshape(20, 30), chunks=(5, 30), compression="gzip")
        file["text"] = ["a", "bc"]
        file["text"].attrs["unit"] = "m"
    seed, statuses = Seed("small", (tmp_path / "small.h5").read_bytes()), []
    for number in range(10):
        _, damaged = seed.mutated(np.random.default_rng(number))
        (tmp_path / "damaged.h5").write_bytes(damaged)
        path, own = f"{place[0]}-{number}", f"{place[0]}-{number}-own"
        upload(server, f"{path}.upload", damaged)
        statuses.append(run_import(server, (path, f"{path}.upload")))
        assert main(["import", str(tmp_path / "damaged.h5"), own, "--endpoint", server.url]) == statuses[-1]
        left = {path, own, f"{path}.upload"} & {*domains(server)}
        if statuses[-1] == 2:
            assert left == {f"{path}.upload"}
        else:
            assert left == {path, own}
            assert pictured(server, path) == pictured(server, own)
    assert {0, 2} <= {*statuses}


@pytest.mark.parametrize(
    "name",
    [
        'a b\'s "c".h5',
        "<img src=x onerror=alert(1)>.h5",
        "ü-日本.h5",
        "%2F..%2F.h5",
        "-rf.h5",
        "x" * 200 + ".h5",
    ],
)
def test_names_are_kept_exactly(server: Connection, tmp_path: Path, name: str) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = [1]
    path = f"{FOLDER}/{name}"
    upload(server, f"{path}.upload", (tmp_path / "a.h5").read_bytes(), name)
    assert run_import(server, (path, f"{path}.upload")) == 0
    assert path in domains(server)
    assert values(server, path, "x") == [1]


@pytest.mark.parametrize("name", ["../x.h5", "a//b.h5", "a\nb.h5", "a\u202eb.h5", "x" * 241])
def test_names_that_no_domain_has(server: Connection, name: str) -> None:
    with pytest.raises(HsparseError, match="domain's path"):
        server.json("PUT", "/", {}, domain=f"{FOLDER}/{name}.upload")
