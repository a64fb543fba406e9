"""`hsparse.open`: domains and folders of a server, their rights, and what threads and processes share."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import scipy.sparse as sp
import xarray

import hsparse
from hsparse.cli.embedded_server import embedded_server
from hsparse.client.acls import RIGHTS
from hsparse.client.connection import Connection
from hsparse.client.file import File
from hsparse.client.integrations.direct.direct_elements import DirectElements
from hsparse.client.opening import Folder, Mode
from hsparse.client.sources.chosen_elements import ChosenElements
from hsparse.client.sources.http_elements import HttpElements
from hsparse.storage.store_settings import StoreSettings
from tests.client.access_ways import open_file, plain_settings


def test_modes(url: str) -> None:
    address = f"{url}/modes.h5"
    with pytest.raises(KeyError, match="mode='a'") as missing:
        hsparse.open(address)
    assert isinstance(missing.value, hsparse.NotFound)
    hsparse.open(address, "x").create_group("first")  # type: ignore[union-attr]
    with pytest.raises(FileExistsError):
        hsparse.open(address, "x")
    assert (list(hsparse.open(address, "a")), list(hsparse.open(address, "w"))) == (["first"], [])
    with pytest.raises(ValueError, match="mode"):
        hsparse.open(address, "rw")  # type: ignore[arg-type]


def test_a_folder_lists_what_is_in_it(url: str) -> None:
    top: Any = hsparse.open(url)
    made = top.create_folder("runs")
    with pytest.raises(FileExistsError):
        top.create_folder("runs")
    hsparse.open(f"{url}/runs/b.h5", "x")
    hsparse.open(f"{url}/runs/a.h5", "x")
    assert (list(made), len(made)) == (["a.h5", "b.h5"], 2)
    assert isinstance(made["a.h5"], File)
    assert isinstance(top["runs"], Folder)
    assert "runs" in top
    with pytest.raises(KeyError):
        made["none.h5"]


def test_the_server_may_be_named_apart(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hsparse.open("/apart.h5", "x", endpoint=url)
    monkeypatch.setenv("HS_ENDPOINT", url)
    assert isinstance(hsparse.open("hdf5://apart.h5"), File)
    assert isinstance(hsparse.open("/apart.h5"), File)


def test_a_path_into_a_store_s_directory_is_read_in_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is found above the path, wherever the process stands; nobody has named it."""
    with embedded_server(plain_settings(StoreSettings(root=tmp_path / "data", fsync=False))) as url:
        top: Any = hsparse.open(url)
        top.create_folder("home")
        hsparse.open(f"{url}/home/x.h5", "x").close()
        with pytest.raises(hsparse.HsparseError, match="open the server's URL"):
            hsparse.open(tmp_path / "data/home/x.h5")
    monkeypatch.chdir(tmp_path)
    matrix = sp.random_array((30, 20), density=0.3, rng=1, format="csr")
    with open_file("data/home/x.h5") as file:
        x = file.create_sparse("x", matrix.shape, "f8", (10, 20))
        x[...] = matrix
        assert (x[[5, 3], ::-1] != matrix[[5, 3]][:, ::-1]).nnz == 0
    monkeypatch.chdir(tmp_path / "data/home")
    with open_file("new.h5", "x") as file:
        file["dense"] = np.arange(3)
    with open_file(tmp_path / "data/home/x.h5") as file:
        again: Any = file["x"]
        assert (again[...] != matrix).nnz == 0
        assert isinstance(again.source, ChosenElements)
        assert isinstance(again.source.chosen, DirectElements)
    folder: Any = hsparse.open(".")
    assert list(folder) == ["new.h5", "x.h5"]
    folder.close()
    with pytest.raises(KeyError, match=r"no domain /home/none\.h5"):
        hsparse.open("none.h5")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="directory of a store"):
        hsparse.open("elsewhere/x.h5")
    assert not list((tmp_path / "data/.hsparse/servers").iterdir())


def test_values_are_read_as_the_caller_says(url: str) -> None:
    """A few elements come from the server; more of them past it, where the caller or the way allows it."""
    file = open_file(f"{url}/ways.h5", "x")
    made = file.create_sparse("x", (200, 100), "f4", (50, 100))
    made.write_region("[0:200,0:100:2]", 1.0)
    for direct, kind in ((False, HttpElements), (None, DirectElements)):
        opened = open_file(f"{url}/ways.h5", direct=direct)
        x: Any = opened["x"]
        assert isinstance(x.source, ChosenElements)
        assert (x[7, 4], "chosen" in vars(x.source)) == (1, direct is False)
        assert x.read()[1].sum() == 10_000
        assert isinstance(x.source.chosen, kind)


def delete(address: str) -> None:
    with hsparse.open(address) as file:
        file.connection.json("DELETE", "/")


@pytest.mark.parametrize("mode", ["w", "x", "w-", "a"])
def test_a_deleted_domain_is_created_again(url: str, mode: Mode) -> None:
    address = f"{url}/deleted-{mode}.h5"
    with open_file(address, "x") as file:
        file["x"] = [1, 2]
    delete(address)
    with hsparse.open(address, mode) as file:
        assert list(file) == []


def test_what_was_deleted_is_missing(url: str) -> None:
    """The server says 410 where it remembers a deletion: for Python it is as what was never there."""
    address = f"{url}/was-there.h5"
    hsparse.open(address, "x").close()
    delete(address)
    top = hsparse.open(url)
    for mode in ("r", "r+"):
        with pytest.raises(FileNotFoundError, match="mode='a'"):
            hsparse.open(address, mode)
    with pytest.raises(KeyError):
        top["was-there.h5"]
    assert "was-there.h5" not in top
    assert top.get("was-there.h5") is None
    with pytest.raises(FileNotFoundError):
        xarray.open_dataset(address, engine="hsparse")
    assert not fsspec.filesystem("hsparse", endpoint=url).exists("/was-there.h5")

    with open_file(f"{url}/objects.h5", "x") as file:
        group, file["x"] = file.create_group("g"), [1]
        for path, object in (("g", group), ("x", file["x"])):
            file.connection.json("DELETE", f"/{'groups' if path == 'g' else 'datasets'}/{object.id}")
            assert file.get(path) is None
            with pytest.raises(KeyError, match=f"no object /{path}"):
                file[path]
        with pytest.raises(hsparse.NotFound):
            group.attrs["a"] = 1
        with pytest.raises(hsparse.NotFound):
            list(group)


def test_mode_r_reads(url: str) -> None:
    address = f"{url}/read.h5"
    with open_file(address, "x") as file:
        file.create_sparse("x", (4, 5), "f4", (2, 5))[0, :2] = [1, 2]
        file["d"] = [1, 2]
    with open_file(address, "r", username="ann", password="any") as file:
        x, dense = file["x"], file["d"]
        assert isinstance(x, hsparse.SparseDataset)
        assert isinstance(dense, hsparse.DenseDataset)
        assert (file.mode, x.sum(), x.read_points([[0, 1]])[0], x.count("[0,:]")) == ("r", 3, 2, 2)
        for change in (
            lambda: file.create_group("g"),
            lambda: file.create_dataset("e", data=[1]),
            lambda: x.write([[0, 0]], [1]),
            lambda: x.erase("[0,:]"),
            lambda: x.extend(1),
            lambda: dense.__setitem__(0, 5),
            lambda: file.attrs.update(a=1),
            lambda: file.__delitem__("d"),
        ):
            with pytest.raises(ValueError, match="mode 'r'"):
                change()
    assert sorted(hsparse.open(address)) == ["d", "x"]
    with pytest.raises(ValueError, match="the same"):
        hsparse.open(address, user="ann", username="ann")


def test_what_was_closed_refuses(url: str) -> None:
    with open_file(f"{url}/closed.h5", "x") as file:
        x, group = file.create_sparse("x", (4, 5), "f4", (2, 5)), file.create_group("g")
        file["d"] = np.arange(3)
        dense = file["d"]
        assert all((file, x, group, dense))
    assert not any((file, x, group, dense))
    for use in (
        lambda: file["x"],
        lambda: list(group),
        lambda: x[0],
        lambda: x.append(np.ones((1, 5), "f4")),
        lambda: x.sum(),
        lambda: dense[...],
        lambda: dense.attrs["a"],
    ):
        with pytest.raises(ValueError, match=r"closed\.h5 is closed"):
            use()
    assert "closed" in repr(file)
    assert file.filename == "/closed.h5"


def test_a_folder_is_a_context(url: str) -> None:
    with hsparse.open(url) as top:
        assert isinstance(top, Folder)
        made = top.create_folder("context")
        hsparse.open(f"{url}/context/a.h5", "x").close()
        with top["context/a.h5"] as file:
            assert isinstance(file, File)
        assert list(made) == ["a.h5"]
    with pytest.raises(ValueError, match="closed"):
        list(top)


def test_rights_are_a_mapping(url: str) -> None:
    with hsparse.open(url) as top:
        assert isinstance(top, Folder)
        folder = top.create_folder("acls")
        with open_file(f"{url}/acls/a.h5", "x", user="ann") as file:
            for place in (folder, file):
                before = set(place.acls)
                place.acls["bob"] = ["read", "update"]
                place.acls["g:team"] = "read"
                assert place.acls["bob"] == {"read", "update"}
                assert set(place.acls) - before == {"bob", "g:team"}
                place.acls["bob"] = []
                assert (place.acls["bob"], place.acls["g:team"]) == (set(), {"read"})
                assert "nobody" not in place.acls
                assert place.acls.get("nobody") is None
                with pytest.raises(KeyError, match="nobody"):
                    place.acls["nobody"]
                del place.acls["g:team"]
                assert "g:team" not in place.acls
                with pytest.raises(KeyError, match="g:team"):
                    del place.acls["g:team"]
                with pytest.raises(ValueError, match="'write'"):
                    place.acls["bob"] = ["read", "write"]
            assert file.acls[file.owner] == set(RIGHTS)
        with open_file(f"{url}/acls/a.h5", "r") as file, pytest.raises(ValueError, match="mode 'r'"):
            file.acls["bob"] = RIGHTS


ROOT = Path(__file__).parents[2]
PLACES, VALUES = [[0, 1], [3, 3]], [5.0, 7.0]


@pytest.fixture
def pickled(connection: Connection) -> Iterator[hsparse.File]:
    address = f"{connection.url}{connection.domain}"
    with open_file(address, user="ada", password="secret of ada") as found:
        found.create_group("run", {"title": "first", "numbers": [1, 2]})
        found.create_dataset("run/dense", data=np.arange(10))
        found.create_dataset("run/words", data=["a", "ü"])
        found.create_sparse("run/sparse", (4, 4), "f4", (2, 2)).write(PLACES, VALUES)
        yield found


def members(pickled: hsparse.File) -> list[Any]:
    run = pickled["run"]
    return [pickled, run, run.attrs, *(pickled[f"run/{name}"] for name in ("dense", "words", "sparse"))]


def content(found: list[Any]) -> list[Any]:
    pickled, run, attrs, dense, words, sparse = found
    return [
        list(pickled), sorted(run), attrs["title"], attrs["numbers"].tolist(), dense[2:5].tolist(),
        words[:].tolist(), [part.tolist() for part in sparse.read()], dense.attrs.get("none"),
    ]  # fmt: skip


WANTED = [
    ["run"], ["dense", "sparse", "words"], "first", [1, 2], [2, 3, 4], ["a", "ü"], [PLACES, VALUES], None,
]  # fmt: skip


def test_a_pickle_of_each_object_works_and_has_the_credentials(pickled: hsparse.File) -> None:
    assert content(members(pickled)) == WANTED
    data = pickle.dumps(members(pickled))
    copies = pickle.loads(data)
    assert (content(copies), copies[0].connection._headers) == (WANTED, pickled.connection._headers)
    assert all("secret" not in repr(one) for one in copies)
    copies[5].write([[1, 1]], [9])
    assert copies[5].count() == 3
    copies[0].close()


def test_a_pickle_keeps_what_was_known(pickled: hsparse.File) -> None:
    dataset: Any = pickled["run/dense"]
    copy = pickle.loads(pickle.dumps(dataset))
    assert (copy.shape, copy.dtype, copy.name, copy.id) == ((10,), dataset.dtype, "/run/dense", dataset.id)


def test_a_folder_can_be_pickled(url: str) -> None:
    top = pickle.loads(pickle.dumps(hsparse.open(url)))
    assert isinstance(top, Folder)
    assert isinstance(list(top), list)
    top.close()


def test_threads_share_objects(pickled: hsparse.File) -> None:
    found = members(pickled)
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: content(found), range(40)))
    assert all(result == WANTED for result in results)


def share_with_forks(found: list[Any]) -> None:
    assert content(found) == WANTED  # its connections are open
    with multiprocessing.get_context("fork").Pool(2) as pool:
        waiting = [pool.apply_async(content, [found]) for _ in range(4)]
        assert content(found) == WANTED
        assert all(one.get(30) == WANTED for one in waiting)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_shares_objects(pickled: hsparse.File) -> None:
    """In a process without the threads of servers: what these hold at a fork, the fork never gets."""
    program = f"import pickle, sys; from {__name__} import *; share_with_forks(pickle.load(sys.stdin.buffer))"
    found = pickle.dumps(members(pickled))
    subprocess.run([sys.executable, "-c", program], input=found, cwd=ROOT, check=True, timeout=60)
