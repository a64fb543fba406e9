"""The schema of a whole store: created by the first start, checked by each."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hsparse.cli.store_schema import with_schema
from hsparse.errors import Misconfigured, Unsupported
from hsparse.model.schema import SCHEMA_KEY
from hsparse.storage.memory import MemoryStore
from hsparse.storage.object_store import Buffer, ObjectStore
from tests.cli.test_serve import COMMAND, ask, store_numbers
from tests.support.server_process import server_process

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
