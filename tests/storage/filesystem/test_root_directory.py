from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from hsparse.errors import Conflict
from hsparse.storage.filesystem import root_directory
from hsparse.storage.filesystem.root_directory import (
    YEAR_NS,
    RootDirectory,
    high_water_mark,
    raise_high_water_mark,
)


@pytest.fixture
def root(tmp_path: Path) -> RootDirectory:
    made = RootDirectory(str(tmp_path))
    made.make()
    return made


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


def test_what_there_is_of_directories_is_synced(
    root: RootDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root.make_directories("a/b/key", durable=False)
    (tmp_path / "object").write_bytes(b"x")
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.readlink(f"/proc/self/fd/{file}")))  # noqa: PTH115
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
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.readlink(f"/proc/self/fd/{file}")))  # noqa: PTH115
    root.sync_all_directories([*folders, "a/b", "a/pruned/x", "a/c/d", ""])
    names = [str(Path(name).relative_to(tmp_path)) for name in synced]
    assert names[:3] == [".", "a", "a/b"]  # a directory after those above it
    assert names.count("a/b") == 3  # as many groups of new directories
    assert names.count(".") == 1
    assert names.count("a/c") == 1
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


def test_a_new_last_directory_takes_one_call(
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


def test_a_directory_pruned_while_it_is_made_is_no_conflict(
    root: RootDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
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
