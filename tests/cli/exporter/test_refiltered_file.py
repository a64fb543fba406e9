"""Files with other filters against their originals: by h5diff, h5py and this package's readers; whole, or not there."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import h5py
import numpy as np
import pytest

from hsparse.errors import Corrupt
from hsparse.hdf5.exporter.refiltered_dataset import FilterChoice
from hsparse.hdf5.exporter.refiltered_file import export_filtered
from hsparse.hdf5.importer.source import LocalSource
from tests.format.hdf5.h5py_files import compare, write_file
from tests.sn.file_domain import check_file

H5DIFF = shutil.which("h5diff")
PIPELINES = [["gzip=1"], ["shuffle", "gzip=4"], ["shuffle+lzf"], ["shuffle+gzip+fletcher32"], ["none"]]
FILTERS = {"gzip": 1, "shuffle": 2, "fletcher32": 3, "lzf": 32000}


def refilter(path: Path, *flags: str) -> Path:
    """Write a file again; return where."""
    target = path.with_name(f"filtered-{path.name}")
    told: list[tuple[int, int]] = []
    with LocalSource(path) as source:
        size = export_filtered(source, FilterChoice.parse(flags), target, lambda *now: told.append(now))
    assert size == target.stat().st_size
    assert told[-1] == (path.stat().st_size,) * 2
    assert told == sorted(told)
    assert sorted(one.name for one in path.parent.glob("*.part")) == []
    return target


def pipeline_of(dataset: h5py.Dataset) -> list[int]:
    plist = dataset.id.get_create_plist()
    return [plist.get_filter(number)[0] for number in range(plist.get_nfilters())]


@pytest.mark.parametrize("flags", PIPELINES)
def test_a_domain_with_other_filters(served: bytes, tmp_path: Path, flags: list[str]) -> None:
    path = tmp_path / "f.h5"
    path.write_bytes(served)
    other = refilter(path, *flags)
    with h5py.File(path) as one, h5py.File(other) as two:
        expected = [
            FILTERS[name.split("=")[0]] for flag in flags for name in flag.split("+") if name != "none"
        ]
        for name in ("many", "many.defined", "words", "sparse words", "g/part"):
            assert pipeline_of(two[name]) == expected
            assert one[name].chunks == two[name].chunks
        assert two["whole"].chunks is None
        for name in ("many", "many.defined"):
            assert (one[name][()] == two[name][()]).all()
        assert [two[ref].name for ref in two["chunked references"][()]] == [f"/more {n}" for n in range(3)]
        regions = two["chunked regions"][()]
        assert [two[ref].name for ref in regions] == [f"/more {n}" for n in range(3)]
        assert two["more 1"].asstr()[()].tolist() == ["1"] * 50
    if flags == ["shuffle", "gzip=4"]:
        assert other.stat().st_size < path.stat().st_size  # whose sparse datasets are deflated already
        check_file(other.read_bytes())
    if H5DIFF and "lzf" not in flags[0]:  # h5py has that filter, h5diff has not
        done = subprocess.run([H5DIFF, str(path), str(other)], capture_output=True, text=True, check=False)
        # Of a null dataspace, and links to what is not there, it says that they cannot be compared.
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("served", [{"matrices": "anndata-csr"}], indirect=True)
def test_matrices_with_filters(served: bytes, tmp_path: Path) -> None:
    path = tmp_path / "f.h5"
    path.write_bytes(served)
    other = refilter(path, "gzip")
    with h5py.File(path) as one, h5py.File(other) as two:
        for name in ("data", "indices", "indptr"):
            assert (one["many"][name][()] == two["many"][name][()]).all()


def test_a_file_of_h5py(tmp_path: Path) -> None:
    """Links, committed types, dense attributes, references and empty things, and large data in one piece."""
    path = tmp_path / "f.h5"
    rng = np.random.default_rng(3)
    numbers = rng.integers(0, 9, (700, 3, 251))
    with h5py.File(path, "w") as file:
        write_file(file)
        file["large"] = numbers
        file["long"] = np.arange(300_000, dtype=">f4")
        file.create_dataset(
            "edges", data=numbers[:, 0], chunks=(64, 100), compression="gzip", fletcher32=True
        )
        file.create_dataset("unwritten", (500, 500), "f4")
        file.create_dataset("growing", (0,), "i4", maxshape=(None,), chunks=(10,))
    other = refilter(path, "shuffle+gzip=1")
    with h5py.File(path) as one, h5py.File(other) as two:
        for name in ("large", "long", "edges", "unwritten", "numbers", "texts", "typed", "filled"):
            assert one[name].dtype == two[name].dtype
            assert one[name][()].tolist() == two[name][()].tolist()
        assert two["large"].chunks == (174, 3, 251)
        assert two["unwritten"].chunks is None
        assert two["numbers"].chunks is None
        assert two["growing"].maxshape == (None,)
        assert pipeline_of(two["edges"]) == [2, 1]
    compare(other)
    if H5DIFF:
        subprocess.run([H5DIFF, str(path), str(other)], check=True, capture_output=True)
    back = refilter(other, "none")
    with h5py.File(other) as one, h5py.File(back) as two:
        assert one["edges"][()].tolist() == two["edges"][()].tolist()
        assert pipeline_of(two["large"]) == []


def test_what_goes_wrong_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "f.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("d", data=np.arange(5000), chunks=(500,), compression="gzip")
        place, size = file["d"].id.get_chunk_info(3).byte_offset, file["d"].id.get_chunk_info(3).size
    data = bytearray(path.read_bytes())
    data[place : place + size] = bytes(size)
    path.write_bytes(data)
    (tmp_path / "filtered-f.h5").write_bytes(b"as it was")
    with pytest.raises(Corrupt, match="deflate"):
        refilter(path, "lzf")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["f.h5", "filtered-f.h5"]
    assert (tmp_path / "filtered-f.h5").read_bytes() == b"as it was"
