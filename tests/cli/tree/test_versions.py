"""Commands about the past of domains, and others that read it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import h5py
import pytest

import hsparse
from hsparse.cli.main import main
from hsparse.client.connection import Connection
from tests.cli.tree.conftest import Run


@pytest.fixture
def old(run: Run, folder: str, embedded_url: str) -> str:
    """A domain of which there are two snapshots, and changes after each."""
    path = f"{folder}/run.h5"
    with hsparse.open(embedded_url + path, "w") as file:
        assert isinstance(file, hsparse.File)
        file["x"] = [1, 2, 3]
        assert run("snapshot", path, "-m", "raw\n\x1b[31mred") == [f"took {path}@1"]
        file["x"][0] = 10
        file["y"] = [1.5]
        assert run("snapshot", path) == [f"took {path}@2"]
        file["y"][0] = 2.5
    return path


def test_snapshots_are_listed_compared_and_deleted(run: Run, old: str, embedded_url: str) -> None:
    newest, oldest = run("log", old)
    assert re.fullmatch(rf"{old}@2 \d{{4}}-\S+Z admin", newest)
    assert re.fullmatch(rf"{old}@1 \d{{4}}-\S+Z admin raw", oldest)
    found = [json.loads(line) for line in run("log", "--json", old)]
    assert [(one["path"], one["snapshot"], one["message"]) for one in found] == [
        (f"{old}@2", 2, ""),
        (f"{old}@1", 1, "raw\n\x1b[31mred"),
    ]
    changed = {
        "changed group /",
        "changed dataset /x: 1 chunk, 1 element",
        "created dataset /y: 1 chunk, 1 element",
    }
    assert changed == set(run("diff", f"{old}@1", f"{old}@2"))
    (said,) = run("diff", old)
    assert said == "changed dataset /y: 1 chunk, 1 element"
    (y,) = map(json.loads, run("diff", "--json", f"{old}@2", old))
    assert (y["kind"], y["path"], y["change"], y["chunks"]) == ("dataset", "/y", "changed", 1)
    with hsparse.open(embedded_url + old) as file:
        file["y"][0] = 1.5
    assert run("diff", old) == []
    assert run("snapshot", "-d", f"{old}@1", f"{old}@2") == [f"deleted {old}@1", f"deleted {old}@2"]
    assert run("log", old) == []
    (said,) = run("diff", old, status=2)
    assert said.endswith(f"{old} has no snapshots; take one by hsparse snapshot {old}")


def test_a_domain_is_restored(run: Run, old: str, embedded_url: str) -> None:
    (said,) = run("restore", f"{old}@1")
    assert re.fullmatch(rf"restored {old} from {old}@1: \d+ objects; {old}@3 is what it was before", said)
    with hsparse.open(embedded_url + old) as file:
        assert (list(file), file["x"][:].tolist()) == (["x"], [1, 2, 3])
    assert json.loads(run("restore", "--json", f"{old}@2")[0])["from"] == f"{old}@2"
    with hsparse.open(embedded_url + old) as file:
        assert (file["x"][:].tolist(), file["y"][:].tolist()) == ([10, 2, 3], [1.5])


def test_a_clone_shares_until_it_is_materialized(run: Run, old: str, folder: str, embedded_url: str) -> None:
    clone = f"{folder}/clone.h5"
    assert run("clone", f"{old}@1", clone) == [f"cloned {old}@1 to {clone}"]
    assert run("log", old)[1].endswith(f"admin raw (cloned: {clone})")
    (said,) = run("snapshot", "-d", f"{old}@1", status=2)
    assert f"The clone {clone} needs snapshot 1" in said
    with hsparse.open(embedded_url + clone) as file:
        assert file["x"][:].tolist() == [1, 2, 3]
        file["x"][0] = 7
    with hsparse.open(embedded_url + old, snapshot=1) as file:
        assert file["x"][:].tolist() == [1, 2, 3]
    assert run("log", clone) == [f"{clone} is a clone of {old}@1"]
    (said,) = run("clone", "--materialize", "--json", clone)
    done = json.loads(said)
    assert done.pop("copied") > 0
    assert done == {"action": "materialized", "path": clone}
    run("snapshot", "-d", f"{old}@1")
    assert (run("log", clone), run("ls", clone)) == ([], [f"{clone}/x"])
    run("mkdir", f"{folder}/clones")
    assert run("clone", old, f"{folder}/clones") == [f"cloned {old}@3 to {folder}/clones/run.h5"]
    run("rm", f"{folder}/clones/run.h5")


def test_reads_take_a_snapshot(run: Run, old: str, folder: str, embedded_url: str, tmp_path: Path) -> None:
    first = f"{old}@1"
    assert (run("ls", first), run("ls", folder)) == ([f"{first}/x"], [old])
    assert any("{3}" in line for line in run("info", f"{first}/x"))
    assert run("du", first)[0].endswith(first)
    (said,) = run("map", first, str(tmp_path / "map"), status=2)
    assert "export it, or map it with addresses=file" in said
    run("map", first, str(tmp_path / "map"), "--addresses", "file")
    assert list(json.loads((tmp_path / "map").read_text())["datasets"]) == ["/x"]
    assert main(["export", first, str(tmp_path / "export"), "--endpoint", embedded_url]) == 0
    with h5py.File(tmp_path / "export") as file:
        assert file["x"][:].tolist() == [1, 2, 3]
    run("cp", first, f"{folder}/copy.h5")
    run("mkdir", f"{folder}/copies")
    run("cp", first, f"{folder}/copies")
    for copy in ("copy.h5", "copies/run.h5"):
        with Connection(embedded_url, f"{folder}/{copy}") as connection:
            assert "snapshot" not in connection.json("GET", "/")
        assert run("ls", f"{folder}/{copy}") == [f"{folder}/{copy}/x"]
        run("rm", f"{folder}/{copy}")


def test_what_would_change_a_snapshot_is_refused(run: Run, old: str, folder: str) -> None:
    first = f"{old}@1"
    for words in (("rm", first), ("mv", first, f"{folder}/new.h5"), ("acl", first, "bob", "read")):
        (said,) = run(*words, status=2)
        assert "never changes" in said, words
    for words in (("snapshot", first), ("log", first), ("restore", f"{first}@1")):
        (said,) = run(*words, status=2)
        assert f"{first} is a snapshot" in said, words
    assert run("ls", first) == [f"{first}/x"]


def test_what_names_no_snapshot_is_refused(run: Run, old: str, folder: str) -> None:
    refused = {
        ("restore", old): f"{old} names no snapshot: add its number, as in {old}@3; hsparse log lists them.",
        ("restore", f"{old}@7"): f"{old} has no snapshot 7; there are 1, 2.",
        ("snapshot", "-d", old): "names no snapshot",
        ("snapshot", "-d", f"{old}@1", "-m", "x"): "omit -m",
        ("diff", old, f"{old}@1"): f"Name the older one first: hsparse diff {old}@1 {old}",
        ("diff", f"{old}@1", f"{folder}/other.h5"): "are different domains",
        ("clone", old): "Name a domain and the new path",
    }
    for words, text in refused.items():
        (said,) = run(*words, status=2)
        assert text in said, words


def test_a_folder_goes_with_its_clones(run: Run, old: str, folder: str, embedded_url: str) -> None:
    run("mkdir", f"{folder}/sub")
    run("clone", f"{old}@1", f"{folder}/sub/zoo.h5")
    with hsparse.open(f"{embedded_url}{folder}/sub/zoo.h5", "a") as file:
        file.attrs["own"] = 1  # else a clone of it would need the first domain alone
    run("snapshot", f"{folder}/sub/zoo.h5")
    run("clone", f"{folder}/sub/zoo.h5@1", f"{folder}/a.h5")
    (said,) = run("rm", "-r", f"{folder}/sub", status=2)
    assert f"The clone {folder}/a.h5 needs snapshot 1" in said
    removed = run("rm", "-r", folder)
    assert (removed[0], removed[-1]) == (f"removed {folder}/a.h5", f"removed {folder}/")
    assert len(removed) == 5
    run("mkdir", folder)
