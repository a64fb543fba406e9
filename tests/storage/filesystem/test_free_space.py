"""Puts that leave the reserve of a file system; deleting needs none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from hsparse.errors import StoreFailed
from hsparse.storage import posix
from hsparse.storage.posix import MIB, SMALL, FreeSpace, PosixStore

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
    with pytest.raises(StoreFailed, match="keeps 2 MiB"):
        await store.put("a/larger", bytes(2 * MIB))
    seconds += 2
    disk(1000 * MIB, MIB)
    with pytest.raises(StoreFailed):
        await store.put("a/chunk", bytes(SMALL))
    await store.put("a/note", b"what a deletion notes")
    seconds += 2
    disk(1000 * MIB, MIB // 4)
    with pytest.raises(StoreFailed, match="reserve"):
        await store.put("a/note", b"x")
    await store.delete("a/large")
    seconds += 2
    disk(1000 * MIB, 100 * MIB)
    await store.put("a/larger", bytes(2 * MIB))
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["larger", "note"]
    await store.close()


def test_a_small_file_system_keeps_a_part_of_itself(disk: Disk) -> None:
    disk(100 * MIB, 10 * MIB)
    space = FreeSpace("/", 256 * MIB)
    assert space.is_outdated(5.0)
    space.look(5.0)
    assert not space.is_outdated(5.5)
    assert space.is_outdated(4.0)
    space.take(5 * MIB, "s")
    with pytest.raises(StoreFailed):
        space.take(MIB, "s")


def test_no_reserve_asks_nothing() -> None:
    space = FreeSpace("/nowhere", 0)
    assert not space.is_outdated(0.0)
    space.take(10**18, "s")
