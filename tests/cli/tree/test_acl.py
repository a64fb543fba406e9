"""`hsparse acl` against a server."""

from __future__ import annotations

import json

import pytest

from tests.cli.tree.conftest import Run

ALL = "create,read,update,delete,readACL,updateACL"


def test_rights_are_shown_and_set(run: Run, made: str) -> None:
    assert [line.split() for line in run("acl", made) if line.startswith("admin")] == [["admin", ALL]]
    assert run("acl", made, "bob", "read,update")[0].split() == ["bob", "read,update"]
    assert run("acl", made, "bob", "read")[0].split() == ["bob", "read"]
    assert ["bob", "read"] in [line.split() for line in run("acl", made)]
    assert run("acl", made, "g:lab", "all")[0].split() == ["g:lab", ALL]
    assert run("acl", made, "bob", "none")[0].split() == ["bob", "none"]
    (line,) = run("acl", "--json", made, "g:lab")
    assert json.loads(line) == {"path": made, "user": "g:lab", "rights": ALL.split(",")}


def test_an_entry_is_removed(run: Run, made: str) -> None:
    run("acl", made, "bob", "none")
    assert "bob" not in {line.split()[0] for line in run("acl", made, "--remove", "bob")}
    (line,) = run("acl", made, "--remove", "bob", status=2)
    assert "no ACL of 'bob'" in line
    (line,) = run("acl", made, "eve", "--remove", "bob", status=2)
    assert "stands alone" in line


def test_folders_have_rights(run: Run, folder: str) -> None:
    assert run("acl", f"{folder}/", "default", "read")[0].split() == ["default", "read"]


@pytest.mark.parametrize(
    ("words", "said"), [(("bob", "write"), "'write' is no right"), (("eve",), "no ACL of 'eve'")]
)
def test_what_is_wrong_is_said(run: Run, made: str, words: tuple[str, ...], said: str) -> None:
    (line,) = run("acl", made, *words, status=2)
    assert said in line


def test_an_object_has_none(run: Run, made: str) -> None:
    (line,) = run("acl", f"{made}/nothing", status=2)
    assert "nothing" in line
