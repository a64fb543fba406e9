"""`hsparse info` against a server."""

from __future__ import annotations

import json

from hsparse import __version__
from tests.cli.tree.conftest import Run


def facts_of(lines: list[str]) -> dict[str, str]:
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def test_the_server(run: Run) -> None:
    found = facts_of(run("info"))
    assert (found["name"], found["user"], found["admin"]) == ("hsparse", "admin", "yes")
    (line,) = run("info", "--json")
    assert json.loads(line)["version"] == __version__


def test_folders_and_domains(run: Run, made: str, folder: str) -> None:
    found = facts_of(run("info", folder))
    assert (found["class"], found["owner"]) == ("folder", "admin")
    found = facts_of(run("info", "-H", made))
    assert (found["class"], found["groups"], found["datasets"]) == ("domain", "2", "4")
    assert found["bytes"].endswith("KiB")
    (item,) = map(json.loads, run("info", "--json", made))
    assert item["bytes"] == item["metadata_bytes"] + item["chunk_bytes"] > 0


def test_datasets(run: Run, made: str) -> None:
    dense, sparse = (facts_of(run("info", f"{made}/{path}")) for path in ("dense", "group/frames"))
    assert (dense["type"], dense["shape"], dense["filters"]) == ("H5T_STD_I64LE", "{1000, 200}", "gzip=4")
    assert "defined" not in dense
    assert (sparse["defined"], sparse["chunks"], sparse["chunk"]) == ("2", "2", "[5, 50]")
    assert (sparse["shape"], sparse["layout"]) == ("{10/Inf, 100}", "H5D_STRUCT_CHUNK H5D_SPARSE_DATA")
    assert int(sparse["bytes"]) > 0


def test_other_objects_and_patterns(run: Run, made: str) -> None:
    assert facts_of(run("info", f"{made}/group"))["links"] == "8"
    assert facts_of(run("info", f"{made}/group/type"))["type"] == "H5T_STD_I16LE"
    items = [json.loads(line) for line in run("info", "--json", f"{made}/group/*")]
    assert [item["class"] for item in items] == [
        "external link",
        "dataset",
        "group",
        "dataset",
        "dataset",
        "soft link",
        "datatype",
        "dataset",
    ]
    assert len([line for line in run("info", f"{made}/*") if not line]) == 1
