"""Zarr stores, imported and compared with what zarr and anndata read of them, and with the same data from HDF5."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import anndata
import numcodecs
import numpy as np
import pytest
import zarr
from anndata.tests.helpers import assert_equal
from zarr.codecs import BloscCodec, GzipCodec, ZstdCodec

import hsparse
from hsparse.cli.main import main
from tests.cli.importer.conftest import Import, Refused, opened
from tests.client.anndata.anndata_examples import EXAMPLES
from tests.client.anndata.conftest import assert_same
from tests.support.changed_bytes import change_bytes

pytestmark = pytest.mark.filterwarnings("ignore")


def content(file: hsparse.File) -> dict[str, Any]:
    """Return all objects of a domain by their paths: types, values and attributes."""
    found: dict[str, Any] = {}
    ahead: list[tuple[str, Any]] = [("", file)]
    for path, one in ahead:  # which grows
        attributes = {name: described(value) for name, value in one.attrs.items()}
        if hasattr(one, "keys"):
            found[path] = attributes
            ahead += [(f"{path}/{name}", one[name]) for name in one]
        elif isinstance(one, hsparse.SparseDataset):
            coords, values = one.read()
            order = np.lexsort(coords.T[::-1])
            found[path] = attributes, one.shape, str(values.dtype), coords[order].tolist(), str(values[order])
        else:
            with suppress(hsparse.HsparseError):  # a null dataspace
                attributes |= {"[()]": described(one[()])}
            found[path] = attributes
    return found


def described(value: Any) -> tuple[Any, ...]:
    array = np.asarray(value)
    return str(array.dtype), array.shape, str(array.tolist())


def write_zarr(data: anndata.AnnData, path: Path, version: int = 3) -> Path:
    with anndata.settings.override(zarr_write_format=version):
        data.write_zarr(path)
    return path


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_anndata_is_what_its_h5ad_gives(imported: Import, tmp_path: Path, name: str, version: int) -> None:
    EXAMPLES[name]().write_h5ad(tmp_path / "a.h5ad")
    path = write_zarr(EXAMPLES[name](), tmp_path / "a.zarr", version)
    with opened(imported(path)) as found, opened(imported(tmp_path / "a.h5ad")) as expected:
        one, other = content(found), content(expected)
        assert sorted(one) == sorted(other)
        for key in one:
            assert one[key] == other[key], key
        assert_equal(found.to_anndata(), anndata.read_zarr(path))


def test_a_zip_file_and_as_is(imported: Import, tmp_path: Path) -> None:
    path = write_zarr(EXAMPLES["layers"](), tmp_path / "a.zarr")
    packed = Path(shutil.make_archive(str(path), "zip", path))
    with opened(imported(packed)) as file:
        assert_same(file.to_anndata(), anndata.read_zarr(path))
    with opened(imported(path, "--as-is")) as file:
        assert sorted(file["X"]) == ["data", "indices", "indptr"]
    imported(path, "--part", "X", status=2)


@pytest.mark.parametrize("count", [1, 4, 9])
def test_an_import_that_was_stopped_goes_on(
    resumed: Import, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr("hsparse.hdf5.importer.formats.part_upload.MAX_INLINE_BYTES", 100)
    path = write_zarr(EXAMPLES["layers"](), tmp_path / "a.zarr")
    connection = resumed(path, count, "--requests", "2")
    with opened(connection) as file:
        assert_same(file.to_anndata(), anndata.read_zarr(path))
    (path / "X" / "data" / "c" / "0").touch()
    assert main(["import", str(path), str(connection.domain), "--endpoint", connection.url, "--resume"]) == 2


# --- any hierarchy --------------------------------------------------------------------------------

ARRAYS: dict[str, dict[str, Any]] = {
    "numbers": {"shape": (70, 30), "chunks": (16, 11), "dtype": "i4"},
    "big endian": {"shape": (20,), "chunks": (7,), "dtype": ">f8"},
    "half": {"shape": (6, 5, 4), "chunks": (2, 5, 3), "dtype": "f2"},
    "complex": {"shape": (9,), "chunks": (4,), "dtype": "c8"},
    "truth": {"shape": (3, 9), "chunks": (2, 4), "dtype": "bool"},
    "filled": {"shape": (40, 40), "chunks": (10, 10), "dtype": "u2", "fill_value": 7},
    "not a number": {"shape": (40,), "chunks": (10,), "dtype": "f4", "fill_value": np.nan},
    "scalar": {"shape": (), "dtype": "i8"},
    "nothing": {"shape": (0, 5), "chunks": (2, 5), "dtype": "i8"},
    "text": {"shape": (4, 3), "chunks": (2, 2), "dtype": "str"},
    "fixed": {"shape": (8,), "chunks": (3,), "dtype": "U5"},
    "raw": {"shape": (8,), "chunks": (3,), "dtype": "S4"},
    "large chunk": {"shape": (300, 400), "chunks": (500, 500), "dtype": "f8"},
}
SHARDED = {"shape": (64, 48), "chunks": (8, 8), "shards": (32, 16), "dtype": "i2"}
CODECS: dict[int, list[Any]] = {
    2: [numcodecs.Blosc(), numcodecs.Zlib(), numcodecs.LZ4(), numcodecs.BZ2(), None],
    3: [BloscCodec(), GzipCodec(), ZstdCodec(), None],
}


def values_of(array: zarr.Array) -> Any:
    rng = np.random.default_rng(3)
    if array.dtype.kind in "TUS":
        return np.array([f"é{n}" for n in range(int(np.prod(array.shape)))]).reshape(array.shape)
    return (rng.random(array.shape) * 100).astype(array.dtype)


def hierarchy(path: Path, version: int, *, sharded: bool = True) -> zarr.Group:
    root = zarr.create_group(path, zarr_format=version, attributes={"title": "é", "odd": {"a": [1, None]}})
    inner = root.create_group(
        "some group", attributes={"list": [1, 2], "mixed": [1, 2.5], "ragged": [[1], []]}
    )
    inner.attrs.update(
        {"none": None, "true": True, "texts": ["a", "b"], "long": 1 << 70, "pairs": [[1, 2], [3, 4]]}
    )
    arrays = ARRAYS | ({"sharded": SHARDED} if version == 3 and sharded else {})
    for number, (name, options) in enumerate(arrays.items()):
        codec = CODECS[version][number % len(CODECS[version])]
        array = inner.create_array(name, compressors=codec, **options)
        values = values_of(array)
        if array.dtype.kind == "S":
            values = np.char.encode(values, "utf-8")
        array[...] = values
    inner["filled"][10:30, 10:20] = 7  # chunks that are not stored
    return root


@pytest.mark.parametrize("version", [2, 3])
def test_any_hierarchy(imported: Import, tmp_path: Path, version: int) -> None:
    root = hierarchy(tmp_path / "any.zarr", version)
    with warnings.catch_warnings(action="error"):  # zarr's would be seen
        connection = imported(tmp_path / "any.zarr")
    with opened(connection) as file:
        assert dict(file.attrs) == {"title": "é", "odd": '{"a": [1, null]}'}
        group = file["some group"]
        attributes = {name: value for name, value in group.attrs.items() if name != "none"}
        assert {name: np.asarray(value).tolist() for name, value in attributes.items()} == {
            "list": [1, 2],
            "mixed": [1.0, 2.5],
            "ragged": "[[1], []]",
            "true": True,
            "texts": ["a", "b"],
            "long": str(1 << 70),
            "pairs": [[1, 2], [3, 4]],
        }
        for name, array in root["some group"].members():
            found, expected = group[name], np.asarray(array[...])
            assert described(found[()])[1:] == described(expected)[1:], name
            if array.dtype.kind in "iufcb" and array.shape and 0 not in array.shape:
                assert found.dtype == array.dtype, name
                assert found.chunks == tuple(map(min, array.chunks, array.shape)), name
                assert str(found.fillvalue) == str(array.fill_value), name
        assert len(group["filled"].chunks) == 2


FILLED: dict[str, dict[str, Any]] = {
    "truth": {"dtype": "bool", "fill_value": True},
    "complex": {"dtype": "c16", "fill_value": 1 - 2j},
    "raw": {"dtype": "S3", "fill_value": b"ab"},
    "text": {"dtype": "str", "fill_value": "é"},
    "least": {"dtype": "i8", "fill_value": -(1 << 63)},
    "endless": {"dtype": ">f4", "fill_value": -np.inf},
}


@pytest.mark.parametrize("shape", [(), (9,)])
def test_fill_values_of_what_is_not_stored(imported: Import, tmp_path: Path, shape: tuple[int, ...]) -> None:
    root = zarr.create_group(tmp_path / "a.zarr")
    for name, options in FILLED.items():
        root.create_array(name, shape=shape, **({"chunks": (2,)} if shape else {}), **options)
        if shape:
            root[name][2] = np.zeros(1, options["dtype"])[0]
    with opened(imported(tmp_path / "a.zarr")) as file:
        for name in FILLED:
            assert np.asarray(file[name][()]).tolist() == np.asarray(root[name][...]).tolist(), name


def test_one_array_is_a_dataset(imported: Import, tmp_path: Path) -> None:
    values = np.arange(24).reshape(4, 6)
    zarr.save_array(tmp_path / "one.zarr", values)
    with opened(imported(tmp_path / "one.zarr", "--path", "image")) as file:
        assert np.array_equal(file["image"][()], values)


def test_pieces_of_large_chunks(imported: Import, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("zarr_arrays", "part_upload"):
        monkeypatch.setattr(f"hsparse.hdf5.importer.formats.{place}.MAX_REQUEST_BYTES", 3000)
    monkeypatch.setattr("hsparse.hdf5.importer.formats.part_upload.MAX_INLINE_BYTES", 10)
    test_any_hierarchy(imported, tmp_path, 3)


def test_types_that_hdf5_lacks_are_named(
    imported: Import, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = zarr.create_group(tmp_path / "a.zarr")
    root.create_array("when", shape=(3,), dtype="M8[s]")
    root.create_array("kept", shape=(3,), dtype="i4")
    with opened(imported(tmp_path / "a.zarr", status=3)) as file:
        assert sorted(file) == ["kept"]
    assert "/when: HDF5 has no type like datetime64[s]" in capsys.readouterr().err


# --- damage ---------------------------------------------------------------------------------------


def changed(name: str, **members: Any) -> Callable[[Path], None]:
    """Return what changes members of a file of JSON; None removes them."""

    def run(path: Path) -> None:
        described = json.loads((path / name).read_text()) | members
        (path / name).write_text(json.dumps({key: one for key, one in described.items() if one is not None}))

    return run


def written(name: str, data: bytes) -> Callable[[Path], None]:
    return lambda path: (path / name).write_bytes(data) and None


def cut(name: str) -> Callable[[Path], None]:
    return lambda path: (path / name).write_bytes((path / name).read_bytes()[:-3]) and None


def removed(name: str) -> Callable[[Path], None]:
    return lambda path: (path / name).unlink()


def linked(path: Path) -> None:
    removed("X/data/c/0")(path)
    (path / "X/data/c/0").symlink_to("/etc/passwd")


def pickled(path: Path) -> None:
    shutil.rmtree(path)
    root = zarr.create_group(path, zarr_format=2)
    root.create_array("x", shape=(4,), dtype="u1")[...] = 1
    changed("x/.zarray", filters=[{"id": "pickle"}])(path)


def huge(**members: Any) -> Callable[[Path], None]:
    def run(path: Path) -> None:
        changed("X/indices/zarr.json", shape=[1 << 50], **members)(path)
        changed("X/data/zarr.json", shape=[1 << 50], **members)(path)
        shutil.rmtree(path / "X/indices/c")
        pointers = zarr.open_array(path / "X/indptr", mode="r+")
        pointers[...] = np.full(pointers.shape, 1 << 50)
        pointers[0] = 0

    return run


BYTES = [{"name": "bytes", "configuration": {"endian": "little"}}]
GRID = {"name": "regular", "configuration": {"chunk_shape": [1 << 40]}}
DAMAGES: list[tuple[Callable[[Path], None], str]] = [
    (written("zarr.json", b"{"), "/: zarr cannot read it: JSONDecodeError"),
    (removed("zarr.json"), "has no matrix.mtx"),
    (removed("obs/zarr.json"), "/obs has members, such as /obs/_index, but no metadata"),
    (written("X/indices/zarr.json", b"\xff\xfe"), "/X/indices: zarr cannot read it"),
    (changed("X/data/zarr.json", shape=[7]), "/X: The matrix has 7 values"),
    (changed("X/data/zarr.json", shape=[-7]), "/X/data: zarr cannot read it"),
    (changed("X/data/zarr.json", data_type="float99"), "/X/data: zarr cannot read it"),
    (
        changed("X/data/zarr.json", codecs=[{"name": "bytes"}, {"name": "none such"}]),
        "/X/data: zarr cannot read it",
    ),
    (
        changed("X/data/zarr.json", chunk_grid=GRID, codecs=BYTES),  # a shard would have to fit its chunks
        "/X/data: It has chunks of more than 1073741824 bytes",
    ),
    (changed("X/zarr.json", attributes={"encoding-type": "csr_matrix", "shape": [60, 5]}), "/X: "),
    (
        changed("X/zarr.json", attributes={"encoding-type": "csr_matrix", "shape": [61, 23]}),
        "/X: The 61 pointers",
    ),
    (changed("X/zarr.json", attributes={"encoding-type": "csr_matrix", "shape": [60, 1 << 70]}), ""),
    (cut("X/data/c/0"), "/X: It is damaged: zarr cannot read it"),
    (written("X/indices/c/0", b"no"), "/X: It is damaged: zarr cannot read it"),
    (removed("X/indices/c/0"), "/X: Some indices of the matrix are missing"),
    (removed("X/indptr/c/0"), "/X: The 61 pointers do not ascend"),
    (cut("obs/_index/c/0"), "/obs/_index: It is damaged"),
    (linked, "c/0 is a link, or no file"),
    (pickled, "/x: Its values are pickles"),
    (huge(), "/X: "),
    (huge(data_type="int8"), "/X: "),
    (changed("uns/zarr.json", attributes={"": 1}), "An attribute's name must be text of 1 to"),
]


@pytest.mark.parametrize(("damage", "said"), DAMAGES)
def test_a_damaged_store_is_refused(refused: Refused, tmp_path: Path, damage: Any, said: str) -> None:
    path = write_zarr(EXAMPLES["plain"](), tmp_path / "a.zarr")
    damage(path)
    errors = refused(path)
    assert said in errors
    assert "Traceback" not in errors


def test_chunks_beyond_the_extent_and_of_arrays_without_end(imported: Import, tmp_path: Path) -> None:
    """What is not stored is not read, whatever the extent."""
    root = zarr.create_group(tmp_path / "a.zarr")
    array = root.create_array("x", shape=(1 << 40, 1 << 20), chunks=(100, 100), dtype="i4", fill_value=3)
    array[150, 150] = 5
    shutil.copy(tmp_path / "a.zarr/x/c/1/1", tmp_path / "a.zarr/x/c/1/12345678")
    (tmp_path / "a.zarr/x/c/1/01").write_bytes(b"no chunk")
    with opened(imported(tmp_path / "a.zarr")) as file:
        assert file["x"].shape == array.shape
        assert np.array_equal(file["x"][100:200, 100:200], array[100:200, 100:200])
        assert file["x"][1 << 39, 7] == 3


@pytest.mark.parametrize("name", ["..", "a\nb", "é", "x" * 200, "%2F", "c", "zarr"])
def test_hostile_names(imported: Import, tmp_path: Path, name: str) -> None:
    root = zarr.create_group(tmp_path / "a.zarr", attributes={"a/b": [1], name: "x"})
    root.create_array("one", shape=(3,), dtype="i4")[...] = 5
    if name == "..":
        (tmp_path / "zarr.json").write_text((tmp_path / "a.zarr/one/zarr.json").read_text())
    else:
        (tmp_path / "a.zarr/one").rename(tmp_path / "a.zarr" / name)
    with opened(imported(tmp_path / "a.zarr")) as file:
        assert sorted(file) == [name if name != ".." else "one"]
        assert dict(file.attrs)[name] == "x"


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("version", [2, 3])
def test_a_store_with_other_bytes_is_refused_or_read_as_zarr_does(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], version: int, seed: int
) -> None:
    root = hierarchy(tmp_path / "a.zarr", version, sharded=False)
    rng = np.random.default_rng(seed)
    files = sorted(path for path in (tmp_path / "a.zarr").rglob("*") if path.is_file())
    for path in rng.choice(np.array(files), 3):
        change_bytes(path, rng, 1)
    domain = f"/home/admin/zarr-{version}-{seed}-damaged.h5"
    if main(["import", str(tmp_path / "a.zarr"), domain, "--endpoint", url]) == 2:
        assert "/" in capsys.readouterr().err
        return
    root = zarr.open_group(tmp_path / "a.zarr", mode="r", use_consolidated=False)
    with hsparse.open(f"{url}{domain}") as file:
        for name in file["some group"]:
            found, expected = file["some group"][name][()], np.asarray(root["some group"][name][...])
            assert described(found)[1:] == described(expected)[1:], name
