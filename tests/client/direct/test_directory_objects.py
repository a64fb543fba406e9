"""Files of a store's directory: only in the state that the map names."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from hsparse.client.integrations.direct import directory_objects
from hsparse.client.integrations.direct.directory_objects import (
    SMALL_OBJECT_BYTES,
    DirectoryObjects,
    is_store,
)
from hsparse.client.integrations.direct.object_reader import (
    ObjectChanged,
    ObjectPlace,
    ObjectUnavailable,
    Take,
    in_threads,
)
from hsparse.storage.filesystem.object_file import file_etag

KEY = "db/a/d/b/0_0"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / KEY
    path.parent.mkdir(parents=True)
    path.write_bytes(b"data")
    return path


def test_a_file_in_the_state_of_its_etag(tmp_path: Path, file: Path) -> None:
    reader, etag = DirectoryObjects(tmp_path), file_etag(file.stat())
    assert reader.read(ObjectPlace(KEY, etag)) == b"data"
    file.write_bytes(b"more data")
    for key, wanted in ((KEY, etag), ("db/a/d/b/0_1", etag), (f"{KEY}/1", etag), ("db/a", etag)):
        with pytest.raises(ObjectChanged):
            reader.read(ObjectPlace(key, wanted))


def test_a_file_with_the_sticky_bit_is_being_written(tmp_path: Path, file: Path) -> None:
    etag = file_etag(file.stat())
    file.chmod(file.stat().st_mode | stat.S_ISVTX)
    with pytest.raises(ObjectUnavailable, match="is being written"):
        DirectoryObjects(tmp_path).read(ObjectPlace(KEY, etag))


def test_a_file_that_is_written_in_place_while_it_is_read(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    etag, real = file_etag(file.stat()), os.pread

    def write_first(*args: int) -> bytes:
        file.write_bytes(b"DATA")
        return real(*args)

    monkeypatch.setattr(os, "pread", write_first)
    with pytest.raises(ObjectChanged):
        DirectoryObjects(tmp_path).read(ObjectPlace(KEY, etag))


@pytest.mark.parametrize(
    ("size", "seconds", "is_alone"),
    [
        (SMALL_OBJECT_BYTES - 1, float("inf"), True),
        (SMALL_OBJECT_BYTES, float("inf"), False),
        (SMALL_OBJECT_BYTES - 1, 0.0, False),
    ],
)
def test_small_objects_of_a_fast_directory_are_read_in_one_thread(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch, size: int, seconds: float, is_alone: bool
) -> None:
    monkeypatch.setattr(directory_objects, "LOCAL_OPEN_SECONDS", seconds)
    reader, place = DirectoryObjects(tmp_path), ObjectPlace(KEY, file_etag(file.stat()), size=size)
    reader.at_once = 2
    both, used = threading.Barrier(1 if is_alone else 2), list[int]()

    def use(number: int, take: Take) -> None:
        both.wait(30)  # with another thread, unless this one is alone
        assert take() == b"data"
        used.append(threading.get_ident())

    reader.read_each([place] * 4, use)
    reader.read_each([], use)
    assert len(used) == 4
    assert (set(used) == {threading.get_ident()}) == is_alone


def test_a_directory_that_refuses_every_look_is_left_to_the_server(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, raised = ObjectPlace(KEY, file_etag(file.stat()), size=1), list[str]()

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    def use(_: int, take: Take) -> None:
        with pytest.raises(ObjectUnavailable) as error:
            take()
        raised.append(str(error.value))

    monkeypatch.setattr(os, "stat", refuse)
    monkeypatch.setattr(os, "open", refuse)
    DirectoryObjects(tmp_path).read_each([place] * 2, use)
    assert raised == 2 * [f"{KEY}: Permission denied"]


def test_a_store_is_known_by_its_mark(tmp_path: Path) -> None:
    assert not is_store(tmp_path)
    assert not is_store(tmp_path / "none")
    (tmp_path / ".hsparse").mkdir()
    assert is_store(tmp_path)


@pytest.mark.parametrize("count", [1, 3])
def test_threads_draw_each_item_once_until_one_fails(count: int) -> None:
    done: list[int] = []
    in_threads(count, range(100), done.append)
    assert sorted(done) == list(range(100))
    begun: list[int] = []

    def work(item: int) -> None:
        begun.append(item)
        if item == 10:
            raise ValueError("ten")

    with pytest.raises(ValueError, match="ten"):
        in_threads(count, range(10_000), work)
    assert len(begun) == len(set(begun))
    assert count > 1 or len(begun) == 11
