"""Dense datasets imported as sparse ones, compared with what numpy keeps of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import hsparse
from hsparse.client.connection import Connection
from tests.cli.importer.conftest import Import, Refused

SHAPE = (20, 30, 40)
KINDS: dict[str, dict[str, Any]] = {
    "chunks": {"chunks": (3, 7, 40), "compression": "gzip"},
    "contiguous": {},
    "filled": {"chunks": (5, 30, 40), "fillvalue": 7},
    "resizable": {"chunks": (1, 30, 40), "maxshape": (None, 30, 40)},
}


def numbers(dtype: str, fill: Any = 0) -> Any:
    """Return mostly the fill value, some NaN among floats, and the least and largest values of the type."""
    rng = np.random.default_rng(1)
    values = np.full(SHAPE, fill, dtype)
    some = rng.random(SHAPE) < 0.05
    kind = np.dtype(dtype)
    limits = np.finfo(dtype) if kind.kind == "f" else np.iinfo(dtype)
    values[some] = rng.integers(1, 100, int(some.sum())).astype(dtype)
    values.flat[::997], values.flat[::1499] = limits.min, limits.max
    if kind.kind == "f":
        values.flat[::555], values.flat[3] = np.nan, -0.0
    return values


def sparse(connection: Connection, path: str) -> tuple[Any, Any]:
    """Return a sparse dataset's values, dense, and which elements are defined."""
    with hsparse.open(f"{connection.url}{connection.domain}") as file:
        found = file[path]
        assert isinstance(found, hsparse.SparseDataset)
        coords, values = found.read()
        dense = np.full(found.shape, found.fillvalue, values.dtype)
        defined = np.zeros(found.shape, bool)
        places = tuple(coords.T.astype(int))
        dense[places], defined[places] = values, True
        return dense, defined


def write(path: Path, dtype: str, name: str = "chunks") -> Any:
    options = KINDS[name]
    values = numbers(dtype, options.get("fillvalue", 0))
    with h5py.File(path, "w") as file:
        file.create_dataset("entry/data/image", data=values, **options)
        file["entry/data/image"].attrs["unit"] = "counts"
        file["entry/data/other"] = np.arange(5)
    return values


@pytest.mark.parametrize("dtype", ["u1", "<i4", ">i4", "u8", "i8", "f2", "f4", ">f8"])
@pytest.mark.parametrize("name", KINDS)
def test_what_is_not_the_fill_value_is_kept(
    imported: Import, tmp_path: Path, capsys: pytest.CaptureFixture[str], dtype: str, name: str
) -> None:
    values = write(tmp_path / "a.h5", dtype, name)
    connection = imported(tmp_path / "a.h5", "--sparse", "/entry/data/im*", "--drop-fill")
    fill = np.array(KINDS[name].get("fillvalue", 0), dtype)
    raw = np.ascontiguousarray(values).view(f"V{fill.itemsize}")
    expected = raw != fill.view(f"V{fill.itemsize}")
    dense, defined = sparse(connection, "/entry/data/image")
    assert np.array_equal(defined, expected)
    assert dense.tobytes() == np.ascontiguousarray(values, dense.dtype).tobytes()
    said = f"/entry/data/image is sparse: {int(expected.sum()):,} of {values.size:,} elements are kept."
    assert said in capsys.readouterr().out
    with hsparse.open(f"{connection.url}{connection.domain}") as file:
        assert file["entry/data/image"].attrs["unit"] == "counts"
        assert not isinstance(file["entry/data/other"], hsparse.SparseDataset)


LIMITS = ["10", "2.5", "-1", "0", str((1 << 64) - 1), str(1 << 70), "-1e300", "0.1"]


@pytest.mark.parametrize("threshold", LIMITS)
@pytest.mark.parametrize("dtype", ["u1", "i8", "u8", "f4", ">f8"])
def test_what_is_above_a_threshold_is_kept(
    imported: Import, tmp_path: Path, dtype: str, threshold: str
) -> None:
    values = write(tmp_path / "a.h5", dtype)
    connection = imported(tmp_path / "a.h5", "--sparse", "entry/data/image", f"--threshold={threshold}")
    limit = float(threshold) if "." in threshold or "e" in threshold else int(threshold)
    exact = [(isinstance(one, float) and one != one) or one > limit for one in values.reshape(-1).tolist()]
    dense, defined = sparse(connection, "/entry/data/image")
    expected = np.array(exact).reshape(SHAPE)
    assert np.array_equal(defined, expected)
    assert np.array_equal(dense[defined], values[expected], equal_nan=dtype[-2] == "f")


def test_both(imported: Import, tmp_path: Path) -> None:
    """Elements with the fill value are left out even above the threshold."""
    values = write(tmp_path / "a.h5", "i4", "filled")
    connection = imported(tmp_path / "a.h5", "--sparse", "/*image", "--drop-fill", "--threshold", "3")
    _, defined = sparse(connection, "/entry/data/image")
    assert np.array_equal(defined, (values > 3) & (values != 7))


def test_not_a_number_as_fill_value(imported: Import, tmp_path: Path) -> None:
    values = numbers("f4")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=values, chunks=(5, 30, 40), fillvalue=np.nan)
    _, defined = sparse(imported(tmp_path / "a.h5", "--sparse", "x", "--drop-fill"), "/x")
    assert np.array_equal(defined, ~np.isnan(values))


def test_large_datasets_are_read_chunk_by_chunk(
    imported: Import, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Chunks that were never written are not looked at; pieces and groups of chunks are."""
    monkeypatch.setattr("hsparse.hdf5.importer.sparsified_upload.ELEMENTS_AT_ONCE", 100)
    monkeypatch.setattr("hsparse.hdf5.importer.sparsified_upload.CHUNK", 500)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        data = file.create_dataset("x", (1 << 40, 30), "i4", chunks=(10, 10))
        data[1 << 39, 5:25] = np.arange(20)
        data[7, 7] = 3
    connection = imported(tmp_path / "a.h5", "--sparse", "/x", "--drop-fill")
    assert f"/x is sparse: 20 of {30 << 40:,} elements are kept" in capsys.readouterr().out
    with hsparse.open(f"{connection.url}{connection.domain}") as file:
        assert file["x"].chunks == (10, 30)
        assert np.array_equal(file["x"][1 << 39, 5:25].todense(), np.arange(20))
        assert file["x"][7, 7] == 3
    connection = imported(tmp_path / "a.h5", "--sparse", "/x", "--drop-fill", "--chunk", "100x10")
    with hsparse.open(f"{connection.url}{connection.domain}") as file:
        assert file["x"].chunks == (100, 10)
        assert file["x"].count() == 20


def test_a_virtual_dataset(imported: Import, tmp_path: Path) -> None:
    values = write(tmp_path / "source.h5", "i4")
    layout = h5py.VirtualLayout((2 * SHAPE[0], *SHAPE[1:]), "i4")
    for part in range(2):
        place = slice(part * SHAPE[0], (part + 1) * SHAPE[0])
        layout[place] = h5py.VirtualSource("source.h5", "entry/data/image", SHAPE)
    with h5py.File(tmp_path / "master.h5", "w") as file:
        file.create_virtual_dataset("x", layout, fillvalue=0)
    dense, defined = sparse(imported(tmp_path / "master.h5", "--sparse", "x", "--drop-fill"), "/x")
    assert np.array_equal(dense, np.concatenate((values, values)))
    assert np.array_equal(defined, dense != 0)


@pytest.mark.parametrize("count", [1, 3, 6])
def test_an_import_that_was_stopped_goes_on(
    resumed: Import,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    count: int,
) -> None:
    monkeypatch.setattr("hsparse.hdf5.importer.sparsified_upload.CHUNK", 5000)
    values = write(tmp_path / "a.h5", "i4")
    connection = resumed(tmp_path / "a.h5", count, "--sparse", "*image", "--drop-fill")
    kept = f"{np.count_nonzero(values):,} of {values.size:,} elements are kept"
    assert kept in capsys.readouterr().out
    dense, _ = sparse(connection, "/entry/data/image")
    assert np.array_equal(dense, values)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--sparse", "/entry/none", "--drop-fill"), "No dataset matches --sparse /entry/none: use a path"),
        (("--sparse", "/entry/data/*"), "--sparse needs --drop-fill or --threshold N"),
        (("--drop-fill",), "are for the datasets that --sparse names"),
        (("--sparse", "*", "--threshold", "much"), "--threshold much is no number"),
        (("--sparse", "*", "--threshold", "nan"), "--threshold nan is no number"),
        (
            ("--sparse", "/points", "--drop-fill"),
            "/points: It has elements of the class H5T_COMPOUND; --sparse is for",
        ),
        (("--sparse", "/names", "--drop-fill"), "/names: It has elements of the class H5T_STRING"),
        (
            ("--sparse", "*image", "--drop-fill", "--chunk", "3x3"),
            "/entry/data/image: The array's chunk must have 3 dimensions",
        ),
    ],
)
def test_what_cannot_be_is_refused(
    refused: Refused, tmp_path: Path, flags: tuple[str, ...], said: str
) -> None:
    write(tmp_path / "a.h5", "i4")
    with h5py.File(tmp_path / "a.h5", "r+") as file:
        file["points"], file["names"] = np.zeros(3, [("a", "i4"), ("b", "f4")]), ["a", "b"]
        file["scalar"] = 5
    assert said in refused(tmp_path / "a.h5", *flags)


def test_other_formats_are_refused(refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "a.mtx").write_text("%%MatrixMarket matrix coordinate real general\n2 2 1\n1 1 5\n")
    assert "--sparse is for datasets of HDF5 files" in refused(
        tmp_path / "a.mtx", "--sparse", "*", "--drop-fill"
    )


@pytest.mark.parametrize("seed", range(10))
def test_a_damaged_file_is_refused_or_read_as_h5py_does(
    imported: Import, tmp_path: Path, url: str, seed: int
) -> None:
    write(tmp_path / "a.h5", "i4", ["chunks", "contiguous"][seed % 2])
    rng, data = np.random.default_rng(seed), bytearray((tmp_path / "a.h5").read_bytes())
    for place in rng.integers(0, len(data), 10):
        data[place] ^= int(rng.integers(1, 256))
    (tmp_path / "a.h5").write_bytes(data)
    try:
        connection = imported(tmp_path / "a.h5", "--sparse", "*image", "--drop-fill")
    except AssertionError:
        return  # refused
    with h5py.File(tmp_path / "a.h5") as file:
        dense, _ = sparse(connection, "/entry/data/image")
        assert np.array_equal(dense, file["entry/data/image"][()])
