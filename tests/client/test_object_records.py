"""Soft and external links through everything of the client that lists members, beside h5py on the exported files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
import xarray
from anndata.tests.helpers import assert_equal
from argon2 import PasswordHasher
from scipy.sparse import csr_array

import hsparse
from hsparse.cli.embedded_server import embedded_server
from hsparse.cli.main import main
from hsparse.client.connection import Connection
from hsparse.client.file import File
from hsparse.config import load_settings
from hsparse.sn.auth.password_file import PasswordFile, User
from tests.client.access_ways import open_file

SOFT = {
    "soft": "/d", "relative": "g/x", "chain": "/soft", "group": "/g", "through": "group/x", "g/here": "x",
    "g/up": "/g", "round": "/around", "around": "/round", "none": "/no/where", "below": "/d/x",
    "dots": "g/../d",
}  # fmt: skip
EXTERNAL = {
    "e": ("other.h5", "/X"),
    "whole": ("other.h5", "/"),
    "nofile": ("none.h5", "/X"),
    "nopath": ("other.h5", "/no"),
    "again": ("other.h5", "/back"),
    "self": ("main.h5", "/g/x"),
}


def fill(main: Any, other: Any, kinds: Any) -> None:
    """Write the same objects and links by h5py or by hsparse."""
    other["X"] = np.array([5, 6])
    other["back"] = kinds.ExternalLink("main.h5", "/e")
    main["d"] = np.array([1, 2, 3])
    main.create_group("g")["x"] = np.array([4])
    for path, target in SOFT.items():
        above, _, title = path.rpartition("/")
        main[above or "/"][title] = kinds.SoftLink(target)
    for title, (file, target) in EXTERNAL.items():
        main[title] = kinds.ExternalLink(file, target)


@pytest.fixture
def judge(tmp_path: Path) -> Iterator[h5py.File]:
    with h5py.File(tmp_path / "other.h5", "w") as other, h5py.File(tmp_path / "main.h5", "w") as main:
        fill(main, other, h5py)
    with h5py.File(tmp_path / "main.h5") as main:
        yield main


@pytest.fixture(params=["written", "imported"])
def linked(
    connection: Connection, judge: h5py.File, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[File]:
    """A domain of hsparse whose links are those of the file of `judge`."""
    folder = connection.for_domain(f"{connection.domain}.d")
    folder.json("PUT", "/", {"folder": 1})
    paths = [f"{folder.domain}/{name}.h5" for name in ("main", "other")]
    if request.param == "imported":
        for path in paths:
            file = str(tmp_path / path.rpartition("/")[2])
            # 3: links lead to what is not imported yet, or nowhere
            assert main(["import", file, path, "--endpoint", connection.url, "--quiet"]) in (0, 3)
        files = [hsparse.open(f"{connection.url}{path}") for path in paths]
    else:
        files = [hsparse.open(f"{connection.url}{path}", "x") for path in paths]
        fill(*files, hsparse)
    assert isinstance(files[0], File)
    with files[0], files[1]:
        yield files[0]


def contents(group: Any, path: str) -> list[int] | str | None:
    """Return the values of a dataset, "group", or None for a link that leads to nothing."""
    try:
        found = group[path]
    except KeyError:
        return None
    except RuntimeError:  # of h5py, of a circle
        return None
    return found[:].tolist() if hasattr(found, "shape") else "group"


def is_in(judge: h5py.File, path: str) -> bool:
    """Say what h5py's `in` does; it raises for some paths through links that lead to nothing."""
    try:
        return path in judge
    except RuntimeError:
        return False


def test_every_link_leads_where_h5py_follows_it(linked: File, judge: h5py.File) -> None:
    names = [
        *SOFT, *EXTERNAL, "group/here", "whole/X", "whole/back", "none/x", "nofile/x", "e/x", "g/up/up/x",
    ]  # fmt: skip
    assert {name: contents(linked, name) for name in names} == {name: contents(judge, name) for name in names}
    assert {name: name in linked for name in names} == {name: is_in(judge, name) for name in names}
    assert (list(linked), linked["e"].name) == (list(judge), judge["e"].name)
    assert linked["whole"]["X"].name == judge["whole"]["X"].name
    for path, reason in (
        ("nofile", r"leads to /.*\.d/none\.h5"),
        ("nopath", "'no' on the path '/no'"),
        ("none", "'/no/where'"),
        ("round", "cycle"),
        ("missing", r"There is no object /missing in /[^ ]*main.h5\.$"),
    ):
        with pytest.raises(KeyError) as failure:
            linked[path]
        assert re.search(reason, failure.value.args[0])


def test_an_export_has_the_same_links(linked: File, judge: h5py.File, tmp_path: Path) -> None:
    names = [*SOFT, *EXTERNAL, "whole/X", "group/here"]
    (tmp_path / "out").mkdir()
    for name in ("main", "other"):
        domain = str(linked.connection.domain).replace("main", name)
        out = str(tmp_path / "out" / f"{name}.h5")
        assert main(["export", domain, out, "--endpoint", linked.connection.url]) == 0
    with h5py.File(tmp_path / "out" / "main.h5") as file:
        assert {name: contents(file, name) for name in names} == {
            name: contents(judge, name) for name in names
        }


def test_items_survive_links_that_lead_to_nothing(linked: File) -> None:
    found = dict(linked.items())
    broken = {name for name, member in found.items() if member is None}
    assert broken == {"round", "around", "none", "below", "dots", "nofile", "nopath"}
    assert list(found) == list(linked)
    assert [member is None for member in linked.values()] == [name in broken for name in found]
    assert linked.get("none", 7) == 7
    del linked["none"]
    assert "none" not in linked


def test_objects_are_created_through_soft_links(linked: File) -> None:
    linked.create_dataset("group/new", data=[7])
    linked.create_sparse("g/up/sparse", (4,), "i4", (4,))
    linked.create_group("group/deep/er")
    assert linked["g/new"][0] == 7  # type: ignore[index]
    assert {"new", "sparse", "deep"} < set(linked["g"])  # type: ignore[arg-type]
    assert hsparse.SparseDataset.open(linked.connection, "/group/sparse").shape == (4,)
    for path in ("none/x", "round/x", "soft/x", "whole/x"):
        with pytest.raises(hsparse.errors.HsparseError):
            linked.create_group(path)


def test_records_follow_links(linked: File) -> None:
    found = linked.records()
    ids = {path: record["id"] for path, record in found.items()}
    assert ids["soft"] == ids["chain"] == ids["d"]
    assert ids["relative"] == ids["through"] == ids["self"] == ids["group/here"] == ids["g/x"]
    assert ids["e"] == ids["whole/X"] == ids["again"] == ids["whole/back"]
    assert ids["group/up"] == ids["g"]
    assert {"none", "round", "around", "below", "dots", "nofile", "nopath", "group/up/x"}.isdisjoint(ids)
    assert linked["g"].records().keys() == {"x", "here", "up"}  # type: ignore[union-attr]


def test_groups_that_link_to_each_other_are_listed_in_bounded_time(
    linked: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twelve groups with links to all have 12! paths."""
    monkeypatch.setattr("hsparse.client.object_records.MAX_ENTERED", 500)
    many = linked.create_group("many")
    for number in range(12):
        group = many.create_group(str(number))
        bodies = {str(one): {"h5path": f"/many/{one}"} for one in range(12)}
        linked.connection.json("PUT", f"/groups/{group.id}/links", {"links": bodies})
    found = many.records()
    assert {str(number) for number in range(12)} <= found.keys()
    assert {f"{one}/{two}" for one in range(12) for two in range(12)} <= found.keys()
    assert len(found) < 1000


def test_who_may_not_read_the_other_domain_gets_none_of_it(tmp_path: Path) -> None:
    passwords = tmp_path / "passwords"
    hasher = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    for name in ("ann", "ben"):
        PasswordFile(passwords).put(User(name, hasher.hash("secret")))
    settings = load_settings(root=tmp_path / "store", port=0, fsync=False, password_file=passwords)
    with embedded_server(settings) as url:
        for name, other in (("ann", "ben"), ("ben", "ann")):
            with open_file(f"{url}/home/{name}/x.h5", "x", user=name, password="secret") as file:
                file["d"] = [1]
                file["e"] = hsparse.ExternalLink(f"../{other}/x.h5", "/d")
                file["whole"] = hsparse.ExternalLink(f"/home/{other}/x.h5", "/")
        with open_file(f"{url}/home/ann/x.h5", user="ann", password="secret") as file:
            with pytest.raises(PermissionError):
                file["e"]
            assert "e" in file
            assert "e/x" not in file
            assert dict(file.items())["e"] is file.get("whole") is None
            assert file.records().keys() == {"d"}
            file.connection.json("PUT", "/acls/default", {"read": True})
        with hsparse.open(f"{url}/home/ben/x.h5", user="ben", password="secret") as file:
            assert file["e"][0] == 1  # type: ignore[index]


def test_xarray_has_linked_variables(linked: File) -> None:
    with pytest.warns(UserWarning, match="is left out: it is a link to an object that does not exist"):
        opened = xarray.open_dataset(linked, engine="hsparse")
    with opened as data:
        assert {"d", "soft", "chain", "relative", "through", "e", "again", "self"} == set(data)
        assert (data["soft"].values.tolist(), data["e"].values.tolist()) == ([1, 2, 3], [5, 6])
    with xarray.open_dataset(linked, engine="hsparse", group="whole") as data:
        assert data["X"].values.tolist() == [5, 6]


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("kind", ["sparse", "dense"])
@pytest.mark.parametrize("far", [False, True])
def test_linked_elements_are_those_of_read_h5ad(
    connection: Connection, tmp_path: Path, far: bool, kind: str, lazy: bool
) -> None:
    values = np.array([[1.0, 0, 2], [0, 0, 3]], np.float32)
    cells = anndata.AnnData(
        csr_array(values) if kind == "sparse" else values,
        pd.DataFrame({"n": [1, 2]}, index=["c0", "c1"]),
        pd.DataFrame(index=["g0", "g1", "g2"]),
        obsm={"pca": np.ones((2, 2))},
        uns={"note": "deep", "set": {"k": 7}},
    )
    folder = f"{connection.domain}.d"
    connection.for_domain(folder).json("PUT", "/", {"folder": 1})
    for name in ("far", "cells"):
        file = tmp_path / f"{name}.h5ad"
        cells.write_h5ad(file)
        if name == "cells":
            link = partial(h5py.ExternalLink, "far.h5ad") if far else h5py.SoftLink
            with h5py.File(file, "r+") as opened:
                for path, target in {
                    "layers/counts": "X",
                    "obsm/again": "obsm/pca",
                    "uns/other": "uns/set",
                }.items():
                    opened[path] = link(f"/{target}")
        assert (
            main(["import", str(file), f"{folder}/{name}.h5ad", "--endpoint", connection.url, "--quiet"]) == 0
        )
    domain = open_file(f"{connection.url}{folder}/cells.h5ad")
    domain["uns"]["gone"] = hsparse.SoftLink("/uns/none")  # type: ignore[index]
    found = domain.to_anndata(lazy=lazy)
    expected = anndata.read_h5ad(file)
    assert set(expected.layers) - {None} == {"counts"}
    assert_equal(found.to_memory() if lazy else found, expected)
    assert domain.query("n > 1", layer="counts").to_anndata().X.sum() == 3
