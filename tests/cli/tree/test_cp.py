"""`hsparse cp` against a server: a copy has the picture of its original."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from hsparse.cli.main import main
from hsparse.client.connection import Connection
from hsparse.errors import StoreFailed
from hsparse.format.dataspace_message import NEWEST_REVISION
from hsparse.hdf5.importer.hdf5_import import Hdf5Import
from tests.cli.importer.domain_picture import differences, picture_of
from tests.cli.importer.known_changes import KNOWN, is_refused
from tests.cli.importer.random_domain import DrawnDomain, domains, make_domain
from tests.cli.tree.conftest import Run, is_gone


def test_a_copy_has_all_objects_links_attributes_and_values(
    run: Run, made: str, folder: str, embedded_url: str
) -> None:
    target = f"{folder}/copy.h5"
    assert run("cp", made, target) == [f"copied {made} to {target}"]
    with Connection(embedded_url, made) as one, Connection(embedded_url, target) as other:
        assert one.json("GET", "/")["root"] != other.json("GET", "/")["root"]
        before, after = picture_of(one), picture_of(other)
        root = other.json("GET", f"/groups/{other.json('GET', '/')['root']}")
    assert len(before) == 7
    assert "importedFile" not in (root.get("creationProperties") or {})
    form = NEWEST_REVISION.value
    found = differences(before, after)
    assert [one for one in found if not any(known.explains(one, form, before) for known in KNOWN)] == []


def test_random_domains(embedded_url: str, folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = f"{folder}/random.h5", f"{folder}/copy.h5"
    words = ["cp", source, target, "--endpoint", embedded_url]

    @settings(
        max_examples=6,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate,),
        database=None,
        derandomize=True,
    )
    @given(domains())
    def copy(drawn: DrawnDomain) -> None:
        with Connection(embedded_url, source) as one, Connection(embedded_url, target) as other:
            make_domain(one, drawn)
            before = picture_of(one)
            form = NEWEST_REVISION.value
            if is_refused(before, form):
                assert main(words) == 2
                assert "have no place" in capsys.readouterr().err
            else:
                assert main(words) == 0
                found = differences(before, picture_of(other))
                assert [
                    one for one in found if not any(known.explains(one, form, before) for known in KNOWN)
                ] == []
                other.json("DELETE", "/")
            one.json("DELETE", "/")

    copy()


def test_folders(run: Run, made: str, folder: str) -> None:
    run("mkdir", "-p", f"{folder}/a/b")
    run("cp", made, f"{folder}/a/b/")
    (said,) = run("cp", f"{folder}/a", f"{folder}/c", status=2)
    assert said.endswith(f"{folder}/a is a folder; copy it with all that is in it by hsparse cp -r.")
    lines = [json.loads(line) for line in run("cp", "-r", "--json", f"{folder}/a", f"{folder}/c")]
    assert lines[-1] == {
        "action": "copied",
        "path": f"{folder}/a/b/some.h5",
        "to": f"{folder}/c/b/some.h5",
    }
    assert run("ls", "-r", f"{folder}/c") == [f"{folder}/c/b/", f"{folder}/c/b/some.h5"]
    (said,) = run("cp", "-r", f"{folder}/a", f"{folder}/a/b", status=2)
    assert "cannot get into itself" in said


def test_targets(run: Run, made: str, folder: str) -> None:
    (said,) = run("cp", made, made, status=2)
    assert "cannot get into itself" in said
    run("cp", made, f"{folder}/other.h5")
    (said,) = run("cp", made, f"{folder}/other.h5", status=2)
    assert said.endswith(
        f"exists already; choose another name, or delete it first: hsparse rm {folder}/other.h5"
    )
    for words in ((made, f"{folder}/none/"), (f"{folder}/*", f"{folder}/none")):
        (said,) = run("cp", *words, status=2)
        assert said.endswith(f"create it first: hsparse mkdir {folder}/none")
    run("cp", f"{made}/dense", f"{folder}/x", status=2)


def test_a_copy_that_fails_is_deleted(
    run: Run, made: str, folder: str, embedded_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Hdf5Import) -> None:
        raise StoreFailed("The disk is full.")

    monkeypatch.setattr(Hdf5Import, "run", fail)
    assert run("cp", made, f"{folder}/copy.h5", status=2) == ["hsparse: The disk is full."]
    assert is_gone(embedded_url, f"{folder}/copy.h5")
    assert run("ls", folder) == [made]
