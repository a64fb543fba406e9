"""Puts through logs against a dict, with crashes that lose what was not synced."""

from __future__ import annotations

import itertools
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hsparse.errors import Conflict, NotFound, PreconditionFailed, StoreFailed, StoreFull
from hsparse.storage.filesystem.object_file import Condition, file_etag
from hsparse.storage.filesystem.rename_put import put_by_rename
from hsparse.storage.filesystem.root_directory import YEAR_NS, RootDirectory
from hsparse.storage.object_store import Entry
from hsparse.storage.posix import PosixStore
from hsparse.storage.wal import wal_writer
from hsparse.storage.wal.file_deletion import delete_file, delete_files
from hsparse.storage.wal.recovery import recover, repair, repairing
from hsparse.storage.wal.wal_writer import WalWriter
from hsparse.storage.wal.write_ahead_log import PreparedPut, Put, WriteAheadLog, log_paths, read_log
from tests.support.endurance import repeats

KEYS = ("a", "d/b", "d/e/c")
steps = st.lists(
    st.tuples(
        st.sampled_from(
            (
                *("log 0", "log 1", "rename", "delete", "delete all", "checkpoint 0", "checkpoint 1"),
                *("kill 0", "kill 1", "clock", "recover", "crash"),
            )
        ),
        st.sampled_from(KEYS),
        st.integers(0, 9000),
    ),
    max_size=40,
)


@pytest.fixture
def root(tmp_path: Path) -> RootDirectory:
    made = RootDirectory(str(tmp_path))
    made.make()
    return made


@pytest.fixture
def puts(root: RootDirectory) -> Iterator[WalWriter]:
    made = WalWriter(root, "store")
    yield made
    made.close()


def put(puts: WalWriter, key: str, data: bytes, condition: Condition = Condition.NONE, etag: str = "") -> str:
    (result,) = puts.put([Put(key, data, condition, etag)])
    if not isinstance(result, str):
        raise result
    return result


def die(puts: WalWriter) -> None:
    """End as a process does that is killed: its locks are free and its log is left."""
    for log in (puts._checkpointed(), puts._log):
        if log is not None:
            os.close(log._file)
    puts._checkpointer.shutdown()
    for lock in puts._locks.values():
        os.close(lock)


def checkpointed(puts: WalWriter) -> bool:
    """Checkpoint; return whether that has synced all."""
    puts.checkpoint()
    assert puts._checkpointing is not None
    return puts._checkpointing.result() is not None


def note_syncs(patch: pytest.MonkeyPatch, below: str) -> list[str]:
    """Return the paths below the root that are synced from now on."""
    synced: list[str] = []
    fsync = os.fsync

    def note(file: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{file}").readlink().relative_to(below)))
        fsync(file)

    patch.setattr(os, "fsync", note)
    return synced


def read(root: RootDirectory, key: str = "a") -> bytes:
    return Path(root.path, key).read_bytes()


def leave_half_written(path: Path) -> None:
    path.write_bytes(b"who")
    path.chmod(mode_of(path) | stat.S_ISVTX)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def fail(*_: Any, **__: Any) -> Any:
    raise OSError(5, "Input/output error")


class Killed(BaseException):
    """The process ends here."""


def put_and_be_killed(puts: WalWriter, key: str, data: bytes) -> None:
    """End between the log and the file: nobody is told what has become of the put."""

    def kill(one: PreparedPut) -> str:
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PreparedPut, "apply", kill)
        with pytest.raises(Killed):
            put(puts, key, data)
    die(puts)


@dataclass
class Machine:
    """Two processes that put through logs, a third that puts by renames and deletes, and a disk.

    What the disk is known to hold of each key is only what has been synced.
    """

    path: str
    ahead: int = 0
    """Nanoseconds by which the clock goes before the true one."""
    puts: list[WalWriter] = field(default_factory=list)
    values: dict[str, bytes] = field(default_factory=dict)
    unknown: dict[str, set[bytes]] = field(default_factory=dict)
    """By key: what puts that were not answered would have made of it, unless another came after them."""
    unsynced: dict[str, list[int]] = field(default_factory=dict)
    """By key: the modification times that its file may have after a crash, 0 for no file."""
    logged: list[set[str]] = field(default_factory=list)
    """What is in the log of each process."""

    def __post_init__(self) -> None:
        self.root = RootDirectory(self.path, fsync=False, now_ns=lambda: time.time_ns() + self.ahead)
        self.root.make()
        self.store = PosixStore(Path(self.path), fsync=False, now_ns=self.root.now_ns)
        self.start()

    def start(self) -> None:
        assert recover(self.root) >= 0
        self.puts = [WalWriter(self.root, "store") for _ in range(2)]
        self.logged = [set(), set()]

    def end(self) -> None:
        for puts in self.puts:
            puts.close()
        self.store._pool.shutdown()

    def file(self, key: str) -> Path:
        return Path(self.path, key)

    def time(self, key: str) -> int:
        return self.file(key).stat().st_mtime_ns if self.file(key).exists() else 0

    def step(self, what: str, key: str, size: int) -> None:
        data = os.urandom(4) + bytes(size)
        if what.startswith("log"):
            self.unsynced.setdefault(key, []).append(self.time(key))
            put(self.puts[int(what[-1])], key, data)
            self.logged[int(what[-1])].add(key)
            self.know(key, data)
        elif what.startswith("kill"):
            self.kill(int(what[-1]), key, data)
        elif what == "rename":
            repairing(self.root, key, partial(put_by_rename, self.root, key, data))
            self.know(key, data)
            self.unsynced.pop(key, None)
        elif what == "delete":
            if size % 2 and self.file(key).exists():
                repair(self.root, key)
                etag = file_etag(self.file(key).stat())
                with pytest.raises(PreconditionFailed):
                    delete_file(self.root, key, Condition.MATCH, "0-0-0")
                delete_file(self.root, key, Condition.MATCH, etag)
            else:
                delete_file(self.root, key)
            self.know(key, None)
            self.unsynced.pop(key, None)
        elif what == "delete all":
            self.delete_all(key)
        elif what.startswith("checkpoint"):
            self.puts[int(what[-1])].checkpoint()
            for synced in self.logged[int(what[-1])]:
                self.unsynced.pop(synced, None)
            self.logged[int(what[-1])].clear()
        elif what == "clock":
            self.ahead -= size * 1_000_000_000
        else:
            self.recover()

    def delete_all(self, other: str) -> None:
        """Delete every object but that of the key `other`, which is given in another state."""
        for key in KEYS:
            if self.file(key).exists():
                repair(self.root, key)
        etags = {
            key: file_etag(self.file(key).stat()) if self.file(key).exists() else "0-0-0" for key in KEYS
        }
        was_there = self.file(other).exists()
        entries = [Entry(key, 0, "0-0-0" if key == other else etag, 0.0) for key, etag in etags.items()]
        assert delete_files(self.root, entries) == [key != other or not was_there for key in KEYS]
        for key in {*KEYS} - ({other} if was_there else set()):
            self.know(key, None)
            self.unsynced.pop(key, None)

    def recover(self) -> None:
        """What a recovery has put, or found, is synced."""
        live = {one._log.path for one in self.puts if one._log is not None}
        dates: dict[str, int] = {}
        for path in set(log_paths(self.root)) - live:
            with open(path, "rb") as log:  # noqa: PTH123
                for record in read_log(log.fileno()):
                    dates[record.key] = max(record.date, dates.get(record.key, 0))
        recover(self.root)
        for key, date in dates.items():
            if self.time(key) == date:
                self.unsynced.pop(key, None)

    def know(self, key: str, data: bytes | None) -> None:
        """What is answered comes after all that was not."""
        self.unknown.pop(key, None)
        if data is None:
            self.values.pop(key, None)
        else:
            self.values[key] = data

    def kill(self, number: int, key: str, data: bytes) -> None:
        put_and_be_killed(self.puts[number], key, data)
        self.unknown.setdefault(key, set()).add(data)
        self.unsynced.setdefault(key, []).append(self.time(key))
        self.puts[number] = WalWriter(self.root, "store")
        self.logged[number] = set()

    def crash(self, choose: Callable[[list[Any]], Any]) -> None:
        """Lose of each file what no sync has made sure of, and the times passed."""
        for one in self.puts:
            die(one)
        for key, times in self.unsynced.items():
            if not self.file(key).exists():
                continue
            kept = choose([*times, "as it is", "in the middle"])
            if kept == "as it is":
                continue
            if kept == 0:
                self.file(key).unlink()
                continue
            with self.file(key).open("r+b") as file:
                file.write(b"torn")
                file.truncate(choose([0, 2, 5000]))
            if kept == "in the middle":
                self.file(key).chmod(mode_of(self.file(key)) | stat.S_ISVTX)
            else:
                os.utime(self.file(key), ns=(kept, kept))
        self.unsynced.clear()
        for lock in Path(self.root.internal, "locks").iterdir():
            if choose([True, False]):
                lock.write_bytes(b"")
        self.start()
        self.check()

    def check(self) -> None:
        for key in KEYS:
            held = self.file(key).read_bytes() if self.file(key).is_file() else None
            assert held == self.values.get(key) or held in self.unknown.get(key, ()), key


@pytest.mark.endurance
@given(steps, st.data())
@settings(max_examples=repeats(150, short=25), deadline=None)
def test_a_crash_loses_nothing_acknowledged(steps: list[tuple[str, str, int]], data: st.DataObject) -> None:
    def choose(choices: list[Any]) -> Any:
        return data.draw(st.sampled_from(choices))

    with tempfile.TemporaryDirectory() as path:
        machine = Machine(path)
        for what, key, size in steps:
            if what == "crash":
                machine.crash(choose)
            else:
                machine.step(what, key, size)
                machine.check()
        machine.crash(choose)
        machine.end()
        assert (log_paths(machine.root), recover(machine.root)) == ([], 0)
        machine.check()


def test_one_sync_of_many_puts(root: RootDirectory, puts: WalWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    put(puts, "d/first", b"x")
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append("file"))
    monkeypatch.setattr(os, "fdatasync", lambda file: synced.append("log"))
    results = puts.put([Put(f"d/{i}", b"data") for i in range(20)] + [Put("d/first", b"y")])
    assert all(isinstance(result, str) for result in results)
    assert (synced, read(root, "d/first")) == (["log"], b"y")


def test_keys_that_repeat_are_put_in_order(root: RootDirectory, puts: WalWriter) -> None:
    results = puts.put(
        [Put("a", b"1", Condition.ABSENT), Put("b", b"1"), Put("a", b"2", Condition.ABSENT), Put("a", b"3")]
    )
    assert [type(result) for result in results] == [str, str, PreconditionFailed, str]
    assert read(root) == b"3"


def test_a_file_with_room_keeps_its_inode_and_its_mode(root: RootDirectory, puts: WalWriter) -> None:
    path = Path(root.path, "a")
    put(puts, "a", bytes(4000))
    path.chmod(0o640)
    before = path.stat().st_ino
    for size in (10, 4096, 1, 100):
        etag = put(puts, "a", b"x" * size)
        assert (path.read_bytes(), path.stat().st_ino, mode_of(path)) == (b"x" * size, before, 0o640)
        put(puts, "a", b"x" * size, Condition.MATCH, etag)
    put(puts, "a", bytes(5000))
    assert path.stat().st_ino != before


def test_a_hard_link_keeps_the_old_object(root: RootDirectory, puts: WalWriter) -> None:
    put(puts, "a", b"old")
    Path(root.path, "copy").hardlink_to(Path(root.path, "a"))
    put(puts, "a", b"new")
    assert read(root, "copy") == b"old"


def test_a_symbolic_link_is_replaced_not_followed(root: RootDirectory, puts: WalWriter) -> None:
    Path(root.path, "other").write_bytes(b"old")
    Path(root.path, "a").symlink_to("other")
    put(puts, "a", b"new")
    assert read(root, "other") == b"old"
    assert read(root) == b"new"


def test_objects_and_directories_exclude_each_other(puts: WalWriter) -> None:
    put(puts, "a/b", b"x")
    for key in ("a", "a/b/c"):
        with pytest.raises(Conflict):
            put(puts, key, b"y")


def test_with_coarse_times_there_is_no_log(root: RootDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    utime = os.utime

    def coarse(path: int | str, *, ns: tuple[int, int]) -> None:
        utime(path, ns=(ns[0] // 10**9 * 10**9, ns[1] // 10**9 * 10**9))

    monkeypatch.setattr(os, "utime", coarse)
    puts = WalWriter(root, "store")
    assert len({put(puts, "a", b"same") for _ in range(3)}) == 3
    assert puts.idle
    puts.close()


def test_a_log_without_space(root: RootDirectory, puts: WalWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    etag = put(puts, "a", b"old")

    def fail(file: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", fail)
        patch.setattr(puts, "checkpoint", lambda: None)
        with pytest.raises(StoreFull, match="free space"):
            put(puts, "a", b"new")
        with pytest.raises(StoreFull, match="free space"):
            put(puts, "b", b"new")
    assert sorted(path.name for path in Path(root.path).iterdir()) == [".hsparse", "a"]
    put(puts, "a", b"newer", Condition.MATCH, etag)


@pytest.mark.parametrize("mark", [b"\xff" * 8, b"\x40" + bytes(7)])
def test_a_damaged_lock_file_fails_no_puts(root: RootDirectory, puts: WalWriter, mark: bytes) -> None:
    put(puts, "a", b"x")
    Path(root.internal, "locks", f"{root.lock_number('a'):02x}").write_bytes(mark)
    results = puts.put([Put(key, b"y") for key in "abcd"])
    assert all(isinstance(result, str) for result in results), results
    assert Path(root.path, "a").stat().st_mtime_ns < root.now_ns() + YEAR_NS


OPEN, RENAME, APPLY = (wal_writer, "open_for_writing"), (wal_writer, "put_by_rename"), (PreparedPut, "apply")


@pytest.mark.parametrize(
    ("calls", "kind"), [([OPEN], str), ([OPEN, RENAME], StoreFailed), ([APPLY], StoreFailed)]
)
def test_a_put_that_fails_unexpectedly_fails_alone(
    puts: WalWriter, calls: list[tuple[Any, str]], kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    for owner, name in calls:
        called = getattr(owner, name)

        def fail(*args: Any, called: Any = called) -> Any:
            if "bad" in str(args):
                raise OverflowError("too large")
            return called(*args)

        monkeypatch.setattr(owner, name, fail)
    first, bad, last = puts.put([Put(key, b"x") for key in ("a", "bad", "b")])
    assert [type(one) for one in (first, last)] == [str, str]
    assert isinstance(bad, kind)
    put(puts, "c", b"x")


def test_no_record_follows_an_unknown_one(root: RootDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    puts = WalWriter(root, "store")
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
    assert read(root) == b"new"


async def test_what_a_live_process_cannot_finish_is_not_served(
    root: RootDirectory, puts: WalWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(puts, "a", b"old")
    store = PosixStore(Path(root.path))
    with monkeypatch.context() as patch:
        patch.setattr(os, "ftruncate", fail)
        patch.setattr(os, "rename", fail)
        with pytest.raises(StoreFailed, match="check the disk"):
            put(puts, "a", b"x")
        for call in (store.get("a"), store.put("a", b"y"), store.delete("a"), anext(store.list(""))):
            with pytest.raises(StoreFailed, match="check the disk"):
                await call
    assert (await store.get("a")).data == b"x"
    await store.close()


@pytest.mark.parametrize("repairable", [True, False])
def test_what_could_not_be_written_outlives_the_checkpoint(
    root: RootDirectory, monkeypatch: pytest.MonkeyPatch, repairable: bool
) -> None:
    puts = WalWriter(root, "store")
    put(puts, "a", b"old")
    with monkeypatch.context() as patch:
        patch.setattr(os, "ftruncate", fail)
        with pytest.raises(StoreFailed, match="check the disk"):
            put(puts, "a", b"x")
        if not repairable:
            patch.setattr(os, "rename", fail)
        assert checkpointed(puts) == repairable
    die(puts)
    recover(root)
    assert read(root) == b"x"
    assert not mode_of(Path(root.path, "a")) & stat.S_ISVTX


def test_a_mark_that_no_log_explains(root: RootDirectory) -> None:
    leave_half_written(Path(root.path, "a"))
    with pytest.raises(StoreFailed, match="no log holds its bytes"):
        repair(root, "a")


def test_no_lock_to_be_had_is_an_error_of_the_put(
    root: RootDirectory, puts: WalWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(puts, "a", b"old")
    with monkeypatch.context() as patch:
        patch.setattr(RootDirectory, "open_lock", fail)
        with pytest.raises(StoreFailed, match="check the disk"):
            put(puts, "b", b"x")
    put(puts, "b", b"x")


def test_an_impossible_log_leaves_nothing(root: RootDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    puts = WalWriter(root, "store")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", fail)
        put(puts, "a", b"by a rename")
        before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        for _ in range(5):
            put(puts, "a", b"by a rename")
        assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
        assert log_paths(root) == []
    puts.close()


def test_directories_of_what_was_deleted_are_not_made_again(root: RootDirectory) -> None:
    puts = WalWriter(root, "store")
    put(puts, "d/e/a", b"x")
    put(puts, "f/a", b"x")
    for key in ("d/e/a", "f/a"):
        delete_file(root, key)
    put(puts, "d", b"an object now")
    assert checkpointed(puts)
    put(puts, "f", b"an object now")
    delete_file(root, "f")
    die(puts)
    recover(root)
    assert sorted(path.name for path in Path(root.path).iterdir()) == [".hsparse", "d"]


def test_a_recovery_puts_nothing_refused(root: RootDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    puts = WalWriter(root, "store")
    rename = os.rename
    directory = Path(root.path, "a")

    def rename_late(source: str, target: str) -> None:
        directory.mkdir()
        rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", rename_late)
        with pytest.raises(Conflict):
            put(puts, "a", b"x")
    directory.rmdir()
    die(puts)
    recover(root)
    assert not directory.exists()


def test_what_a_directory_refuses_is_not_logged(puts: WalWriter) -> None:
    put(puts, "a/b", b"x")
    assert puts._log is not None
    used = puts._log.used
    with pytest.raises(Conflict):
        put(puts, "a", b"y")
    assert puts._log.used == used


async def test_what_a_dead_process_left_half_written_is_repaired_by_who_meets_it(root: RootDirectory) -> None:
    store = PosixStore(Path(root.path))
    meets: list[Callable[[], Any]] = [
        lambda: store.get("a"),
        lambda: store.put_if_absent("a", b"other"),
        lambda: anext(store.list("")),
    ]
    for number, meet in enumerate(meets):
        puts = WalWriter(root, "store")
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
    root: RootDirectory, puts: WalWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(puts, "d/e/a", b"x")
    synced = note_syncs(monkeypatch, root.path)
    checkpointed(puts)
    synced = [name for name in synced if ".hsparse" not in name]
    assert synced[:2] == [".", "d/e/a"]  # the first for the next log, whose directory may be new
    assert set(synced) == {"d/e/a", ".", "d", "d/e"}
    assert not mode_of(Path(root.path, "d")) & stat.S_ISVTX


def test_a_checkpoint_syncs_each_new_file_and_its_directory_and_what_is_above_once(
    root: RootDirectory, puts: WalWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(puts, "other", b"x")
    checkpointed(puts)  # so that the next one needs no new log
    keys = [f"db/domain/g/{number}/.group.json" for number in range(100)]
    assert all(isinstance(result, str) for result in puts.put([Put(key, b"x") for key in keys]))
    synced = note_syncs(monkeypatch, root.path)
    assert checkpointed(puts)
    above = {".", "db", "db/domain", "db/domain/g"}
    assert len(synced) == 2 * len(keys) + len(above)
    assert set(synced) == {*keys, *(key.rpartition("/")[0] for key in keys), *above}


def test_a_sync_that_fails_keeps_the_log(
    root: RootDirectory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    puts = WalWriter(root, "store")
    put(puts, "a", b"x")
    (path,) = log_paths(root)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        assert not checkpointed(puts)
        assert path in caplog.text
        # No log can be made: it goes by a rename, and that fails.
        assert "check the disk" in str(puts.put([Put("a", b"y")])[0])
    assert path in log_paths(root)
    put(puts, "a", b"z")
    die(puts)
    assert path in log_paths(root)
    recover(root)
    assert read(root) == b"z"


def test_an_unexpected_error_of_a_checkpoint_fails_no_put(
    root: RootDirectory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    puts = WalWriter(root, "store")
    put(puts, "a", b"x")
    (path,) = log_paths(root)

    def fail(root: RootDirectory, key: str) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(wal_writer, "_sync_file", fail)
        puts.checkpoint()
        patch.setattr(WriteAheadLog, "full", True)  # so the next put waits for the checkpoint
        put(puts, "b", b"y")
    assert f"The write-ahead log {path} cannot be checkpointed." in caplog.text
    die(puts)
    recover(root)
    assert (read(root), read(root, "b")) == (b"x", b"y")


CALLS = [
    *("write", "pwrite", "fsync", "fdatasync", "rename", "ftruncate", "utime", "fchmod", "open", "fstat"),
    *("pread", "unlink", "stat", "mkdir"),
]


def put_on_a_failing_disk(path: str, first: int, lasting: bool) -> bool:
    """Fail system call number `first`, and with `lasting` all after it; tell whether there was such a call."""
    root = RootDirectory(path)
    root.make()
    puts = WalWriter(root, "store")
    puts.put([Put("a", b"old" * 500), Put("d/b", b"old")])
    known: dict[str, set[bytes | None]] = {"a": {b"old" * 500}, "d/b": {b"old"}, "new": {None}}
    numbers = itertools.count()
    failed: list[int] = []

    def failing(call: Callable[..., Any]) -> Callable[..., Any]:
        def fail_or_call(*arguments: Any, **named: Any) -> Any:
            number = next(numbers)
            if number == first or (lasting and number > first):
                failed.append(number)
                fail()
            return call(*arguments, **named)

        return fail_or_call

    with pytest.MonkeyPatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, failing(getattr(os, name)))
        for key, data in (("a", b"new" * 300), ("d/b", b"new" * 3000), ("new", b"new")):
            (result,) = puts.put([Put(key, data)])
            known[key] = {data} if isinstance(result, str) else known[key] | {data}
        puts.checkpoint()
        if puts._checkpointing is not None:
            puts._checkpointing.result()
    assert isinstance(puts.put([Put("d/b", b"last")])[0], str)
    known["d/b"] = {b"last"}
    die(puts)
    recover(root)
    for key, may in known.items():
        held = Path(path, key)
        assert (held.read_bytes() if held.exists() else None) in may, (first, key)
    assert log_paths(root) == []
    return bool(failed)


@pytest.mark.parametrize("lasting", [False, True])
def test_a_disk_that_fails_at_any_call(lasting: bool) -> None:
    for first in itertools.count():
        with tempfile.TemporaryDirectory() as path:
            if not put_on_a_failing_disk(path, first, lasting):
                break
    assert first > 50


@pytest.mark.timeout(30)
def test_a_removed_store_ends_its_puts(root: RootDirectory, caplog: pytest.LogCaptureFixture) -> None:
    puts = WalWriter(root, "store")
    put(puts, "d/a", b"one")
    shutil.rmtree(root.path)
    puts.close()
    assert "cannot be checkpointed" in caplog.text
