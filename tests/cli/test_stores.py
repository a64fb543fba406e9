"""Stores of commands: named, opened, checked for their schema, and swept."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hsparse.cli import store_schema, stores
from hsparse.cli.main import main
from hsparse.cli.store_schema import needed_schema, with_schema
from hsparse.cli.stores import probed_bucket
from hsparse.cluster.lease_object import LeaseObjects
from hsparse.cluster.membership_object import KEY, MembershipObject
from hsparse.errors import HsparseError, Misconfigured, PreconditionFailed, StoreFailed, Unsupported
from hsparse.model.schema import FIRST_SCHEMA, SCHEMA_KEY, Schema
from hsparse.optional_module import OptionalModule
from hsparse.storage.object_store import Buffer, ObjectStore
from hsparse.storage.posix import PosixStore
from hsparse.storage.s3.s3_store import S3Store
from hsparse.storage.store_settings import StoreSettings
from tests.cli.test_serve import COMMAND, ask, store_numbers
from tests.support.server_process import server_process, start_command
from tests.testing.memory_store import MemoryStore


class ComparesHeader(MemoryStore):
    """Refuses etags in quotes, as an `S3Store` sends them at first."""

    bare_etags = False

    async def put_if_match(self, key: str, data: Buffer, etag: str) -> str:
        if not self.bare_etags:
            raise PreconditionFailed("a quote is no part of an etag")
        return await super().put_if_match(key, data, etag)


class IgnoresBareEtags(ComparesHeader):
    async def put_if_match(self, key: str, data: Buffer, etag: str) -> str:
        if self.bare_etags:
            return await self.put(key, data)
        return await super().put_if_match(key, data, etag)


class ComparesEtag(ComparesHeader):
    async def put_if_match(self, key: str, data: Buffer, etag: str) -> str:
        return await MemoryStore.put_if_match(self, key, data, etag)


@pytest.mark.parametrize(("kind", "bare"), [(ComparesHeader, True), (ComparesEtag, False)])
async def test_quotes_are_left_out_where_they_are_refused(kind: type[ComparesHeader], bare: bool) -> None:
    bucket = kind()
    await probed_bucket(bucket)
    assert bucket.bare_etags == bare


async def test_a_server_that_ignores_bare_etags_is_refused() -> None:
    with pytest.raises(Misconfigured, match="ignores If-Match"):
        await probed_bucket(IgnoresBareEtags())


async def test_a_wrong_endpoint_is_told_soon_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "START_SECONDS", 0.2)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "any")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "any")
    settings = StoreSettings(bucket=("data",), s3_endpoint="http://127.0.0.1:1", s3_region="us-east-1")
    with pytest.raises(StoreFailed, match=r"'data' gave no answer .* in 0.2 s .*check the endpoint"):
        await stores.open_stores(settings)


@pytest.mark.parametrize(
    ("buckets", "complaint"),
    [
        (("az://data/prefix",), "'data/prefix' is not a bucket's name"),
        (("gs://",), "'' is not a bucket's name"),
        (("az://data", "gs://data"), "name each bucket once"),
        (("data", "s3://data/"), "name each bucket once"),
        (
            ("data--use1-az4--x-s3",),
            r"'data--use1-az4--x-s3' is a directory bucket \(S3 Express\).* out of order",
        ),
    ],
)
async def test_buckets_that_are_refused_unasked(buckets: tuple[str, ...], complaint: str) -> None:
    with pytest.raises(HsparseError, match=complaint):
        await stores.open_stores(StoreSettings(bucket=buckets))


async def test_a_cloud_bills_no_reader() -> None:
    with pytest.raises(Misconfigured, match="omit it for 'gs://data'"):
        await stores.open_stores(StoreSettings(bucket=("gs://data",), requester_pays=True))


async def test_a_cloud_needs_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "CLOUD_STORE", OptionalModule("obstore_is_missing", "clouds"))
    with pytest.raises(Misconfigured, match=r'pip install "hsparse\[clouds\]"'):
        await stores.open_stores(StoreSettings(bucket=("az://data",)))


def test_later_requests_have_their_own_deadline() -> None:
    store = S3Store("data", region="us-east-1", access_key="a", secret_key="b", deadline=30)
    with store.within(5), store.within(60):
        assert store._deadline == 5
    assert store._deadline == 30


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


async def test_a_feature_of_an_absent_extension_leaves_reading(
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


ROOT = "g-01234567-89abcdef-89ab-cdef01-234567"


@pytest.fixture
def chunk(tmp_path: Path) -> Path:
    """A chunk that no domain has, made in 2001."""
    path = tmp_path / "store/db/01234567-89abcdef/d/0000-000000-000000/0_0"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"chunk")
    os.utime(path, (1e9, 1e9))
    return path


def sweep(chunk: Path, *flags: str) -> int:
    return main(["sweep", "--root", str(chunk.parents[4]), "--no-put-log", *flags])


def test_a_dry_run_says_what_a_sweep_removes(chunk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep(chunk, "--dry-run") == 0
    line = f"store: objects without a root group {ROOT}: 1 objects, 5 bytes\n"
    assert capsys.readouterr().out == line + "1 found; 1 objects, 5 bytes would be removed\n"
    assert (chunk.read_bytes(), sweep(chunk)) == (b"chunk", 0)
    assert capsys.readouterr().out == line + "1 found; 1 objects, 5 bytes removed\n"
    assert not chunk.exists()


def test_progress_for_programs(chunk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep(chunk, "--progress", "json") == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[0]["done"] >= 5
    assert [line["message"] for line in lines if "message" in line][-1].startswith("1 found")


def test_what_is_young_stays(chunk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep(chunk, "--min-age", "1e9") == 0
    assert capsys.readouterr().out == "0 found; 0 objects, 0 bytes removed\n"
    assert chunk.exists()


@pytest.mark.parametrize("hours", ["-1", "nan"])
def test_a_bad_age_is_refused(chunk: Path, capsys: pytest.CaptureFixture[str], hours: str) -> None:
    assert sweep(chunk, f"--min-age={hours}") == 2
    assert "but must be a number of hours" in capsys.readouterr().err
    assert chunk.exists()


def test_an_absent_directory_is_not_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "--root", str(tmp_path / "nothing")]) == 2
    assert "name an existing store by --root or --bucket" in capsys.readouterr().err
    assert not (tmp_path / "nothing").exists()
