from __future__ import annotations

import asyncio
import errno
import fcntl
import itertools
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from hsparse.errors import (
    BadRequest,
    Conflict,
    Misconfigured,
    NotFound,
    PreconditionFailed,
    StoreFailed,
    StoreFull,
)
from hsparse.storage.filesystem.root_directory import RootDirectory
from hsparse.storage.filesystem.served_root import serving_root
from hsparse.storage.object_store import Entry
from hsparse.storage.posix import PosixStore
from hsparse.storage.wal.file_deletion import prune
from tests.testing.store_model import Move, check_moves, moves

Events = list[tuple[str, str]]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[PosixStore]:
    store = PosixStore(tmp_path / "root")
    yield store
    await store.close()


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> Events:
    """What the store asks of the file system from now on, in order: ("fsync" | "rename" | "mkdir", path)."""
    seen: Events = []
    fsync, rename, mkdir = os.fsync, os.rename, os.mkdir

    def path_of(file: int) -> str:
        return str(Path(f"/proc/self/fd/{file}").readlink())

    def note_fsync(file: int) -> None:
        seen.append(("fsync", path_of(file)))
        fsync(file)

    def note_rename(source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        seen.append(("rename", f"{path_of(dst_dir_fd)}/{target}"))
        rename(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    def note_mkdir(path: Path, mode: int = 0o777) -> None:
        mkdir(path, mode)
        seen.append(("mkdir", str(path)))

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(os, "rename", note_rename)
    monkeypatch.setattr(os, "mkdir", note_mkdir)
    return seen


async def keys(store: PosixStore) -> list[str]:
    return [entry.key async for page in store.list("") for entry in page.entries]


@given(moves())
@settings(max_examples=60, deadline=None)
async def test_agrees_with_a_dict(moves: list[Move]) -> None:
    with tempfile.TemporaryDirectory() as root:
        store = PosixStore(Path(root), fsync=False, workers=2)
        await check_moves(store, moves)
        await store.close()


async def test_a_put_is_durable_before_it_answers(tmp_path: Path, events: Events) -> None:
    root = tmp_path / "root"
    store = PosixStore(root)
    events.clear()
    await store.put("a/b/c", b"data")
    temporary = events[4][1]
    assert temporary.startswith(f"{root}/a/b/.tmp-")
    assert events == [
        ("mkdir", f"{root}/a"),
        ("fsync", f"{root}"),
        ("mkdir", f"{root}/a/b"),
        ("fsync", f"{root}/a"),
        ("fsync", temporary),
        ("rename", f"{root}/a/b/c"),
        ("fsync", f"{root}/a/b"),
    ]
    events.clear()
    await store.put("a/b/c", b"more")
    assert [event for event, _ in events] == ["fsync", "rename", "fsync"]
    await store.close()


async def test_a_delete_is_durable_when_answered(store: PosixStore, events: Events, tmp_path: Path) -> None:
    await store.put("a/b", b"data")
    await store.put("a/c", b"data")
    events.clear()
    await store.delete("a/b")
    assert events == [("fsync", f"{tmp_path}/root/a")]


async def test_a_new_root_is_durable(tmp_path: Path, events: Events) -> None:
    store = PosixStore(tmp_path / "new" / "root")
    assert {("fsync", str(tmp_path)), ("fsync", f"{tmp_path}/new")} <= set(events)
    await store.close()


async def test_without_fsync_there_is_none(tmp_path: Path, events: Events) -> None:
    store = PosixStore(tmp_path / "root", fsync=False)
    await store.put("a/b", b"data")
    await store.delete("a/b")
    assert "fsync" not in {event for event, _ in events}
    await store.close()


async def test_a_directory_of_others_is_synced(store: PosixStore, events: Events, tmp_path: Path) -> None:
    """As another process leaves it that was killed between mkdir and fsync."""
    root = tmp_path / "root"
    (root / "a").mkdir()
    (root / "a").chmod(0o1755)
    events.clear()
    await store.put("a/b", b"data")
    assert ("fsync", str(root)) in events[: events.index(("rename", f"{root}/a/b"))]
    assert not (root / "a").stat().st_mode & stat.S_ISVTX
    events.clear()
    await store.put("a/c", b"data")
    assert ("fsync", str(root)) not in events


async def test_etags_rise_when_the_clock_does_not(tmp_path: Path) -> None:
    times = itertools.chain([10**18, 10**18, 5, 5, 10**18 + 5, 7], itertools.repeat(3))
    store = PosixStore(tmp_path, now_ns=lambda: next(times))
    seen = []
    for _ in range(4):
        await store.put("a", b"same")
        seen.append((tmp_path / "a").stat().st_mtime_ns)
    await store.delete("a")
    for _ in range(3):
        await store.put_if_absent("a", b"same")
        seen.append((tmp_path / "a").stat().st_mtime_ns)
        await store.delete("a")
    assert seen == sorted(set(seen))
    await store.close()


async def test_a_file_system_with_coarse_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    utime = os.utime

    def coarse(path: int | str, *, ns: tuple[int, int]) -> None:
        second = ns[1] // 10**9 * 10**9
        utime(path, ns=(second, second))

    monkeypatch.setattr(os, "utime", coarse)
    store = PosixStore(tmp_path)
    etags = [await store.put("a", b"same") for _ in range(5)]
    assert len(set(etags)) == 5
    monkeypatch.setattr(os, "utime", lambda path, *, ns: utime(path, ns=(1, 1)))
    with pytest.raises(StoreFailed, match="does not keep modification times"):
        await store.put("a", b"same")
    await store.close()


async def test_a_write_in_place_changes_the_etag(store: PosixStore, tmp_path: Path) -> None:
    etag = await store.put("a", b"first")
    with (tmp_path / "root" / "a").open("r+b") as file:
        file.write(b"other")
    stored = await store.get("a")
    assert stored.data == b"other"
    assert stored.etag != etag
    with pytest.raises(PreconditionFailed):
        await store.put_if_match("a", b"second", etag)
    await store.put_if_match("a", b"second", stored.etag)


async def test_a_read_torn_by_a_write_in_place_is_repeated(
    store: PosixStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.put("a", b"first")
    pread = os.pread
    writes = iter([b"1", b"22", b"333"])

    def interrupted(file: int, count: int, offset: int) -> bytes:
        data = pread(file, count, offset)
        if (new := next(writes, None)) is not None:
            (tmp_path / "root" / "a").write_bytes(new)
        return data

    monkeypatch.setattr(os, "pread", interrupted)
    assert (await store.get("a")).data == b"333"
    endless = itertools.count()
    writes = (str(number).encode() * 3 for number in endless)
    with pytest.raises(StoreFailed, match="changes faster"):
        await store.get("a")


async def test_a_reader_keeps_the_old_object(store: PosixStore, tmp_path: Path) -> None:
    await store.put("a", b"old")
    with (tmp_path / "root" / "a").open("rb") as file:
        await store.put("a", b"new")
        await store.delete("a")
        assert file.read() == b"old"


async def test_what_is_no_object_is_not_seen(store: PosixStore, tmp_path: Path) -> None:
    root = tmp_path / "root"
    await store.put("a/b", b"data")
    (root / "a" / ".tmp-123").write_bytes(b"torn")
    (root / "empty" / "below").mkdir(parents=True)
    (root / "a" / "un\nprintable").write_bytes(b"")
    os.mkfifo(root / "a" / "fifo")
    (root / "a" / os.fsdecode(b"\xff")).write_bytes(b"")
    assert await keys(store) == ["a/b"]
    assert [page.prefixes async for page in store.list("", delimiter=True)] == [("a/",)]
    for key in ("a", "a/fifo"):
        with pytest.raises(NotFound):
            await store.get(key)


async def test_an_object_and_a_directory_exclude_each_other(store: PosixStore) -> None:
    await store.put("a/b", b"data")
    for put in (store.put, store.put_if_absent):
        for key in ("a", "a/b/c", "a/b/c/d"):
            with pytest.raises(Conflict, match="posix"):
                await put(key, b"data")
    assert await keys(store) == ["a/b"]


async def test_directories_left_empty_are_pruned(store: PosixStore, tmp_path: Path) -> None:
    await store.put("a/b/c/d", b"data")
    await store.put("a/e", b"data")
    await store.delete("a/b/c/d")
    assert sorted(path.name for path in (tmp_path / "root" / "a").iterdir()) == ["e"]
    await store.delete("a/e")
    assert sorted(path.name for path in (tmp_path / "root").iterdir()) == [".hsparse"]


@pytest.mark.parametrize(
    ("code", "remedy", "kind"),
    [
        (errno.ENOSPC, "free space", StoreFull),
        (errno.EDQUOT, "raise the quota", StoreFull),
        (errno.EIO, "check the disk", StoreFailed),
        (errno.ENODEV, "log", StoreFailed),
    ],
)
async def test_a_failing_disk(
    store: PosixStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, remedy: str, kind: type
) -> None:
    etag = await store.put("a/b", b"data")

    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(code, os.strerror(code))

    for call in ("write", "fsync", "rename"):
        with monkeypatch.context() as patch:
            patch.setattr(os, call, fail)
            with pytest.raises(StoreFailed, match=f"'a/b'.*{remedy}") as caught:
                await store.put("a/b", b"more")
        assert type(caught.value) is kind
        assert (await store.get("a/b")).etag == etag
        assert [path.name for path in (tmp_path / "root" / "a").iterdir()] == ["b"]
    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", fail)
        with pytest.raises(StoreFailed, match=f"'a/b'.*{remedy}"):
            await store.get("a/b")


async def test_a_path_too_long_for_the_file_system(tmp_path: Path) -> None:
    deep = tmp_path
    while len(str(deep)) < 3500:
        deep /= "x" * 200
    store = PosixStore(deep)
    with pytest.raises(BadRequest, match="shorter key"):
        await store.put("/".join(["y" * 200] * 5), b"data")
    await store.close()


async def test_a_root_that_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(Misconfigured, match="name one"):
        PosixStore(tmp_path / "file")


async def test_only_compare_and_rename_wait_for_the_lock(
    store: PosixStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While another holds the lock reads go on, and a put writes and syncs its file before it waits."""
    await store.put("a", b"first")
    (lock,) = (tmp_path / "root" / ".hsparse" / "locks").iterdir()
    synced = threading.Event()
    monkeypatch.setattr(os, "fsync", lambda _: synced.set())
    with lock.open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        put = asyncio.create_task(store.put("a", b"second"))
        await asyncio.to_thread(synced.wait)
        assert (await store.get("a")).data == b"first"
        assert not put.done()
    await put
    assert (await store.get("a")).data == b"second"


def interfere(monkeypatch: pytest.MonkeyPatch, name: str, act: Callable[[], object], at: int = 0) -> None:
    """Call `act` just before call number `at` of `os.<name>`."""
    original = getattr(os, name)
    count = itertools.count()

    def call(*args: Any, **kwargs: Any) -> Any:
        if next(count) == at:
            act()
        return original(*args, **kwargs)

    monkeypatch.setattr(os, name, call)


async def test_pruning_ends_no_put(
    store: PosixStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "root" / "a" / "b").mkdir(parents=True)
    # The put has opened a/b, and not yet entered it.
    interfere(monkeypatch, "fstat", lambda: prune(store._root, {"a/b"}))
    await store.put("a/b/c", b"data")
    assert (await store.get("a/b/c")).data == b"data"


async def test_a_put_survives_the_sweeping_of_its_file(
    store: PosixStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sweep() -> None:
        (temporary,) = (tmp_path / "root").glob(".tmp-*")
        temporary.unlink()

    interfere(monkeypatch, "rename", sweep)
    await store.put("a", b"data")
    assert (await store.get("a")).data == b"data"


async def test_a_state_changed_after_the_first_check(
    store: PosixStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    etag = await store.put("a", b"first")
    interfere(monkeypatch, "utime", lambda: (tmp_path / "root" / "a").write_bytes(b"other"))
    with pytest.raises(PreconditionFailed):
        await store.put_if_match("a", b"second", etag)
    assert (await store.get("a")).data == b"other"
    assert list((tmp_path / "root").glob(".tmp-*")) == []


async def test_a_vanishing_directory_ends_a_put(store: PosixStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store._root, "make_directories", lambda key: None)
    with pytest.raises(StoreFailed, match="keeps vanishing"):
        await store.put("a/b", b"data")


async def test_stale_temporaries_are_swept(store: PosixStore, tmp_path: Path) -> None:
    root = tmp_path / "root"
    await store.put("a/b", b"data")
    old, young = root / "a" / ".tmp-old", root / "a" / ".tmp-young"
    for path in (old, young):
        path.write_bytes(b"torn")
    os.utime(old, ns=(0, 0))
    assert [page.entries[0].key async for page in store.list("a/")] == ["a/b"]
    assert not old.exists()
    assert young.exists()
    os.utime(young, ns=(0, 0))
    assert await store.sweep() == 1
    assert not young.exists()
    assert await store.sweep() == 0


INCREMENT = """
import asyncio, sys
from pathlib import Path
from hsparse.errors import PreconditionFailed
from hsparse.storage.posix import PosixStore

async def main():
    store = PosixStore(Path(sys.argv[1]), fsync=False, wal=sys.argv[2] != "0")
    async def one():
        while True:
            stored = await store.get("deep/counter")
            try:
                await store.put_if_match("deep/counter", str(int(stored.data) + 1).encode(), stored.etag)
                return
            except PreconditionFailed:
                pass
    async def run():
        for _ in range(50):
            await one()
            key = "shared/dir/" + sys.argv[2]
            await store.put(key, b"x")
            await store.delete(key)
    await asyncio.gather(run(), run())
    await store.close()

asyncio.run(main())
"""


async def test_processes_lose_no_update(store: PosixStore) -> None:
    """One of them by renames, the others through logs."""
    await store.put("deep/counter", b"0")
    root = store._root.path
    processes = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", INCREMENT, root, str(number))
        for number in range(3)
    ]
    assert [await process.wait() for process in processes] == [0, 0, 0]
    assert (await store.get("deep/counter")).data == b"300"
    assert await keys(store) == ["deep/counter"]


PUT_FOR_EVER = """
import asyncio, itertools, sys
from pathlib import Path
from hsparse.storage.posix import PosixStore

async def main():
    store = PosixStore(Path(sys.argv[1]), wal=True)
    async def run(key):
        for number in itertools.count(int(sys.argv[2])):
            await store.put(key, number.to_bytes(8, "big") * int(sys.argv[3]))
            print(key, number, flush=True)
    await asyncio.gather(*(run(f"d/{name}") for name in "abcd"))

asyncio.run(main())
"""


def put_until_killed(root: str, start: int, times: int, acknowledged: int) -> dict[str, int]:
    """Put rising numbers, many times over, until killed after so many; return each key's last acknowledged."""
    command = [sys.executable, "-c", PUT_FOR_EVER, root, str(start), str(times)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        lines = [next(process.stdout) for _ in range(acknowledged)]
        os.killpg(process.pid, signal.SIGKILL)  # with the process that puts through the log
        lines += process.stdout
    return {key: int(number) for key, number in (line.split() for line in lines if line.endswith("\n"))}


@pytest.mark.parametrize("times", [7000, 40_000], ids=["through the log", "by a rename"])
async def test_a_kill_leaves_no_torn_object(store: PosixStore, times: int) -> None:
    for start in range(0, 8000, 1000):
        count = 20 + start // 300  # another one each time, so that the kill meets other steps of a put
        acknowledged = await asyncio.to_thread(put_until_killed, store._root.path, start, times, count)
        assert len(acknowledged) == 4
        for key, number in acknowledged.items():
            stored = await store.get(key)
            assert stored.data == stored.data[:8] * times
            # The put after the last acknowledged one may have been made and not yet answered.
            assert int.from_bytes(stored.data[:8], "big") in (number, number + 1)
            await store.put_if_match(key, b"", stored.etag)  # no lock is left behind
        assert await keys(store) == sorted(acknowledged)


def modes_below(root: str) -> dict[str, int]:
    paths = [Path(root), *Path(root).rglob("*")]
    return {str(path.relative_to(root)): path.stat().st_mode & 0o777 for path in paths}


@pytest.mark.parametrize("wal", [False, True], ids=["renames", "log"])
async def test_other_accounts_cannot_read_or_lock_anything(tmp_path: Path, wal: bool) -> None:
    before = os.umask(0)
    try:
        root = RootDirectory(str(tmp_path / "above" / "root"))
        with serving_root(root, "a test"):
            store = PosixStore(Path(root.path), wal=wal)
            await store.put("db/a/b", b"small")
            await store.put("db/c", bytes(100_000))
            await store.delete("db/c")
            modes = modes_below(root.path)
            await store.close()
    finally:
        os.umask(before)
    assert any(name.startswith(".hsparse/locks/") for name in modes)
    assert modes["db/a/b"] == 0o600
    assert not any(mode & 0o077 for mode in modes.values()), modes


@pytest.mark.parametrize("wal", [False, True])
@pytest.mark.parametrize("mount_point", [False, True])
async def test_a_directory_that_is_gone_is_not_empty(tmp_path: Path, wal: bool, mount_point: bool) -> None:
    store = PosixStore(tmp_path / "root", wal=wal)
    etag = await store.put("db/a", b"data")
    (tmp_path / "root").rename(tmp_path / "away")
    if mount_point:
        (tmp_path / "root").mkdir()
    for call in (
        *(store.get("db/a"), store.get_range("db/a", 0, 1), store.put("db/b", b"")),
        *(store.put_if_absent("db/c/d", b""), anext(store.list("db/")), store.delete("db/a")),
        *(store.delete_if_match("db/a", etag), store.delete_all([Entry("db/a", 4, etag, 0.0)])),
    ):
        with pytest.raises(StoreFailed, match="store 'root'"):
            await call
    assert not [one for one in (tmp_path / "root").rglob("*") if one.is_file()]
    shutil.rmtree(tmp_path / "root", ignore_errors=True)
    (tmp_path / "away").rename(tmp_path / "root")
    assert (await store.get("db/a")).etag == etag
    await store.close()
