"""`hsparse mv` against a server: nothing is copied, and nothing is lost wherever it stops."""

from __future__ import annotations

import pytest

from hsparse.cli.tree.server_tree import ServerTree
from hsparse.client.connection import Connection
from hsparse.client.errors import Unreachable
from tests.cli.importer.domain_picture import picture_of
from tests.cli.tree.conftest import Run, is_gone


def rights(connection: Connection) -> list[dict[str, object]]:
    """Return the ACLs of a domain, without where they were set."""
    acls = connection.json("GET", "/acls")["acls"]
    return [{name: value for name, value in acl.items() if name != "domain"} for acl in acls]


def test_a_domain_keeps_its_objects_and_its_acl(run: Run, made: str, folder: str, embedded_url: str) -> None:
    target = f"{folder}/moved.h5"
    with Connection(embedded_url, made) as one:
        root, before = one.json("GET", "/")["root"], picture_of(one)
        one.json("PUT", "/acls/ben", {"read": True, "update": True})
        acls = rights(one)
    assert run("mv", made, target) == [f"moved {made} to {target}"]
    assert is_gone(embedded_url, made)
    with Connection(embedded_url, target) as other:
        assert other.json("GET", "/")["root"] == root
        assert rights(other) == acls
        assert picture_of(other) == before


def test_folders_and_patterns(run: Run, made: str, folder: str, embedded_url: str) -> None:
    run("mkdir", "-p", f"{folder}/a/b")
    assert run("mv", f"{folder}/*.h5", f"{folder}/a/b") == [f"moved {made} to {folder}/a/b/some.h5"]
    run("mv", f"{folder}/a", f"{folder}/c")
    assert run("ls", "-r", folder) == [f"{folder}/c/", f"{folder}/c/b/", f"{folder}/c/b/some.h5"]
    (said,) = run("mv", f"{folder}/c", f"{folder}/c/b", status=2)
    assert "cannot get into itself" in said


def test_what_is_there_stays(run: Run, made: str, folder: str) -> None:
    run("cp", made, f"{folder}/other.h5")
    (said,) = run("mv", made, f"{folder}/other.h5", status=2)
    assert "exists already" in said
    assert run("ls", folder) == [f"{folder}/other.h5", made]


@pytest.mark.parametrize("step", ["create", "put", "delete_name"])
def test_stopped_anywhere_the_same_command_goes_on(
    run: Run, made: str, folder: str, embedded_url: str, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    target = f"{folder}/moved.h5"
    with Connection(embedded_url, made) as one:
        before = picture_of(one)
    do = getattr(ServerTree, step)
    if step == "put":
        do = lambda *ignored: None  # noqa: E731

    def lose_the_answer(self: ServerTree, *words: object) -> None:
        if step == "create":
            do(self, *words)
        raise Unreachable("The server does not answer.")

    with monkeypatch.context() as patch:
        patch.setattr(ServerTree, step, lose_the_answer)
        run("mv", made, target, status=2)
    for path in (made, target):
        with Connection(embedded_url, path) as one:
            assert picture_of(one) == before
    assert run("mv", made, target) == [f"moved {made} to {target}"]
    with Connection(embedded_url, target) as one:
        assert picture_of(one) == before


def test_a_folder_that_stopped_halfway_says_how_to_go_on(
    run: Run, made: str, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("mkdir", f"{folder}/a")
    run("mv", made, f"{folder}/a")

    def fail(self: ServerTree, *words: object) -> None:
        raise Unreachable("The server does not answer.")

    with monkeypatch.context() as patch:
        patch.setattr(ServerTree, "delete_name", fail)
        (said,) = run("mv", f"{folder}/a", f"{folder}/b", status=2)
    assert said.endswith(
        f"What was not moved is in {folder}/a; go on by hsparse mv '{folder}/a/*' {folder}/b"
    )
    run("mv", f"{folder}/a/*", f"{folder}/b")
    assert run("ls", "-r", f"{folder}/b") == [f"{folder}/b/some.h5"]


def test_a_domain_that_is_deleted_meanwhile(
    run: Run, made: str, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    do = ServerTree.delete_name

    def too_late(self: ServerTree, *words: str) -> None:
        do(self, *words)
        do(self, *words)

    with monkeypatch.context() as patch:
        patch.setattr(ServerTree, "delete_name", too_late)
        (said,) = run("mv", made, f"{folder}/b.h5", status=2)
    assert "was deleted or moved by someone else meanwhile" in said
