"""Puts through logs against a dict, with crashes that lose what was not synced."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hsparse.errors import Conflict, NotFound, PreconditionFailed, StoreFailed
from hsparse.storage.logged_puts import LoggedPuts
from hsparse.storage.posix import PosixStore
from hsparse.storage.posix_put import put_by_rename
from hsparse.storage.posix_root import PosixRoot
from hsparse.storage.prepared_put import Put
from hsparse.storage.put_condition import Condition
from hsparse.storage.put_log import log_paths
from hsparse.storage.put_recovery import recover

KEYS = ("a", "d/b", "d/e/c")
steps = st.lists(
    st.tuples(
        st.sampled_from(("log 0", "log 1", "rename", "delete", "empty 0", "empty 1", "crash")),
        st.sampled_from(KEYS),
        st.integers(0, 9000),
    ),
    max_size=40,
)


@pytest.fixture
def root(tmp_path: Path) -> PosixRoot:
    made = PosixRoot(str(tmp_path))
    made.make()
    return made


@pytest.fixture
def puts(root: PosixRoot) -> Iterator[LoggedPuts]:
    made = LoggedPuts(root, "store")
    yield made
    made.close()


def put(
    puts: LoggedPuts, key: str, data: bytes, condition: Condition = Condition.NONE, etag: str = ""
) -> str:
    (result,) = puts.put([Put(key, data, condition, etag)])
    if not isinstance(result, str):
        raise result
    return result


def die(puts: LoggedPuts) -> None:
    """End as a process does that is killed: its locks are free and its log is left."""
    for log in (puts._emptied(), puts._log):
        if log is not None:
            os.close(log._file)
    puts._emptier.shutdown()
    for lock in puts._locks.values():
        os.close(lock)


def leave_half_written(path: Path) -> None:
    path.write_bytes(b"who")
    path.chmod(mode_of(path) | stat.S_ISVTX)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@dataclass
class Machine:
    """Two processes that put through logs, and what the disk is known to hold of each key."""

    root: PosixRoot
    puts: list[LoggedPuts] = field(default_factory=list)
    values: dict[str, bytes] = field(default_factory=dict)
    unsynced: dict[str, list[int]] = field(default_factory=dict)
    """By key: the modification times that its file may have after a crash, 0 for no file."""
    logged: list[set[str]] = field(default_factory=list)
    """What is in the log of each process."""

    def start(self) -> None:
        assert recover(self.root) >= 0
        self.puts = [LoggedPuts(self.root, "store") for _ in range(2)]
        self.logged = [set(), set()]

    def path(self, key: str) -> Path:
        return Path(self.root.path, key)

    def time(self, key: str) -> int:
        return self.path(key).stat().st_mtime_ns if self.path(key).exists() else 0

    def step(self, what: str, key: str, size: int) -> None:
        data = os.urandom(4) + bytes(size)
        if what.startswith("log"):
            self.unsynced.setdefault(key, []).append(self.time(key))
            put(self.puts[int(what[-1])], key, data)
            self.logged[int(what[-1])].add(key)
            self.values[key] = data
        elif what == "rename":
            put_by_rename(self.root, key, data)
            self.values[key] = data
            self.unsynced.pop(key, None)
        elif what == "delete":
            store = PosixStore(Path(self.root.path))
            store._delete(key)
            store._pool.shutdown()
            self.values.pop(key, None)
            self.unsynced.pop(key, None)
        elif what.startswith("empty"):
            self.puts[int(what[-1])].empty()
            for synced in self.logged[int(what[-1])]:
                self.unsynced.pop(synced, None)
            self.logged[int(what[-1])].clear()

    def crash(self, choose: Callable[[list[Any]], Any]) -> None:
        """Lose of each file what no sync has made sure of."""
        for one in self.puts:
            die(one)
        for key, times in self.unsynced.items():
            if not self.path(key).exists():
                continue
            kept = choose([*times, "as it is", "in the middle"])
            if kept == "as it is":
                continue
            if kept == 0:
                self.path(key).unlink()
                continue
            with self.path(key).open("r+b") as file:
                file.write(b"torn")
                file.truncate(choose([0, 2, 5000]))
            if kept == "in the middle":
                self.path(key).chmod(mode_of(self.path(key)) | stat.S_ISVTX)
            else:
                os.utime(self.path(key), ns=(kept, kept))
        self.unsynced.clear()
        self.start()
        self.check()

    def check(self) -> None:
        for key in KEYS:
            held = self.path(key).read_bytes() if self.path(key).is_file() else None
            assert held == self.values.get(key), key


@given(steps, st.data())
@settings(max_examples=150, deadline=None)
def test_a_crash_loses_nothing_acknowledged(steps: list[tuple[str, str, int]], data: st.DataObject) -> None:
    def choose(choices: list[Any]) -> Any:
        return data.draw(st.sampled_from(choices))

    with tempfile.TemporaryDirectory() as path:
        machine = Machine(PosixRoot(path, fsync=False))
        machine.root.make()
        machine.start()
        for what, key, size in steps:
            if what == "crash":
                machine.crash(choose)
            else:
                machine.step(what, key, size)
        machine.check()
        machine.crash(choose)
        for puts in machine.puts:
            puts.close()
        assert log_paths(machine.root) == []
        assert recover(machine.root) == 0
        machine.check()


def test_one_sync_for_many_puts(root: PosixRoot, puts: LoggedPuts, monkeypatch: pytest.MonkeyPatch) -> None:
    put(puts, "d/first", b"x")
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append("file"))
    monkeypatch.setattr(os, "fdatasync", lambda file: synced.append("log"))
    results = puts.put([Put(f"d/{i}", b"data") for i in range(20)] + [Put("d/first", b"y")])
    assert all(isinstance(result, str) for result in results)
    assert synced == ["log"]
    assert Path(root.path, "d/first").read_bytes() == b"y"


def test_keys_that_repeat_are_put_in_order(root: PosixRoot, puts: LoggedPuts) -> None:
    results = puts.put(
        [Put("a", b"1", Condition.ABSENT), Put("b", b"1"), Put("a", b"2", Condition.ABSENT), Put("a", b"3")]
    )
    assert [type(result) for result in results] == [str, str, PreconditionFailed, str]
    assert Path(root.path, "a").read_bytes() == b"3"


def test_a_file_with_room_keeps_its_inode_and_its_mode(root: PosixRoot, puts: LoggedPuts) -> None:
    path = Path(root.path, "a")
    put(puts, "a", bytes(4000))
    path.chmod(0o640)
    before = path.stat().st_ino
    for size in (10, 4096, 1, 100):
        etag = put(puts, "a", b"x" * size)
        assert path.read_bytes() == b"x" * size
        assert path.stat().st_ino == before
        assert mode_of(path) == 0o640
        put(puts, "a", b"x" * size, Condition.MATCH, etag)
    put(puts, "a", bytes(5000))
    assert path.stat().st_ino != before


def test_a_hard_link_keeps_the_old_object(root: PosixRoot, puts: LoggedPuts) -> None:
    put(puts, "a", b"old")
    Path(root.path, "copy").hardlink_to(Path(root.path, "a"))
    put(puts, "a", b"new")
    assert Path(root.path, "copy").read_bytes() == b"old"


def test_a_symbolic_link_is_replaced_not_followed(root: PosixRoot, puts: LoggedPuts) -> None:
    Path(root.path, "other").write_bytes(b"old")
    Path(root.path, "a").symlink_to("other")
    put(puts, "a", b"new")
    assert Path(root.path, "other").read_bytes() == b"old"
    assert Path(root.path, "a").read_bytes() == b"new"


def test_objects_and_directories_exclude_each_other(puts: LoggedPuts) -> None:
    put(puts, "a/b", b"x")
    for key in ("a", "a/b/c"):
        with pytest.raises(Conflict):
            put(puts, key, b"y")


def test_a_file_system_with_coarse_times_has_no_log(root: PosixRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    utime = os.utime

    def coarse(path: int | str, *, ns: tuple[int, int]) -> None:
        utime(path, ns=(ns[0] // 10**9 * 10**9, ns[1] // 10**9 * 10**9))

    monkeypatch.setattr(os, "utime", coarse)
    puts = LoggedPuts(root, "store")
    etags = {put(puts, "a", b"same") for _ in range(3)}
    assert len(etags) == 3
    assert puts.idle
    puts.close()


def test_a_log_that_cannot_be_written(
    root: PosixRoot, puts: LoggedPuts, monkeypatch: pytest.MonkeyPatch
) -> None:
    etag = put(puts, "a", b"old")

    def fail(file: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", fail)
        patch.setattr(puts, "empty", lambda: None)
        with pytest.raises(StoreFailed, match="free space"):
            put(puts, "a", b"new")
        with pytest.raises(StoreFailed, match="free space"):
            put(puts, "b", b"new")
    assert sorted(path.name for path in Path(root.path).iterdir()) == [".hsparse", "a"]
    put(puts, "a", b"newer", Condition.MATCH, etag)


def test_nothing_follows_records_of_unknown_fate(root: PosixRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    puts = LoggedPuts(root, "store")
    put(puts, "a", b"old")
    assert puts._log is not None
    before = puts._log.path
    append = puts._log.append

    def fail(records: Any) -> None:
        append(records)
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(puts._log, "append", fail)
    with pytest.raises(StoreFailed, match="check the disk"):
        put(puts, "a", b"refused")
    assert puts._log.path != before
    put(puts, "a", b"new")
    die(puts)
    recover(root)
    assert Path(root.path, "a").read_bytes() == b"new"


async def test_what_a_live_process_cannot_finish_is_not_served(
    root: PosixRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    puts = LoggedPuts(root, "store")
    put(puts, "a", b"old")
    store = PosixStore(Path(root.path))

    def fail(file: int, size: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "ftruncate", fail)
        with pytest.raises(StoreFailed, match="check the disk"):
            put(puts, "a", b"x")
        with pytest.raises(StoreFailed, match="half written"):
            await store.get("a")
        with pytest.raises(StoreFailed, match="half written"):
            await store.put("a", b"y")
        with pytest.raises(StoreFailed, match="half written"):
            await store.delete("a")
        with pytest.raises(StoreFailed, match="half written"):
            _ = [page async for page in store.list("")]
    die(puts)
    assert (await store.get("a")).data == b"x"
    await store.close()


async def test_what_a_dead_process_left_half_written_is_mended_by_who_meets_it(root: PosixRoot) -> None:
    store = PosixStore(Path(root.path))
    meets: list[Callable[[], Any]] = [
        lambda: store.get("a"),
        lambda: store.put_if_absent("a", b"other"),
        lambda: anext(store.list("")),
    ]
    for number, meet in enumerate(meets):
        puts = LoggedPuts(root, "store")
        put(puts, "a", b"whole%d" % number)
        die(puts)
        leave_half_written(path := Path(root.path, "a"))
        try:
            await meet()
        except PreconditionFailed:
            assert number == 1
        assert (await store.get("a")).data == b"whole%d" % number
        assert not mode_of(path) & stat.S_ISVTX
    await store.delete("a")
    with pytest.raises(NotFound):
        await store.get("a")
    await store.close()


def test_files_are_synced_before_their_records_go(
    root: PosixRoot, puts: LoggedPuts, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(puts, "d/e/a", b"x")
    synced: list[str] = []
    fsync = os.fsync

    def note(file: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{file}").readlink()))
        fsync(file)

    monkeypatch.setattr(os, "fsync", note)
    puts.empty()
    assert puts._emptying is not None
    puts._emptying.result()
    path = root.path
    synced = [name for name in synced if ".hsparse" not in name]
    assert synced[0] == f"{path}/d/e/a"
    assert set(synced) == {f"{path}/d/e/a", path, f"{path}/d", f"{path}/d/e"}
    assert not mode_of(Path(path, "d")) & stat.S_ISVTX


def test_a_sync_that_fails_keeps_the_log(
    root: PosixRoot, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    puts = LoggedPuts(root, "store")
    put(puts, "a", b"x")
    (path,) = log_paths(root)

    def fail(file: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        puts.empty()
        assert puts._emptying is not None
        assert puts._emptying.result() is None
        assert path in caplog.text
        put_errors = puts.put([Put("a", b"y")])
        assert "check the disk" in str(
            put_errors[0]
        )  # no log can be made: it goes by a rename, and that fails
    assert path in log_paths(root)
    put(puts, "a", b"z")
    die(puts)
    assert path in log_paths(root)
    recover(root)
    assert Path(root.path, "a").read_bytes() == b"z"
