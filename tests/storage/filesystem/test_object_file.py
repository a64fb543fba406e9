"""Files of objects, the walk through their directories, and the space that is left for them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.errors import StoreFull
from hsparse.storage import posix
from hsparse.storage.filesystem.object_file import (
    file_etag,
    object_status,
    open_directory,
    open_file,
    read_at,
    sweep,
    unlink_if_exists,
    walk,
    write_all,
)
from hsparse.storage.posix import (
    DELETION_BYTES,
    MIB,
    NOTES,
    RESERVE_FILE,
    SMALL_OBJECT_BYTES,
    FreeSpace,
    PosixStore,
)

DATA = bytes(range(256)) * 5


def test_short_reads_and_writes_are_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A system call reads or writes at most 2 GiB, and a signal can end it sooner."""
    write, pread = os.write, os.pread
    monkeypatch.setattr(os, "write", lambda file, view: write(file, view[:100]))
    monkeypatch.setattr(os, "pread", lambda file, count, offset: pread(file, min(count, 77), offset))
    with (tmp_path / "a").open("wb") as target:
        write_all(target.fileno(), memoryview(DATA))
    file = open_file(str(tmp_path / "a"))
    assert (read_at(file, 0, len(DATA)), read_at(file, 100, 500)) == (DATA, DATA[100:600])
    assert read_at(file, 1200, 500) == DATA[1200:]
    os.close(file)


def test_a_buffer_of_any_shape_is_its_bytes(tmp_path: Path) -> None:
    with (tmp_path / "a").open("wb") as target:
        write_all(target.fileno(), memoryview(DATA).cast("I").cast("B").cast("B", (5, 256)))
    assert (tmp_path / "a").read_bytes() == DATA


def test_status_and_unlink(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(DATA)
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "fifo")
    directory = open_directory(str(tmp_path))
    status = object_status(directory, "file")
    assert status is not None
    assert status.st_size == len(DATA)
    for name in ("directory", "fifo", "nothing"):
        assert object_status(directory, name) is None
    unlink_if_exists("file", directory)
    unlink_if_exists("file", directory)
    assert object_status(directory, "file") is None
    os.close(directory)


def test_each_part_of_a_state_is_in_its_etag(tmp_path: Path) -> None:
    path, other = tmp_path / "a", tmp_path / "b"
    path.write_bytes(b"data")
    other.write_bytes(b"data")
    os.utime(path, ns=(0, 1))
    os.utime(other, ns=(0, 1))
    etags = [file_etag(path.stat()), file_etag(other.stat())]
    os.utime(path, ns=(0, 2))
    etags.append(file_etag(path.stat()))
    path.write_bytes(b"more data")
    os.utime(path, ns=(0, 2))
    etags.append(file_etag(path.stat()))
    assert len(set(etags)) == 4


NAMES = st.sampled_from(["a", "a.", "a-b", "a0", "b", "é", "😀", "\uffee"])


def walked(root: str, prefix: str, delimiter: bool = False, start_after: str = "") -> list[str]:
    return [key for key, _ in walk(root, prefix, delimiter, start_after)]


@given(
    st.sets(st.lists(NAMES, min_size=1, max_size=4).map("/".join), max_size=12),
    st.lists(NAMES | st.just(""), max_size=3).map("/".join),
    st.lists(NAMES | st.just(""), max_size=3).map("/".join),
    st.booleans(),
)
def test_agrees_with_sorting(keys: set[str], prefix: str, start_after: str, delimiter: bool) -> None:
    keys = {key for key in keys if not any(other.startswith(f"{key}/") for other in keys)}
    with tempfile.TemporaryDirectory() as root:
        for key in keys:
            path = Path(root, key)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(key.encode())
        found = list(walk(root, prefix, delimiter, start_after))
    expected = set()
    for key in keys:
        if key.startswith(prefix):
            head, slash, _ = key.removeprefix(prefix).partition("/")
            expected.add(prefix + head + slash if delimiter else key)
    assert [key for key, _ in found] == sorted((key for key in expected if key > start_after), key=str.encode)
    for key, status in found:
        assert (status.st_size if status else None) == (None if key.endswith("/") else len(key.encode()))


def test_a_directory_that_vanishes_is_empty(tmp_path: Path) -> None:
    for key in ("a/b", "c/d", "e"):
        (tmp_path / key).parent.mkdir(exist_ok=True)
        (tmp_path / key).write_bytes(b"")
    items = walk(str(tmp_path), "", False, "")
    assert next(items)[0] == "a/b"
    (tmp_path / "c" / "d").unlink()
    (tmp_path / "c").rmdir()
    (tmp_path / "e").unlink()
    assert list(items) == []


def test_other_directories_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        (tmp_path / "x" / str(number)).mkdir(parents=True)
        (tmp_path / "x" / str(number) / "key").write_bytes(b"")
    read: list[str] = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: read.append(path) or scandir(path))
    assert walked(str(tmp_path), "x/3/") == ["x/3/key"]
    assert walked(str(tmp_path), "x/", start_after="x/3/key") == ["x/4/key"]
    assert [path.removeprefix(str(tmp_path)) for path in read] == ["/x/3/", "/x/", "/x/3/", "/x/4/"]


def test_sweep_counts_what_it_removes(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for name, old in (("a/.tmp-1", True), (".tmp-2", True), (".tmp-3", False), ("object", True)):
        (tmp_path / name).write_bytes(b"")
        if old:
            os.utime(tmp_path / name, ns=(0, 0))
    assert sweep(str(tmp_path)) == 2
    assert sorted(path.name for path in tmp_path.rglob("*")) == [".tmp-3", "a", "object"]


Disk = Callable[[int, int], None]


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    """Sets the size and the free space of the file system that is seen, in bytes."""

    def set_space(size: int, free: int) -> None:
        status = SimpleNamespace(f_frsize=1, f_blocks=size, f_bavail=free)
        monkeypatch.setattr(posix.os, "statvfs", lambda path: status)

    return set_space


async def test_puts_leave_the_reserve_and_deletes_are_carried_out(tmp_path: Path, disk: Disk) -> None:
    seconds = 0
    store = PosixStore(tmp_path, reserve=2 * MIB, now_ns=lambda: seconds * 10**9)
    disk(1000 * MIB, 4 * MIB)
    await store.put("a/large", bytes(2 * MIB))
    with pytest.raises(StoreFull, match="2 MiB are reserved"):
        await store.put("a/larger", bytes(2 * MIB))
    seconds += 2
    disk(1000 * MIB, MIB)
    with pytest.raises(StoreFull):
        await store.put("a/chunk", bytes(SMALL_OBJECT_BYTES))
    await store.put("a/note", b"what a deletion notes")
    seconds += 2
    disk(1000 * MIB, MIB // 4)
    with pytest.raises(StoreFull, match="reserve"):
        await store.put("a/note", b"x")
    await store.delete("a/large")
    seconds += 2
    disk(1000 * MIB, 100 * MIB)
    await store.put("a/larger", bytes(2 * MIB))
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["larger", "note"]
    await store.close()


async def test_deletions_use_blocks_that_are_held_for_them(tmp_path: Path, disk: Disk) -> None:
    """What a deletion writes is taken by a full file system: notes, states of records, and the deletion itself."""
    seconds, reserve = 0, 8 * MIB
    held = tmp_path / ".hsparse" / RESERVE_FILE
    store = PosixStore(tmp_path, reserve=reserve, now_ns=lambda: seconds * 10**9)
    disk(1000 * MIB, 500 * MIB)
    etag = await store.put("db/record", b"state")
    assert not held.exists()  # there is room for everything
    seconds += 2
    disk(1000 * MIB, 30 * MIB)
    await store.put("db/chunk", b"value")
    assert held.stat().st_size == reserve // 4
    seconds += 2
    disk(1000 * MIB, 0)
    sizes = [held.stat().st_size]
    for put in (store.put, store.put_if_absent):
        with pytest.raises(StoreFull, match="are reserved for deletions"):
            await put("db/new", b"value")
    with pytest.raises(StoreFull, match="are reserved for deletions"):
        await store.put_if_match("db/record", bytes(1000), etag)
    assert held.stat().st_size == sizes[0]
    await store.put(f"{NOTES}g-1", b"note")
    etag = await store.put_if_match("db/record", b"state of a deletion", etag)
    await store.delete("db/chunk")
    await store.delete_if_match("db/record", etag)
    assert held.stat().st_size == sizes[0] - 4 * DELETION_BYTES
    await store.put(f"{NOTES}g-2", b"note")
    etag = (await store.get(f"{NOTES}g-1")).etag
    while held.stat().st_size >= reserve // 8:
        await store.delete("db/none")
    with pytest.raises(StoreFull):  # half is for notes
        await store.put_if_match("db/chunk", b"value", etag)
    for _ in range(20):
        await store.put(f"{NOTES}g-1", b"note")
    assert held.stat().st_size == 0
    seconds += 2
    disk(1000 * MIB, 60 * MIB)
    await store.put("db/new", b"value")
    assert held.stat().st_size == reserve // 4
    await store.close()


def test_a_small_file_system_keeps_a_part_of_itself(disk: Disk) -> None:
    disk(100 * MIB, 10 * MIB)
    space = FreeSpace("/", 256 * MIB)
    assert space.is_outdated(5.0)
    space.look(5.0)
    assert not space.is_outdated(5.5)
    assert space.is_outdated(4.0)
    assert space.take(5 * MIB)
    assert not space.take(MIB)


def test_no_reserve_asks_nothing() -> None:
    space = FreeSpace("/nowhere", 0)
    assert not space.is_outdated(0.0)
    assert space.take(10**18)
