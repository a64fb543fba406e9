"""A store that is read and never written."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hsparse.errors import Misconfigured, NotFound, Unsupported
from hsparse.storage.delegating_store import ReadOnlyStore
from hsparse.storage.filesystem.root_directory import RootDirectory
from hsparse.storage.object_store import Entry, Stored
from hsparse.storage.posix import PosixStore
from hsparse.storage.wal import unrecovered
from hsparse.storage.wal.wal_writer import WalWriter
from hsparse.storage.wal.write_ahead_log import log_paths
from tests.storage.wal.test_wal_writer import die, leave_half_written, put, put_and_be_killed
from tests.support.directory_state import directory_state
from tests.testing.memory_store import MemoryStore


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
    with pytest.raises(Unsupported, match="has no URLs"):
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
    assert (entry.key, entry.size, entry.etag) == ("a", 5, etag)
    assert directory_state(path) == before
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
