"""`hsparse quota` against a server."""

from __future__ import annotations

import json

from tests.cli.tree.conftest import Run


def test_a_quota_is_set_shown_and_removed(run: Run, folder: str) -> None:
    assert run("quota", folder) == [f"{folder}/ has no quota of its own"]
    assert run("quota", folder, "1MiB") == [f"{folder}/ uses 0 of 1048576 bytes"]
    (line,) = run("quota", "--json", f"{folder}/")
    shown = json.loads(line)
    assert {**shown, "counted": None} == {"path": folder, "bytes": 1048576, "used": 0, "counted": None}
    assert run("quota", folder, "none") == [f"{folder}/ has no quota of its own"]


def test_no_size(run: Run, made: str, folder: str) -> None:
    (said,) = run("quota", folder, "much", status=2)
    assert said.endswith("'much' is no size; write it as 1000000, 512MiB or 1GB; or none, for no quota.")
    assert run("quota", made, status=2) == [f"hsparse: {made} is a domain: quotas are of folders."]
