from __future__ import annotations

import os
from pathlib import Path

import pytest

from hsparse.storage.filesystem.object_file import (
    file_etag,
    object_status,
    open_directory,
    open_file,
    read_at,
    unlink_if_exists,
    write_all,
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
    assert read_at(file, 0, len(DATA)) == DATA
    assert read_at(file, 100, 500) == DATA[100:600]
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
