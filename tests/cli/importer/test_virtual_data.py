"""Virtual datasets: imported and read over HTTP, equal to what h5py reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from hsparse.cli.main import main
from hsparse.client.connection import Connection
from hsparse.hdf5.importer import hdf5_import, source_files, virtual_data
from hsparse.hdf5.importer import source_dataset as source_parts
from tests.cli.importer.conftest import Import
from tests.cli.importer.domain_content import domain_differences
from tests.cli.importer.test_command import Stopped, stop_after
from tests.cli.importer.test_sparse_matrix import elements_at, elements_of, random_matrix
from tests.cli.importer.virtual_files import VIRTUAL, numbers, source, virtual


@pytest.mark.parametrize("topic", VIRTUAL)
def test_it_is_what_h5py_reads(imported: Import, tmp_path: Path, topic: str) -> None:
    VIRTUAL[topic](tmp_path)
    status = 3 if topic in ("missing sources", "unlimited without sources") else 0
    connection = imported(tmp_path / "v.h5", status=status)
    with h5py.File(tmp_path / "v.h5") as file:
        assert domain_differences(file, connection) == []


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
    imported: Import, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    VIRTUAL["types"](tmp_path)
    domain = "/home/admin/virtual-stopped.h5"
    command = ["import", str(tmp_path / "v.h5"), domain, "--endpoint", url]
    monkeypatch.setattr(hdf5_import, "MAX_INLINE_BYTES", 0)
    with monkeypatch.context() as patch:
        stop_after(4, patch)
        with pytest.raises(Stopped):
            main([*command, "--keep"])
    assert main([*command, "--resume"]) == 0
    with Connection(url, domain) as connection, h5py.File(tmp_path / "v.h5") as file:
        assert domain_differences(file, connection) == []


def too_short(folder: Path) -> None:
    source(folder, "s.h5", numbers(0, 5))
    layout = h5py.VirtualLayout((9,), "<i4")
    layout[:] = h5py.VirtualSource("s.h5", "data", (9,))[:]
    virtual(folder, layout)


def a_group(folder: Path) -> None:
    source(folder, "s.h5", numbers(0, 5), "g/x")
    layout = h5py.VirtualLayout((5,), "<i4")
    layout[:] = h5py.VirtualSource("s.h5", "g", (5,))
    virtual(folder, layout)


def no_hdf5(folder: Path) -> None:
    (folder / "s.h5").write_bytes(b"text " * 100)
    layout = h5py.VirtualLayout((5,), "<i4")
    layout[:] = h5py.VirtualSource("s.h5", "x", (5,))
    virtual(folder, layout)


def other_type(folder: Path) -> None:
    source(folder, "s.h5", np.array([b"a"] * 5))
    layout = h5py.VirtualLayout((5,), "<i4")
    layout[:] = h5py.VirtualSource("s.h5", "data", (5,))
    virtual(folder, layout)


def outside(folder: Path) -> None:
    layout = h5py.VirtualLayout((5,), "<i4")
    layout[:] = h5py.VirtualSource("../../s.h5", "data", (5,))
    virtual(folder, layout)


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (
            too_short,
            "source data in s.h5: A selection up to 9 in dimension 0 is mapped; the dataset ends at 5",
        ),
        (a_group, "source g in s.h5: g is no dataset"),
        (no_hdf5, "source x in s.h5: "),
        (other_type, "cannot be converted to"),
        (outside, "'../../s.h5' is outside of the places"),
    ],
)
def test_what_is_refused(
    imported: Import, tmp_path: Path, write: Any, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path)
    connection = imported(tmp_path / "v.h5", status=2)
    error = capsys.readouterr().err
    assert "/v: " in error
    assert words in error
    domains = connection.json("GET", "/domains", domain="/home/admin/")["domains"]
    assert connection.domain not in [one["name"] for one in domains]


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
