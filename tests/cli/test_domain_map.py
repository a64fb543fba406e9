"""`hsparse map` against a server in every form, and references in Parquet files and JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr
import zarr
from fsspec import filesystem
from fsspec.implementations.reference import LazyReferenceMapper
from hypothesis import given
from hypothesis import strategies as st

from hsparse.cli.main import main
from hsparse.client.connection import Connection
from hsparse.errors import HsparseError, Unsupported
from hsparse.hdf5.maps import parquet_references
from hsparse.hdf5.maps.parquet_references import ReferenceMembers, write_parquet
from tests.support.characters import CHARACTERS
from tests.support.server_process import server_process

# fsspec reads by fastparquet, of which pandas 3 says that it will go; by pyarrow it finds no chunk that is not stored.
pytestmark = pytest.mark.filterwarnings("ignore:The 'fastparquet' engine is deprecated")

DOMAIN = "/home/admin/map.h5"
VALUES = np.arange(900_000, dtype="<i4").reshape(3000, 300)
INT = "H5T_STD_I32LE"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def url(store: Path) -> Iterator[str]:
    """A server with a domain that has a dense dataset, a sparse one, and text."""
    with server_process("--root", str(store), "--no-fsync") as server:
        with Connection(server.url, DOMAIN) as connection:
            connection.json("PUT", "/", {})
            chunked = {"class": "H5D_CHUNKED", "dims": [900, 300]}
            layout = {"class": "H5D_STRUCT_CHUNK", "dims": [900, 300], "flags": ["H5D_SPARSE_DATA"]}
            for name, properties in (
                ("g/dense", {"layout": chunked, "filters": ["shuffle", "deflate"], "fillValue": -1}),
                ("g/sparse", {"layout": layout, "fillValue": -1}),
            ):
                body = {"type": INT, "shape": [3000, 400], "h5path": name, "creationProperties": properties}
                made = connection.json("POST", "/datasets", body, implicit=1)
                where = f"/datasets/{made['id']}/value"
                connection.json("PUT", where, VALUES.tobytes(), select="[0:3000,0:300]")
            text = {"class": "H5T_STRING", "charSet": "H5T_CSET_UTF8", "length": "H5T_VARIABLE"}
            connection.json("POST", "/datasets", {"type": text, "shape": [2], "h5path": "text"})
        yield server.url
        assert server.stop() == 0


def make(url: str, out: Path, *flags: str) -> int:
    return main(["map", DOMAIN, str(out), "--endpoint", url, *flags])


def opened(references: Any) -> Any:
    files = filesystem("reference", fo=references, remote_protocol="file", asynchronous=True)
    return zarr.open(zarr.storage.FsspecStore(files, read_only=True), mode="r", zarr_format=2)


def check(group: Any, *names: str) -> None:
    for name in names:
        np.testing.assert_array_equal(group[name][:, :300], VALUES)
        np.testing.assert_array_equal(group[name][:, 300:], np.full((3000, 100), -1))


def test_json(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "map.json"
    assert (make(url, out), capsys.readouterr().out) == (0, f"{out}\n")
    assert set(json.loads(out.read_text())["datasets"]) == {"/g/dense", "/g/sparse", "/text"}
    assert list(tmp_path.iterdir()) == [out]


def test_references(url: str, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for form in ("kerchunk", "kerchunk-parquet"):
        out = tmp_path / form
        assert make(url, out, "--format", form, "--base", f"{store}/") == 0
        check(opened(str(out)), "g/dense")
    assert "left out: /g/sparse: " in capsys.readouterr().err


def test_references_to_a_copy_of_the_file(url: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy.h5"
    assert main(["export", DOMAIN, str(copy), "--endpoint", url, "--layout", "stock"]) == 0
    for form in ("kerchunk", "kerchunk-parquet"):
        out = tmp_path / form
        assert make(url, out, "--format", form, "--addresses", "file", "--base", str(copy)) == 0
        check(opened(str(out)), "g/dense", "g/sparse")
    with h5py.File(copy) as file:
        check(file, "g/dense", "g/sparse")


@pytest.mark.parametrize("form", ["kerchunk", "kerchunk-parquet"])
@pytest.mark.parametrize("made", ["by default", "of another state", "over HTTP"])
def test_a_copy_that_is_another_file_is_refused(
    url: str, tmp_path: Path, form: str, made: str, capsys: pytest.CaptureFixture[str]
) -> None:
    copy, out = tmp_path / "copy.h5", tmp_path / "out"
    layout = [] if made == "by default" else ["--layout", "stock"]
    assert main(["export", DOMAIN, str(copy), "--endpoint", url, *layout]) == 0
    if made == "of another state":
        with h5py.File(copy, "r+") as file:
            file["g/dense"][::100] = 7
    capsys.readouterr()
    base = f"{url}/files{DOMAIN}?layout=structured" if made == "over HTTP" else str(copy)
    assert make(url, out, "--format", form, "--addresses", "file", "--base", base) == 2
    said = capsys.readouterr().err
    assert "differs from the file of the map" in said
    assert f"hsparse export {DOMAIN} FILE --layout stock" in said
    assert not out.exists()


@pytest.mark.parametrize("base", ["/none/copy.h5", "s3://bucket/copy.h5"])
def test_a_bad_copy_is_named(url: str, tmp_path: Path, base: str, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--addresses", "file", "--base", base]
    assert make(url, tmp_path / "out", "--format", "kerchunk", *where) == 0
    assert f"{base} is not checked" in capsys.readouterr().err


def make_netcdf(path: Path) -> None:
    """Make a file whose variables have values equal to HDF5's fill value, masked by `_FillValue` or not."""
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("x", 3)
        file.createDimension("long", 40)
        coordinate = file.createVariable("x", "f8", ("x",))
        coordinate[:] = [0.5, 1.5, 2.5]
        for name, kind, masked, values in (
            ("bytes", "u1", None, [0, 255, 3]),
            ("shorts", "i2", None, [-32767, 0, 3]),
            ("floats", "f4", None, [netCDF4.default_fillvals["f4"], 0, 3]),
            ("zeros", "i4", False, [0, 1, 2]),
            ("masked", "u1", 255, [0, 255, 3]),
            ("masked_zero", "i4", 0, [0, 1, 2]),
            ("masked_float", "f4", -1.5, [-1.5, 0, 3]),
            ("masked_nan", "f8", np.nan, [np.nan, 0, 3]),
        ):
            made = file.createVariable(name, kind, ("x",), fill_value=masked, zlib=name != "zeros")
            made.set_auto_mask(False)
            made[:] = values
            made.setncatts({"one": np.array([7], "i4"), "two": np.array([1.5, 2.5]), "units": "K"})
        parts = file.createVariable("parts", "i4", ("long", "x"), fill_value=-5, chunksizes=(10, 3))
        parts[:10] = 1
        file.createVariable("grid", "u1", ("x", "long"))[:] = 255
    with h5py.File(path, "r+") as file:
        file["other"] = h5py.SoftLink("/bytes")
        differs = file.create_dataset("differs", data=np.array([7, 0, 3], "f4"), fillvalue=7)
        differs.attrs["_FillValue"] = np.float32(3)


def test_only_the_attribute_masks_values(url: str, store: Path, tmp_path: Path) -> None:
    """Every reader of a map, and the engine `hsparse`, have what xarray has of the file."""
    file, domain = tmp_path / "some.nc", "/home/admin/some.nc"
    make_netcdf(file)
    assert main(["import", str(file), domain, "--endpoint", url, "--quiet"]) == 0
    with xr.open_dataset(file, engine="h5netcdf", phony_dims="access") as data:
        expected = data.load()
    found = {"hsparse": xr.open_dataset(f"{url}{domain}", engine="hsparse").load()}
    for form in ("kerchunk", "kerchunk-parquet"):
        out, where = tmp_path / form, ["--endpoint", url, "--format", form]
        assert main(["map", domain, str(out), *where, "--base", f"{store}/"]) == 0
        options = {"storage_options": {"fo": str(out), "remote_protocol": "file"}}
        found[form] = xr.open_dataset(
            "reference://", engine="zarr", consolidated=False, backend_kwargs=options
        ).load()
    assert expected["bytes"].dtype == "u1"
    for form, data in found.items():
        assert set(data.variables) == set(expected.variables), form
        for name, variable in expected.variables.items():
            assert data[name].dtype == variable.dtype, (form, name)
            np.testing.assert_array_equal(data[name].values, variable.values, f"{form} {name}")
            assert {key: np.shape(value) for key, value in data[name].attrs.items()} == {
                key: np.shape(value) for key, value in variable.attrs.items()
            }, (form, name)


def test_what_is_there_is_kept(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "other").write_text("x")
    parquet = ("--format", "kerchunk-parquet")
    assert make(url, out, *parquet, "--force") == 2
    assert "is a directory" in capsys.readouterr().err
    (out / "other").rename(out / ".zmetadata")  # as one of ours has
    assert make(url, out, *parquet) == 2
    assert "is a directory" in capsys.readouterr().err
    assert make(url, out, *parquet, "--force", "--addresses", "objects", "--layout", "stock") == 2
    assert "addresses=file" in capsys.readouterr().err
    assert [path.read_text() for path in out.iterdir()] == ["x"], "nothing was removed for a refused map"
    assert make(url, out, "--force") == 2, "a file does not replace a directory"
    assert make(url, out, *parquet, "--force") == 0
    assert (out / ".zmetadata").read_text() != "x"
    assert (list(tmp_path.iterdir()), make(url, tmp_path / "no" / "where")) == ([out], 2)
    assert make(url, tmp_path / "urls", "--urls", "60") == 0
    told = json.loads((tmp_path / "urls").read_text())["datasets"]
    assert told["/g/dense"]["error"]["kind"] == "unsupported", "only S3 has URLs"


def test_parquet_needs_its_extra(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "hsparse.hdf5.maps.parquet_references", raising=False)
    assert make(url, tmp_path / "out", "--format", "kerchunk-parquet") == 2
    assert 'pip install "hsparse[parquet]"' in capsys.readouterr().err


def array(shape: list[int], chunks: list[int]) -> str:
    return json.dumps({"zarr_format": 2, "shape": shape, "chunks": chunks})


def test_the_reader_finds_every_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_references, "RECORD_ROWS", 7)
    members: list[tuple[str, Any]] = [
        (".zgroup", '{"zarr_format":2}'),
        ("g/.zgroup", '{"zarr_format":2}'),
        ("g/a/.zarray", array([25, 30], [10, 10])),
        ("g/a/.zattrs", "{}"),
        ("g/a/2.1", ["s3://bucket/x", 4, 1 << 40]),
        ("g/a/0.0", ["s3://bucket/y", 0, 9]),
        ("g/b/.zarray", array([3], [4])),
        ("scalar/.zarray", array([], [])),
        ("scalar/0", ["s3://bucket/größe", 8, 8]),
        ("far/.zarray", array([10**12], [1])),
        ("far/999999999999", ["s3://bucket/z", 1, 1]),
    ]
    write_parquet(tmp_path / "out", members)
    found = LazyReferenceMapper(str(tmp_path / "out"))
    for name, value in members:
        is_json = isinstance(value, str)
        assert (json.loads(found[name]) if is_json else found[name]) == (
            json.loads(value) if is_json else value
        )
    for name in ("g/a/0.1", "g/a/1.2", "g/b/0", "far/7"):
        assert name not in found
    names = sorted(path.name for path in (tmp_path / "out" / "g/a").iterdir())
    assert names == ["refs.0.parq", "refs.1.parq"]
    assert [path.name for path in (tmp_path / "out" / "far").iterdir()] == ["refs.142857142857.parq"]


def test_names_that_readers_take_for_metadata(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match=r"begin with \.z"):
        write_parquet(tmp_path / "out", [("g/.zebra/.zarray", array([3], [4]))])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(CHARACTERS) | st.floats(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(CHARACTERS, max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(
    st.dictionaries(st.text(CHARACTERS), JSON),
    st.dictionaries(st.text(CHARACTERS).filter(lambda name: name != "refs"), JSON, max_size=3),
    st.integers(1, 40),
    st.sampled_from([None, 1]),
)
def test_any_cut(refs: dict[str, object], others: dict[str, object], size: int, indent: int | None) -> None:
    data = json.dumps({**others, "refs": refs}, ensure_ascii=False, indent=indent).encode(errors="replace")
    told = json.loads(data)
    members = ReferenceMembers(data[start : start + size] for start in range(0, len(data), size))
    assert dict(members) == told["refs"]
    assert members.others == {name: value for name, value in told.items() if name != "refs"}


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"[]", b"{", b'{"refs"', b'{"refs": {"a": [1, 2', b'{"refs": {"a": 1}'),
        *(b'{"refs": {"a" 1}}', b'{"a": nul}', b'{"refs": {"\xff": 1}}'),
    ],
)
def test_what_is_no_such_json(data: bytes) -> None:
    with pytest.raises(HsparseError):
        list(ReferenceMembers([data]))
