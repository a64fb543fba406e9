"""A store that hsparse 0.1 wrote, recorded by `tests.upgrade.record`: read as it was, and written."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from hsparse.model.schema import SCHEMA_KEY
from tests.support.server_process import server_process
from tests.upgrade.content import FULL, SHARED, Client, change, object_paths, snapshot
from tests.upgrade.record import EXPECTED, TAR


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with tarfile.open(TAR) as tar:
        tar.extractall(tmp_path / "store", filter="data")
    return tmp_path / "store"


def plain(value: Any) -> Any:
    """Return a value as JSON gives it back."""
    return json.loads(json.dumps(value))


def test_everything_is_read_as_it_was_written(store: Path) -> None:
    expected = json.loads(EXPECTED.read_text())
    with server_process("--root", str(store), "--no-fsync") as server:
        seen = plain(snapshot(server.url))
        root = f"/groups/{expected[SHARED]['root']}"
        logged = seen[SHARED][root]["attributes"].pop("logged")
        assert logged["value"] == 42, "only the write-ahead log had this record"
        seen[SHARED][root]["lastModified"] = expected[SHARED][root]["lastModified"]
        for domain in (FULL, SHARED):
            for name, one in expected[domain].items():
                assert seen[domain][name] == one, f"{domain} {name}"
        assert seen == expected
        assert server.stop() == 0
    assert json.loads((store / SCHEMA_KEY).read_text())["version"] == 1


@pytest.mark.parametrize("flags", [(), ("--dn", "2")], ids=["embedded", "two data nodes"])
def test_everything_can_be_changed(store: Path, flags: tuple[str, ...]) -> None:
    before = json.loads(EXPECTED.read_text())
    with server_process("--root", str(store), "--no-fsync", *flags) as server:
        change(server.url)
        changed = plain(snapshot(server.url))
        assert server.stop() == 0
    with server_process("--root", str(store), "--no-fsync") as server:
        assert plain(snapshot(server.url)) == changed
        assert server.stop() == 0
    for domain in (FULL, SHARED):
        assert "carla" in {acl["userName"] for acl in changed[domain]["acls"]}
        paths = [
            path for path in before[domain] if path.startswith(("/groups/", "/datasets/", "/datatypes/"))
        ]
        assert paths
        assert all("changed" in changed[domain][path]["attributes"] for path in paths)
    values = [path for path, one in before[FULL].items() if isinstance(one, dict) and "value" in one]
    same = [path for path in values if changed[FULL][path]["value"] == before[FULL][path]["value"]]
    assert len(values) > 25
    assert len(same) == 5, "the datasets over a file, the table of one of them, and the references"


def test_records_of_what_has_not_changed_stay_as_they_were(store: Path) -> None:
    records = {path: path.read_bytes() for path in store.glob("db/*/[dgt]/*/.*.json")}
    with server_process("--root", str(store), "--no-fsync") as server:
        snapshot(server.url)
        assert object_paths(Client(server.url))
        assert server.stop() == 0
    assert records
    assert {path: path.read_bytes() for path in records} == records
