from __future__ import annotations

import pickle

import fsspec
import h5py
import numpy as np
import pytest

import hsparse
from hsparse.client.http.sign_in import SignIn
from hsparse.client.integrations.fsspec_filesystem import HsparseFileSystem
from hsparse.errors import PreconditionFailed

SMALL = {"block_size": 4096}


@pytest.fixture(scope="module")
def place(url: str) -> str:
    """The server as fsspec names it; it has /lab/a.h5, /lab/deep/b.h5."""
    top = hsparse.open(url)
    assert isinstance(top, hsparse.Folder)
    top.create_folder("lab").create_folder("deep")
    for name in ("a.h5", "deep/b.h5"):
        file = hsparse.open(f"{url}/lab/{name}", "x")
        assert isinstance(file, hsparse.File)
        file.create_dataset("run/x", data=np.arange(10_000))
        file.create_sparse("y", (30, 30), "f4", (10, 10)).write([[3, 4]], [5])
    return url.replace("http://", "hsparse://")


@pytest.fixture(scope="module")
def system(place: str) -> HsparseFileSystem:
    found = fsspec.filesystem("hsparse", endpoint=place.replace("hsparse", "http"))
    assert isinstance(found, HsparseFileSystem)
    return found


def test_h5py_reads_a_domain(place: str) -> None:
    with fsspec.open(f"{place}/lab/a.h5", **SMALL) as raw, h5py.File(raw) as file:
        assert np.array_equal(file["run/x"][...], np.arange(10_000))
        assert file["y"][3, 4] == 5


def test_folders_are_listed(place: str, system: HsparseFileSystem) -> None:
    assert system.ls("/lab", detail=False) == ["/lab/a.h5", "/lab/deep"]
    assert [one["type"] for one in system.ls(f"{place}/lab")] == ["file", "directory"]
    assert system.glob("/lab/**/*.h5") == ["/lab/a.h5", "/lab/deep/b.h5"]
    assert system.ls("/lab/a.h5", detail=False) == ["/lab/a.h5"]
    assert "/lab" in system.ls("/", detail=False)
    assert system.isdir("/")
    assert system.isdir("/lab/deep/")
    assert system.unstrip_protocol("/lab/a.h5") == f"{place}/lab/a.h5"


def test_what_a_file_is(place: str, system: HsparseFileSystem) -> None:
    info = system.info("/lab/a.h5")
    assert info["size"] == len(system.cat_file("/lab/a.h5"))
    assert info["type"] == "file"
    assert system.cat_file("/lab/a.h5", 1, 4) == b"HDF"
    assert system.ukey("/lab/a.h5") == info["etag"]
    assert system.checksum("/lab/a.h5") != system.checksum("/lab/deep/b.h5")
    assert not system.exists("/lab/none.h5")
    for path in ("/lab/none.h5", "/none/none.h5"):
        with pytest.raises(FileNotFoundError, match="none"):
            system.open(path)
        with pytest.raises(FileNotFoundError, match="none"):
            system.ls(path)


def test_ranges_are_of_one_state(url: str, place: str) -> None:
    hsparse.open(f"{url}/changing.h5", "x").create_dataset("x", data=np.arange(100_000))  # type: ignore[union-attr]
    with fsspec.open(f"{place}/changing.h5", cache_type="none") as file:
        assert file.read(8) == b"\x89HDF\r\n\x1a\n"
        hsparse.open(f"{url}/changing.h5")["x"][5] = 1  # type: ignore[index]
        with pytest.raises(PreconditionFailed, match="changed"):
            file.read()
    with fsspec.open(f"{place}/changing.h5") as raw, h5py.File(raw) as again:
        assert again["x"][5] == 1


def test_it_can_be_pickled(system: HsparseFileSystem) -> None:
    file = pickle.loads(pickle.dumps(system)).open("/lab/a.h5")
    assert file.read(4) == b"\x89HDF"
    assert file.blocksize == 1 << 20
    with pickle.loads(pickle.dumps(file)) as copy:
        assert copy.read(4) == b"\r\n\x1a\n"


def test_the_form_is_an_option(place: str) -> None:
    options = {"layout": "structured", "user": "ada", "password": "any"}
    with fsspec.open(f"{place}/lab/a.h5", **options) as raw, h5py.File(raw) as file:
        assert np.array_equal(file["run/x"][:3], [0, 1, 2])
    with pytest.raises(hsparse.BadRequest):
        fsspec.open(f"{place}/lab/a.h5", layout="none").open()


def test_https_has_a_protocol_of_its_own() -> None:
    system = fsspec.filesystem(
        "hsparse+https", **HsparseFileSystem._get_kwargs_from_urls("hsparse+https://h/x")
    )
    assert system.endpoint == "https://h"
    assert system.unstrip_protocol("/x.h5") == "hsparse+https://h/x.h5"


def test_it_is_read_only_and_needs_a_server(
    system: HsparseFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NotImplementedError, match=r"hsparse\.open"):
        system.open("/lab/a.h5", "wb")
    monkeypatch.setattr("hsparse.client.integrations.fsspec_filesystem.read_sign_in", SignIn)
    with pytest.raises(ValueError, match="Name a server"):
        HsparseFileSystem(skip_instance_cache=True)
