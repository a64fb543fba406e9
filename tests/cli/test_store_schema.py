"""The schema of a whole store: created by the first start, checked by each."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hsparse.cli import store_schema
from hsparse.cli.store_schema import needed_schema, with_schema
from hsparse.cluster.lease_object import LeaseObjects
from hsparse.cluster.membership_object import KEY, MembershipObject
from hsparse.errors import Misconfigured, Unsupported
from hsparse.model.schema import FIRST_SCHEMA, SCHEMA_KEY, Schema
from hsparse.storage.object_store import Buffer, ObjectStore
from hsparse.storage.posix import PosixStore
from tests.cli.test_serve import COMMAND, ask, store_numbers
from tests.support.server_process import server_process, start_command
from tests.testing.memory_store import MemoryStore

FIRST = {"version": 1, "readFeatures": [], "writeFeatures": []}


async def as_it_is(store: ObjectStore) -> ObjectStore:
    return store


async def never(store: ObjectStore) -> ObjectStore:
    pytest.fail("it was prepared to be written")


async def store_of(schema: Any) -> MemoryStore:
    store = MemoryStore("bucket")
    await store.put(SCHEMA_KEY, schema if isinstance(schema, bytes) else json.dumps(schema).encode())
    return store


async def test_the_first_start_creates_it_and_the_next_leaves_it() -> None:
    store = MemoryStore()
    assert await with_schema(store, as_it_is) is store
    first = await store.get(SCHEMA_KEY)
    assert json.loads(first.data) == FIRST
    assert await with_schema(store, as_it_is) is store
    assert (await store.get(SCHEMA_KEY)).etag == first.etag


@pytest.mark.parametrize(
    ("schema", "named"),
    [
        ({"version": 2}, "version 2"),
        (FIRST | {"readFeatures": ["spirals"]}, "'spirals'"),
        ({"version": 1, "readFeatures": ["spirals"], "writeFeatures": ["loops"]}, "'spirals'"),
        ([], "unknown form"),
        (b"{", "not JSON"),
    ],
)
async def test_what_cannot_be_read_is_refused(schema: Any, named: str) -> None:
    store = await store_of(schema)
    with pytest.raises(Misconfigured) as refused:
        await with_schema(store, never)
    for part in ("'bucket'", SCHEMA_KEY, named):
        assert part in refused.value.message


async def test_an_unknown_write_feature_leaves_reading() -> None:
    store = await with_schema(await store_of(FIRST | {"writeFeatures": ["spirals"]}), never)
    assert (await store.get(SCHEMA_KEY)).data
    with pytest.raises(Unsupported, match=r"'spirals'.*newer hsparse"):
        await store.put("a", b"")


class Overtaken(MemoryStore):
    """A store in which another node creates the schema first."""

    def __init__(self, other: bytes) -> None:
        super().__init__()
        self.other = other

    async def put_if_absent(self, key: str, data: Buffer) -> str:
        await self.put(key, self.other)
        return await super().put_if_absent(key, data)


async def test_a_feature_of_an_extension_that_is_not_there_leaves_reading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = await store_of(FIRST | {"writeFeatures": ["versions"]})
    assert await with_schema(store, as_it_is) is store
    monkeypatch.setattr(store_schema, "extensions", lambda: ())
    opened = await with_schema(store, never)
    assert (await opened.get(SCHEMA_KEY)).size
    with pytest.raises(Unsupported, match="'versions'"):
        await opened.put("key", b"")


async def test_two_nodes_may_start_at_once() -> None:
    await with_schema(Overtaken(json.dumps(FIRST).encode()), as_it_is)
    with pytest.raises(Misconfigured, match="version 2"):
        await with_schema(Overtaken(b'{"version": 2}'), as_it_is)


@pytest.mark.parametrize("flags", [(), ("--dn", "2"), ("--single-writer",)])
def test_a_server_refuses_a_store_it_cannot_read(tmp_path: Path, flags: tuple[str, ...]) -> None:
    with server_process("--root", str(tmp_path), "--no-fsync") as server:
        assert server.stop() == 0
    (tmp_path / SCHEMA_KEY).write_text(json.dumps(FIRST | {"readFeatures": ["spirals"]}))
    command = [*COMMAND, "serve", "--root", str(tmp_path), "--port", "0", *flags]
    result = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert result.returncode == 2
    assert "'spirals'" in result.stderr
    assert "newer hsparse" in result.stderr


@pytest.mark.parametrize("flags", [(), ("--dn", "2")])
def test_a_server_only_reads_a_store_it_cannot_write(tmp_path: Path, flags: tuple[str, ...]) -> None:
    with server_process("--root", str(tmp_path), "--no-fsync") as server:
        path = store_numbers(server.url, "/home/admin/a.h5")
        assert server.stop() == 0
    (tmp_path / SCHEMA_KEY).write_text(json.dumps(FIRST | {"writeFeatures": ["spirals"]}))
    files = {file: file.read_bytes() for file in (tmp_path / "db").rglob("*") if file.is_file()}
    log = tmp_path / "log"
    with server_process("--root", str(tmp_path), *flags, log=log) as server:
        assert ask(server.url + path)[1]["value"] == [1, 2, 3, 4]
        assert ask(f"{server.url}/?domain=/home/admin/a.h5&verbose=1")[0] == 200
        for method, target, body in (
            ("PUT", path, {"value": [4, 3, 2, 1]}),
            ("PUT", "/?domain=/home/admin/b.h5", {}),
            ("DELETE", "/?domain=/home/admin/a.h5", None),
        ):
            status, answer = ask(server.url + target, method, body)
            assert (status, answer["error"]["kind"]) == (400, "unsupported")
            assert "'spirals'" in answer["error"]["message"]
        assert server.stop() == 0
    assert {file: file.read_bytes() for file in (tmp_path / "db").rglob("*") if file.is_file()} == files
    assert "it can be read only" in log.read_text()


async def test_what_several_stores_need_now() -> None:
    first, second = await store_of(FIRST | {"readFeatures": ["stripes"]}), MemoryStore()
    only_read = await with_schema(await store_of(FIRST | {"writeFeatures": ["spirals"]}), never)
    assert await needed_schema([second]) == FIRST_SCHEMA
    assert await needed_schema([first, second, only_read]) == Schema(read_features=("stripes",))
    await second.put(SCHEMA_KEY, json.dumps(FIRST | {"writeFeatures": ["spirals"]}).encode())
    assert (await needed_schema([first, second])).write_features == ("spirals",)
    await second.put(SCHEMA_KEY, b'{"version": 2}')
    with pytest.raises(Misconfigured, match="version 2"):
        await needed_schema([first, second])


async def raise_schema(root: Path) -> None:
    """Have the only member read a membership that needs more, as if a newer hsparse had joined."""
    store = PosixStore(root, fsync=False, wal=False)
    stored = await store.get(KEY)
    form = json.loads(stored.data)
    form["schema"], form["epoch"] = FIRST | {"writeFeatures": ["spirals"]}, form["epoch"] + 1
    await store.put_if_match(KEY, json.dumps(form).encode(), stored.etag)
    [node] = form["members"]
    leases, recalled = LeaseObjects(store), False
    while not recalled:
        lease = await leases.read(node)
        assert lease is not None
        after = await leases.recall(node, lease)
        recalled = after is None or after.state == "recalled"
    await store.close()


async def members(root: Path) -> tuple[str, ...]:
    store = PosixStore(root, fsync=False, wal=False)
    view = await MembershipObject(store, "secret").read()
    await store.close()
    return view.members


def test_a_running_data_node_leaves_a_store_that_needs_more_than_it_knows(tmp_path: Path) -> None:
    root, log = tmp_path / "store", tmp_path / "log"
    flags = ("dn", "--port", "0", "--root", str(root), "--no-fsync", "--no-put-log")
    process, lines = start_command(flags, log, "", {"HSPARSE_NODE_TOKEN": "secret"})
    with lines:
        try:
            assert " on http" in lines.readline()
            asyncio.run(raise_schema(root))
            process.join(30)
        finally:
            process.kill()
            process.join(20)
    assert process.exitcode == 2
    assert log.read_text().count("'spirals'") == 2, "when it leaves, and at its end"
    assert asyncio.run(members(root)) == ()
