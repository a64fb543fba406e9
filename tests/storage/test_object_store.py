"""The conformance suite over every store and every wrapper of one; the rules for keys, ranges and reading only."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import BadRequest, Misconfigured, NotFound, Unsupported
from hsparse.storage.conditional_put import LookBeforeDelete, SingleWriter, with_conditional_delete
from hsparse.storage.delegating_store import ReadOnlyStore
from hsparse.storage.filesystem.root_directory import RootDirectory
from hsparse.storage.object_store import (
    Entry,
    ObjectStore,
    Stored,
    check_key,
    check_range,
    is_key,
    resolve_range,
)
from hsparse.storage.posix import PosixStore
from hsparse.storage.wal import unrecovered
from hsparse.storage.wal.wal_writer import WalWriter
from hsparse.storage.wal.write_ahead_log import log_paths
from tests.conftest import MakeStore
from tests.storage.wal.test_wal_writer import die, leave_half_written, put, put_and_be_killed
from tests.support.azurite import PROGRAMS
from tests.support.directory_state import directory_state
from tests.testing.faulty_store import FaultyStore
from tests.testing.manual_clock import ManualClock
from tests.testing.memory_store import MemoryStore
from tests.testing.store_conformance import *  # noqa: F403
from tests.testing.store_conformance import BAD_KEYS, GOOD_KEYS, PAGE_SIZE
from tests.testing.store_model import Move, check_moves, moves
from tests.testing.store_wrapper import CountingStore, SlowStore

WRAPPERS = {
    "counting": CountingStore,
    "faulty": FaultyStore,
    "look_before_delete": LookBeforeDelete,
    "single_writer": SingleWriter,
    "slow": lambda store: SlowStore(store, lambda method, key: asyncio.sleep(0)),
}


AZURE = pytest.param("azure", marks=pytest.mark.needs(*PROGRAMS))
NO_CONDITION = {"test_no_update_is_lost_to_a_delete": "obstore has no conditional delete"}
UTF_16 = "Azurite lists by UTF-16; see test_obstore_store.py for other keys"
CLOUDS_CANNOT = {
    "azure": NO_CONDITION | dict.fromkeys(("test_list_order", "test_list_prefix_and_start"), UTF_16),
    "google": NO_CONDITION,
}


@pytest.fixture(params=["memory", "posix", "s3", AZURE, "google", *WRAPPERS])
async def store(request: pytest.FixtureRequest, make_store: MakeStore) -> ObjectStore:
    if request.param in CLOUDS_CANNOT:
        if (reason := CLOUDS_CANNOT[request.param].get(request.node.originalname)) is not None:
            pytest.xfail(reason)
        return await with_conditional_delete(await make_store(request.param, PAGE_SIZE))
    if request.param in WRAPPERS:
        return WRAPPERS[request.param](await make_store("memory", PAGE_SIZE))
    return await make_store(request.param, PAGE_SIZE)


@pytest.mark.parametrize("key", GOOD_KEYS)
def test_check_key_accepts_good_keys(key: str) -> None:
    assert check_key(key) == key
    assert is_key(key)


@pytest.mark.parametrize("key", BAD_KEYS)
def test_check_key_refuses_bad_keys(key: str) -> None:
    with pytest.raises(BadRequest):
        check_key(key)
    assert not is_key(key)


@given(st.text(st.sampled_from("ab./\\\0\n~é"), max_size=12))
def test_a_good_key_stays_inside_its_root(key: str) -> None:
    if is_key(key):
        path = PurePosixPath("root") / key
        assert path.parts[0] == "root"
        assert ".." not in path.parts
        assert str(path) == f"root/{key}"  # one file has one key
        assert key.encode().decode() == key


def test_limits_of_keys() -> None:
    assert is_key("/".join(["x" * 255] * 4))
    assert not is_key("/".join(["x" * 255] * 4) + "/yy")
    assert is_key("é" * 127)
    assert not is_key("é" * 128)


@given(st.binary(max_size=20), st.integers(-25, 25), st.none() | st.integers(-2, 30))
def test_resolve_range_agrees_with_slicing(data: bytes, start: int, length: int | None) -> None:
    suffix = start < 0
    expected = data[start:] if suffix else data[start:][:length]
    bad = (
        not data[start:]
        or (length is not None and length < 1)
        or (suffix and length is not None and length < -start)
    )
    if bad:
        with pytest.raises(BadRequest, match="key"):
            resolve_range("key", start, length, len(data))
        return
    first, count = resolve_range("key", start, length, len(data))
    assert (data[first : first + count], count) == (expected, len(expected))
    check_range("key", start, length)


def test_what_no_object_has_is_refused_without_its_size() -> None:
    for start, length in [(0, 0), (0, -1), (-5, 4)]:
        with pytest.raises(BadRequest):
            check_range("key", start, length)


@given(moves())
async def test_agrees_with_a_dict(moves: list[Move]) -> None:
    await check_moves(MemoryStore(), moves)


async def test_time_is_the_clocks() -> None:
    store = MemoryStore("bucket", clock=ManualClock(1234.5))
    await store.put("a", b"data")
    assert [entry.modified async for page in store.list("") for entry in page.entries] == [1234.5]
    assert store.name == "bucket"


async def test_what_was_put_does_not_change_with_the_buffer() -> None:
    store = MemoryStore()
    buffer = bytearray(b"data")
    await store.put("a", buffer)
    buffer[:] = b"else"
    assert (await store.get("a")).data == b"data"


async def test_objects_outlive_close() -> None:
    store = MemoryStore()
    await store.put("a", b"data")
    await store.close()
    assert (await store.get("a")).data == b"data"


async def test_it_reads_and_refuses_every_change() -> None:
    inner = MemoryStore("bucket")
    etag = await inner.put("a/b", b"bytes")
    store = ReadOnlyStore(inner, Unsupported("Use a newer one."))
    assert store.name == "bucket"
    assert (await store.get("a/b")).data == b"bytes"
    assert (await store.get_range("a/b", 1, 2)).data == b"yt"
    assert [entry.key async for page in store.list("") for entry in page.entries] == ["a/b"]
    for change in (
        store.put("a/b", b""),
        store.put_if_absent("c", b""),
        store.put_if_match("a/b", b"", etag),
        store.delete("a/b"),
        store.delete_if_match("a/b", etag),
        store.delete_all([Entry("a/b", 5, etag, 0.0)]),
    ):
        with pytest.raises(Unsupported, match=r"Use a newer one\."):
            await change
    with pytest.raises(Unsupported, match="cannot sign URLs"):
        await store.presigned("a/b", 1)
    await store.close()
    assert (await inner.get("a/b")).etag == etag


@pytest.fixture
def root(tmp_path: Path) -> RootDirectory:
    made = RootDirectory(str(tmp_path / "store"))
    made.make()
    return made


async def test_a_directory_stays_as_it_is(root: RootDirectory) -> None:
    path = Path(root.path)
    writer = PosixStore(path)
    etag = await writer.put("a/b", b"bytes")
    await writer.put("a/c", b"")
    (path / "a/.tmp-0123").write_bytes(b"stale")
    os.utime(path / "a/.tmp-0123", ns=(0, 0))
    before = directory_state(path)
    store = PosixStore(path, read_only=True)
    assert (await store.get("a/b")).etag == etag
    assert [entry.key async for page in store.list("") for entry in page.entries] == ["a/b", "a/c"]
    assert [page.prefixes async for page in store.list("", delimiter=True)] == [("a/",)]
    with pytest.raises(NotFound):
        await store.get("d")
    await store.close()
    assert directory_state(path) == before
    assert [entry.key async for page in writer.list("") for entry in page.entries] == ["a/b", "a/c"]
    assert not (path / "a/.tmp-0123").exists(), "a store that writes sweeps it"
    await writer.close()


async def test_what_is_half_written_is_read_from_the_log(root: RootDirectory) -> None:
    path = Path(root.path)
    puts = WalWriter(root, "store")
    etag = put(puts, "a", b"whole")
    die(puts)
    leave_half_written(path / "a")
    before = directory_state(path)
    store = PosixStore(path, read_only=True)
    assert await store.get("a") == Stored(b"whole", etag, 5)
    assert await store.get_range("a", 1, 2) == Stored(b"ho", etag, 5)
    ((entry,),) = [page.entries async for page in store.list("")]
    assert (entry.key, entry.size, entry.etag, directory_state(path)) == ("a", 5, etag, before)
    writer = PosixStore(path)
    assert (await writer.get("a")).data == b"whole"
    await writer.close()
    await store.close()


def lost(puts: WalWriter, path: Path) -> None:
    """As a power loss does with a file that was not synced."""
    put(puts, "a", b"acknowledged")
    die(puts)
    path.unlink()


def earlier(puts: WalWriter, path: Path) -> None:
    path.write_bytes(b"before")
    put_and_be_killed(puts, "a", b"after")


def torn(puts: WalWriter, path: Path) -> None:
    """The file has its time, and not its bytes."""
    put(puts, "a", b"acknowledged")
    die(puts)
    status = path.stat()
    path.write_bytes(b"acknowl\0\0\0\0\0")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize("cut_off", [lost, earlier, torn])
def test_what_only_a_log_has_is_not_passed_over(
    root: RootDirectory, monkeypatch: pytest.MonkeyPatch, cut_off: Callable[[WalWriter, Path], None]
) -> None:
    path = Path(root.path)
    cut_off(WalWriter(root, "store"), path / "a")
    before = directory_state(path)
    monkeypatch.setattr(unrecovered, "CHECK_SECONDS", 0.0)
    with pytest.raises(Misconfigured, match="'a', are only in its write-ahead log"):
        PosixStore(path, read_only=True)
    assert directory_state(path) == before
    PosixStore(path)
    PosixStore(path, read_only=True)


async def test_what_was_deleted_after_it_was_logged_is_not_missed(root: RootDirectory) -> None:
    path = Path(root.path)
    puts = WalWriter(root, "store")
    put(puts, "a", b"x")
    put(puts, "b/c", b"x")
    writer = PosixStore(path)
    await writer.delete("a")
    await writer.put("b/c", b"later")
    assert log_paths(root)
    store = PosixStore(path, read_only=True)
    assert (await store.get("b/c")).data == b"later"
    puts.close()
    for one in (writer, store):
        await one.close()


def test_a_live_log_is_applied_soon(root: RootDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    path, puts = Path(root.path), WalWriter(root, "store")
    put(puts, "a", b"x")
    data = (path / "a").read_bytes()
    status = (path / "a").stat()
    (path / "a").unlink()

    def apply(seconds: float) -> None:
        (path / "a").write_bytes(data)
        os.utime(path / "a", ns=(status.st_atime_ns, status.st_mtime_ns))

    monkeypatch.setattr("hsparse.storage.wal.unrecovered.time.sleep", apply)
    PosixStore(path, read_only=True)
    puts.close()
