"""`hsparse du` against a server."""

from __future__ import annotations

import json

from tests.cli.tree.conftest import Run


def test_folders_take_what_is_in_them(run: Run, made: str) -> None:
    folder = made.rpartition("/")[0]
    lines = [json.loads(line) for line in run("du", "--json", folder)]
    assert lines[-1]["path"] == folder
    assert lines[-1]["kind"] == "folder"
    domains = [one for one in lines if one["kind"] == "domain"]
    assert made in [one["path"] for one in domains]
    assert lines[-1]["bytes"] == sum(one["bytes"] for one in domains) > 0
    assert run("du", "-s", folder) == [f"{lines[-1]['bytes']:>12} {folder}/"]
    (own,) = run("du", "--json", made)
    assert json.loads(own) in domains


def test_an_empty_folder_and_a_missing_one(run: Run, folder: str) -> None:
    assert run("du", "-H", folder) == [f"{'0 B':>12} {folder}/"]
    (line,) = run("du", f"{folder}/none", status=2)
    assert f"{folder}/none" in line
