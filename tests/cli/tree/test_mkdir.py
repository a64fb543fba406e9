"""`hsparse mkdir` against a server."""

from __future__ import annotations

import json

from tests.cli.tree.conftest import Run


def test_one(run: Run, folder: str) -> None:
    assert run("mkdir", f"{folder}/a/") == [f"created {folder}/a/"]
    assert run("mkdir", f"{folder}/a", status=2) == [f"hsparse: {folder}/a exists already."]
    created = {"action": "created", "path": f"{folder}/a/b/"}
    assert [json.loads(line) for line in run("mkdir", "--json", f"{folder}/a/b")] == [created]


def test_without_its_parent_the_command_is_named_that_makes_one(run: Run, folder: str) -> None:
    (said,) = run("mkdir", f"{folder}/x/y", status=2)
    assert said.endswith(
        f"The parent folder {folder}/x does not exist; create it first: hsparse mkdir {folder}/x"
    )
    assert run("mkdir", said.rpartition(" ")[2]) == [f"created {folder}/x/"]
    assert run("mkdir", f"{folder}/x/y") == [f"created {folder}/x/y/"]


def test_parents(run: Run, made: str, folder: str) -> None:
    assert run("mkdir", "-p", f"{folder}/a/b") == [f"created {folder}/a/", f"created {folder}/a/b/"]
    assert run("mkdir", "-p", f"{folder}/a/b") == []
    assert run("mkdir", "-p", made, status=2) == [
        f"hsparse: {made} is a domain, and no folder can have its name."
    ]
    assert run("mkdir", "-p", f"{made}/a", status=2) == [
        f"hsparse: {made} is a domain, and no folder can have its name."
    ]
