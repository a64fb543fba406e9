"""Large objects are the bytes that were given, whichever way the file system lets them be written."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hsparse.storage import direct_write
from hsparse.storage.direct_write import BLOCK, LEAST, STEP, write_object

SIZES = (0, 1, LEAST - 1, LEAST, LEAST + 1, STEP - 1, STEP, STEP + BLOCK, 3 * STEP + 5, 4 * STEP)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    made = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    yield made
    os.close(made)


def content(size: int) -> bytes:
    return np.random.default_rng(size).bytes(size)


def stored(file: int) -> bytes:
    return os.pread(file, os.fstat(file).st_size + 1, 0)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("odd", [0, 3])
def test_all_is_written(file: int, size: int, odd: int) -> None:
    data = content(size + odd)
    write_object(file, memoryview(data)[odd:])  # in memory at an odd address too
    assert stored(file) == data[odd:]


def test_the_file_is_as_others_are_afterwards(file: int) -> None:
    before = fcntl.fcntl(file, fcntl.F_GETFL)
    write_object(file, content(LEAST))
    assert fcntl.fcntl(file, fcntl.F_GETFL) == before
    os.write(file, b"more")  # not aligned
    assert stored(file) == content(LEAST) + b"more"


def test_elements_of_any_type_are_bytes(file: int) -> None:
    array = np.arange(LEAST, dtype="<f8")
    write_object(file, memoryview(array))
    assert stored(file) == array.tobytes()


def test_a_file_system_that_cannot(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    real = fcntl.fcntl

    def refuse(file: int, command: int, value: int = 0) -> int:
        if command == fcntl.F_SETFL and value & direct_write.DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(file, command, value)

    monkeypatch.setattr(direct_write.fcntl, "fcntl", refuse)
    write_object(file, content(STEP + 9))
    assert stored(file) == content(STEP + 9)


@pytest.mark.parametrize("good", [0, 1, 2])
@pytest.mark.parametrize("short", [None, 5, BLOCK, BLOCK + 7])
def test_a_write_that_fails_or_is_cut_short(
    file: int, good: int, short: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After `good` writes one is refused, as by a file system with larger blocks, or takes only `short` bytes."""
    real, calls = os.write, 0

    def write(file: int, data: Any) -> int:
        nonlocal calls
        calls += 1
        if calls != good + 1:
            return real(file, data)
        if short is None:
            raise OSError(errno.EINVAL, "Invalid argument")
        flags = fcntl.fcntl(file, fcntl.F_GETFL)
        fcntl.fcntl(file, fcntl.F_SETFL, flags & ~direct_write.DIRECT)
        written = real(file, data[:short])
        fcntl.fcntl(file, fcntl.F_SETFL, flags)
        return written

    monkeypatch.setattr(direct_write.os, "write", write)
    write_object(file, content(4 * STEP + 1))
    monkeypatch.undo()
    assert calls > good
    assert stored(file) == content(4 * STEP + 1)


def test_a_full_disk_is_told(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(direct_write.os, "write", full)
    with pytest.raises(OSError, match="No space"):
        write_object(file, content(2 * STEP))
