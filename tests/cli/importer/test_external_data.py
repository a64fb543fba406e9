"""Data in external raw files: imported and read over HTTP, equal to what h5py reads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from tests.cli.importer.conftest import Import
from tests.cli.importer.domain_content import domain_differences

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
    connection = imported(folder / "x.h5")
    with h5py.File(folder / "x.h5") as file:
        assert domain_differences(file, connection) == []


def test_many_rows_with_gaps_are_read_in_runs(imported: Import, folder: Path) -> None:
    data = np.random.default_rng(1).integers(0, 2**31, (3000, 1000), np.int32)
    (folder / "large.bin").write_bytes(b"head" + data[:1000].tobytes())
    (folder / "rest.bin").write_bytes(data[1000:].tobytes())
    with h5py.File(folder / "x.h5", "w") as file:
        parts = [("large.bin", 4, 4_000_000), ("rest.bin", 0, REST)]
        file.create_dataset("x", data.shape, "<i4", external=parts)
    connection = imported(folder / "x.h5")
    id = connection.json("GET", "/datasets/", h5path="/x")["id"]
    assert connection.binary("GET", f"/datasets/{id}/value") == data.tobytes()


def test_an_extent_that_can_grow(imported: Import, folder: Path) -> None:
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_external(b"one.bin", 0, REST)
    with h5py.File(folder / "x.h5", "w") as file:
        space = h5py.h5s.create_simple((10, 4), (h5py.h5s.UNLIMITED, 4))
        h5py.h5d.create(file.id, b"x", h5py.h5t.STD_I16LE, space, plist)
    connection = imported(folder / "x.h5")
    with h5py.File(folder / "x.h5") as file:
        assert domain_differences(file, connection) == []


def test_it_is_found_beside_the_file_wherever_the_command_runs(
    imported: Import, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with h5py.File(folder / "x.h5", "w") as file:
        file.create_dataset("x", (10,), "<i4", external=[("one.bin", 0, 40)])
    monkeypatch.chdir(os.sep)
    connection = imported(folder / "x.h5")
    id = connection.json("GET", "/datasets/", h5path="/x")["id"]
    assert connection.binary("GET", f"/datasets/{id}/value") == RAW[:40]


def test_what_is_refused(imported: Import, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outside = folder.parent / f"{folder.name}.bin"
    outside.write_bytes(RAW)
    for part, words in (
        (("none.bin", 0, 40), "There is no external file 'none.bin' beside"),
        ((str(outside), 0, 40), "is outside of the places"),
        ((f"../{outside.name}", 0, 40), "is outside of the places"),
    ):
        with h5py.File(folder / "x.h5", "w") as file:
            file.create_dataset("x", (10,), "<i4", external=[part])
        connection = imported(folder / "x.h5", status=2)
        assert words in capsys.readouterr().err
        domains = connection.json("GET", "/domains", domain="/home/admin/")["domains"]
        assert connection.domain not in [one["name"] for one in domains]
    imported(folder / "x.h5", "--sources", str(folder.parent))
