"""Puts that leave the reserve of a file system; deleting needs none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from hsparse.errors import StoreFull
from hsparse.storage import posix
from hsparse.storage.posix import (
    DELETION_BYTES,
    MIB,
    NOTES,
    RESERVE_FILE,
    SMALL_OBJECT_BYTES,
    FreeSpace,
    PosixStore,
)

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
    with pytest.raises(StoreFull, match="keeps 2 MiB"):
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
        with pytest.raises(StoreFull, match="so that data can be deleted"):
            await put("db/new", b"value")
    with pytest.raises(StoreFull, match="so that data can be deleted"):
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
