"""Root directories: which servers share one, what is served of it, and the files of their processes."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hsparse.errors import Conflict, Misconfigured
from hsparse.storage.filesystem import root_directory
from hsparse.storage.filesystem.root_directory import (
    YEAR_NS,
    RootDirectory,
    high_water_mark,
    raise_high_water_mark,
)
from hsparse.storage.filesystem.served_root import (
    create_process_file,
    open_file_of_dead_process,
    serving_root,
)


@pytest.fixture
def root(tmp_path: Path) -> RootDirectory:
    made = RootDirectory(str(tmp_path))
    made.make()
    return made


def path_of(file: int) -> str:
    return str(Path(f"/proc/self/fd/{file}").readlink())


def no_locks(file: int, operation: int) -> None:
    raise OSError(37, "No locks available")


def is_marked(path: Path) -> bool:
    return bool(path.stat().st_mode & stat.S_ISVTX)


def test_a_directory_made_again_meanwhile_keeps_its_mark(
    root: RootDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sync that was waited for was of the one before it."""
    root.make_directories("a/b", durable=False)
    fsync = os.fsync

    def sync_and_prune(file: int) -> None:
        fsync(file)
        (tmp_path / "a").rmdir()
        root.make_directories("a/b", durable=False)

    monkeypatch.setattr(os, "fsync", sync_and_prune)
    root.make_directories("a/b")
    assert is_marked(tmp_path / "a")


def test_old_directories_are_synced(
    root: RootDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root.make_directories("a/b/key", durable=False)
    (tmp_path / "object").write_bytes(b"x")
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(path_of(file)))
    root.sync_directories("a/b/c/key")
    assert synced == [str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a" / "b")]
    assert not is_marked(tmp_path / "a")
    assert not is_marked(tmp_path / "a" / "b")
    assert not (tmp_path / "a" / "b" / "c").exists()
    synced.clear()
    root.sync_directories("object/key")
    root.sync_directories("key")
    assert synced == [str(tmp_path)] * 2


def test_a_parent_of_many_new_directories_is_synced_once(
    root: RootDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(root_directory, "OPENED_AT_ONCE", 4)
    folders = [f"a/b/{number}" for number in range(9)]
    for folder in folders:
        root.make_directories(f"{folder}/key", durable=False)
    root.make_directories("a/c/d/key", durable=False)
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(path_of(file)))
    root.sync_all_directories([*folders, "a/b", "a/pruned/x", "a/c/d", ""])
    names = [str(Path(name).relative_to(tmp_path)) for name in synced]
    assert names[:3] == [".", "a", "a/b"]  # a directory after those above it
    assert names.count("a/b") == 3  # as many groups of new directories
    assert (names.count("."), names.count("a/c")) == (1, 1)
    assert all(names.count(folder) == 1 for folder in (*folders, "a/c/d"))
    assert len(names) == 3 + 1 + 1 + 10 + 1 + 1  # and once for what is pruned
    assert not any(is_marked(path) for path in tmp_path.rglob("*") if path.is_dir())


def test_one_of_many_directories_made_again_meanwhile_keeps_its_mark(
    root: RootDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "bc":
        root.make_directories(f"a/{name}/key", durable=False)
    fsync = os.fsync

    def sync_and_prune(file: int) -> None:
        fsync(file)
        (tmp_path / "a" / "b").rmdir()
        root.make_directories("a/b/key", durable=False)

    monkeypatch.setattr(os, "fsync", sync_and_prune)
    root.sync_all_directories(["a/b", "a/c"])
    assert is_marked(tmp_path / "a" / "b")
    assert not is_marked(tmp_path / "a" / "c")
    assert not is_marked(tmp_path / "a")


def test_one_new_directory_is_one(
    root: RootDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    mkdir = os.mkdir

    def note(path: str, mode: int) -> None:
        made.append(str(path))
        mkdir(path, mode)

    root.make_directories("a/b/key", durable=False)
    monkeypatch.setattr(os, "mkdir", note)
    root.make_directories("a/c/key", durable=False)
    assert made == [f"{tmp_path}/a/c"]
    assert is_marked(tmp_path / "a" / "c")
    (tmp_path / "object").write_bytes(b"x")
    for key in ("object/key", "object/a/key"):
        with pytest.raises(Conflict):
            root.make_directories(key, durable=False)


def test_a_root_that_was_removed_is_not_made_again(root: RootDirectory, tmp_path: Path) -> None:
    root.path = f"{tmp_path}/gone"
    root.make_directories("key", durable=False)
    assert not (tmp_path / "gone").exists()


def test_the_mark_of_the_root_itself_is_not_ours(root: RootDirectory, tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    root.make_directories("a/key")
    root.sync_directories("a/key")
    assert is_marked(tmp_path)


def test_a_directory_pruned_meanwhile_is_fine(root: RootDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    mkdir = Path.mkdir

    def pruned(path: Path, mode: int) -> None:
        mkdir(path, mode)
        path.rmdir()

    monkeypatch.setattr(Path, "mkdir", pruned)
    with pytest.raises(FileNotFoundError):  # which puts and recoveries take as a reason to try again
        root.make_directories("a/key")


@pytest.mark.parametrize("mark", [2**64 - 1, 2**63, 2**62, 100 * YEAR_NS])
def test_a_high_water_mark_that_has_not_come_yet_is_replaced(
    root: RootDirectory, mark: int, caplog: pytest.LogCaptureFixture
) -> None:
    with root.locked("a") as lock:
        raise_high_water_mark(lock, mark)
        now = root.now_ns()
        assert now <= high_water_mark(lock, now) < now + YEAR_NS
        assert str(mark) in caplog.text
        caplog.clear()
        assert now <= high_water_mark(lock, now) < now + YEAR_NS
        assert caplog.text == ""


def test_a_high_water_mark_outlives_a_clock_that_was_reset(root: RootDirectory) -> None:
    with root.locked("a") as lock:
        for mark in (0, 5, root.now_ns(), root.now_ns() + YEAR_NS // 2):
            raise_high_water_mark(lock, mark)
            assert high_water_mark(lock, 0) == mark


SERVER = """
import sys
from hsparse.storage.filesystem.root_directory import RootDirectory
from hsparse.storage.filesystem.served_root import serving_root
with serving_root(RootDirectory(sys.argv[1]), "hsparse serve"):
    print("serving", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def served_root(tmp_path: Path) -> RootDirectory:
    return RootDirectory(str(tmp_path / "root"), fsync=False)


def entries(served_root: RootDirectory) -> list[Path]:
    return list(Path(served_root.internal, "servers").iterdir())


@pytest.mark.parametrize(("first", "second"), [(False, False), (False, True), (True, False)])
def test_servers_that_would_not_see_each_others_writes_are_refused(
    served_root: RootDirectory, first: bool, second: bool
) -> None:
    with serving_root(served_root, "hsparse one", shared=first):
        with pytest.raises(Misconfigured) as refused, serving_root(served_root, "hsparse two", shared=second):
            pytest.fail("two servers serve one directory")
        here = (served_root.path, str(os.getpid()), socket.gethostname())
        for named in (*here, "hsparse one", "--root", "hsparse dn"):
            assert named in refused.value.message
        assert len(entries(served_root)) == 1
    with serving_root(served_root, "hsparse two", shared=second):
        assert len(entries(served_root)) == 1


def test_data_nodes_of_one_cluster_share_a_directory(served_root: RootDirectory) -> None:
    with (
        serving_root(served_root, "hsparse dn", shared=True),
        serving_root(served_root, "hsparse dn", shared=True),
    ):
        assert len(entries(served_root)) == 2
    assert entries(served_root) == []


def test_a_server_that_was_killed_is_no_hindrance(served_root: RootDirectory) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER, served_root.path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "serving\n"
        with (
            pytest.raises(Misconfigured, match=f"process {process.pid} on"),
            serving_root(served_root, "hsparse dn"),
        ):
            pytest.fail("two servers serve one directory")
        process.send_signal(signal.SIGKILL)
    assert len(entries(served_root)) == 1, "it had no time to remove its entry"
    with serving_root(served_root, "hsparse serve"):
        assert len(entries(served_root)) == 1
    assert entries(served_root) == []


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'{"shared": 0}'])
def test_an_entry_of_an_unknown_form_counts(served_root: RootDirectory, content: bytes) -> None:
    served_root.make()
    folder = Path(served_root.internal, "servers")
    folder.mkdir()
    file, path = create_process_file(str(folder))
    Path(path).write_bytes(content)
    with (
        pytest.raises(Misconfigured, match="process \\? on"),
        serving_root(served_root, "hsparse dn", shared=True),
    ):
        pytest.fail("two servers serve one directory")
    os.close(file)


def test_without_locks_it_is_refused(served_root: RootDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(Misconfigured, match="No locks available"), serving_root(served_root, "hsparse serve"):
        pytest.fail("it is served without a lock")


def test_a_file_is_that_of_a_dead_process_once_it_is_closed(tmp_path: Path) -> None:
    file, path = create_process_file(str(tmp_path))
    assert open_file_of_dead_process(path) is None
    os.close(file)
    dead = open_file_of_dead_process(path)
    assert dead is not None
    assert open_file_of_dead_process(path) is None, "two took it for dead"
    os.close(dead)


def test_a_file_that_is_gone_is_nobodys(tmp_path: Path) -> None:
    assert open_file_of_dead_process(str(tmp_path / "gone")) is None


def test_a_file_removed_before_its_lock_is_remade(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flock = fcntl.flock
    removed: list[Path] = []

    def remove_first(file: int, operation: int) -> Any:
        if not removed:
            removed.extend(tmp_path.iterdir())
            removed[0].unlink()
        return flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", remove_first)
    file, path = create_process_file(str(tmp_path))
    assert list(tmp_path.iterdir()) == [Path(path)] != removed
    os.close(file)


def test_without_locks_nothing_is_left_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "flock", no_locks)
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(OSError, match="No locks"):
        create_process_file(str(tmp_path))
    assert len(list(Path("/proc/self/fd").iterdir())) == before
