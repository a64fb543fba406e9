"""The files that a place has for others: those below it that are listed, or have raw data, and folders once each."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from hsparse.errors import Forbidden, NotFound, TooLarge
from hsparse.hdf5.importer.file_data import _LARGE
from hsparse.hdf5.in_place.file_chunks import FileChunk
from hsparse.hdf5.in_place.folders import DirectoryFiles, FolderContent, walked
from hsparse.hdf5.in_place.places import named_folders
from hsparse.hdf5.in_place.served_file import ServedFile
from hsparse.hdf5.in_place.store import MARK, ServedFiles
from hsparse.hdf5.in_place.unknown_roots import UnknownRoots
from hsparse.model.ids import root_id, storage_key
from tests.testing.memory_store import MemoryStore

SECRET = b"TOPSECRET, in no file that is served"


def spread(place: Path) -> Path:
    """Make folders with links to each other, and to those above; return the place."""
    for folder in ("a/deep", "b"):
        (place / folder).mkdir(parents=True)
        (place / folder / "x.h5").write_bytes(b"\x89HDF\r\n\x1a\n")
    for link, target in (
        ("latest", "."),
        ("newest", "."),
        ("a/up", ".."),
        ("a/other", "../b"),
        ("b/other", "../a"),
        ("b/deep", "../a/deep"),
    ):
        (place / link).symlink_to(target)
    return place


def test_a_folder_is_walked_through_once(tmp_path: Path) -> None:
    folder = DirectoryFiles(spread(tmp_path))
    assert folder.content("").folders == {"a", "b"}
    assert folder.content("a").folders == {"deep", "other"}
    assert folder.content("a/other").folders == {"deep"}
    seen = [content.identity for _, content in walked(folder, "")]
    assert sorted(seen) == sorted(str(tmp_path / one) for one in ("", "a", "a/deep", "b"))


class Page:
    """A folder of a web server, whose links lead to itself: nobody knows what is the same."""

    def content(self, path: str) -> FolderContent:
        return FolderContent({}, frozenset({"latest", "newest"}))


def test_a_folder_that_has_what_is_above_it_is_not_followed() -> None:
    folder: Any = Page()
    assert [path for path, _ in walked(folder, "")] == [""]


class Counted(DirectoryFiles):
    """A directory that counts how often it is listed, and may have to wait for that."""

    listed = 0
    may_go_on: threading.Event | None = None

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.begun = threading.Event()

    def content(self, path: str) -> FolderContent:
        self.listed += 1
        self.begun.set()
        if self.may_go_on is not None:
            assert self.may_go_on.wait(30)
        return super().content(path)


def unknown(number: int) -> str:
    return root_id(MARK + number.to_bytes(6, "big"))


async def test_unknown_ids_are_looked_for_by_few_walks(tmp_path: Path) -> None:
    folder = Counted(spread(tmp_path))
    store = ServedFiles(MemoryStore(), {"runs": folder})
    key = storage_key(unknown(1))
    for _ in range(3):
        with pytest.raises(NotFound):
            await store.get(key)
    assert folder.listed <= 6
    folder.listed = 0
    keys = [storage_key(unknown(number)) for number in range(2, 60)]
    found = await asyncio.gather(*map(store.get, keys), return_exceptions=True)
    assert {type(one) for one in found} == {NotFound}
    assert folder.listed <= 12


async def test_a_walk_ends_with_its_request(tmp_path: Path) -> None:
    folder = Counted(spread(tmp_path))
    folder.may_go_on = threading.Event()
    store = ServedFiles(MemoryStore(), {"runs": folder})
    asked = asyncio.create_task(store.get(storage_key(unknown(1))))
    assert await asyncio.to_thread(folder.begun.wait, 30)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    folder.may_go_on.set()
    await store.close()  # what runs in threads has ended
    assert folder.listed == 1


async def test_a_stored_domain_with_such_an_id_is_not_looked_for(tmp_path: Path) -> None:
    below, folder = MemoryStore(), Counted(spread(tmp_path))
    root = unknown(7)
    await below.put(storage_key(root), b"{}")
    store = ServedFiles(below, {"runs": folder})
    assert (await store.get(storage_key(root))).data == b"{}"
    assert folder.listed == 0


async def test_what_is_remembered_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hsparse.hdf5.in_place.unknown_roots.MOST_UNKNOWN", 3)
    roots = UnknownRoots(MemoryStore(), {}, {}, lambda *_: "")
    for number in range(10):
        await roots.look_for(unknown(number))
    assert len(roots._unknown) == 3


NAMED = [
    ("raw.bin", True),
    ("RAW.DAT", True),
    ("sub/frames.img", True),
    ("other.h5", True),
    ("plain.txt", False),
    ("none", False),
    (".hidden.bin", False),
    (".git/config", False),
    (".git/raw.bin", False),
    ("sub/.raw.bin", False),
    ("link.bin", False),
]


@pytest.mark.parametrize(("name", "is_there"), NAMED)
def test_a_file_names_what_is_listed_or_raw_data(tmp_path: Path, name: str, is_there: bool) -> None:
    place = tmp_path / "place"
    path = place / name
    path.parent.mkdir(parents=True)
    (place / "target.txt").write_bytes(SECRET)
    if name == "link.bin":
        path.symlink_to("target.txt")
    else:
        path.write_bytes(SECRET)
    with h5py.File(place / "m.h5", "w") as file:
        file.create_dataset("x", (len(SECRET),), "u1", external=[(name, 0, len(SECRET))])
    folder = named_folders([f"runs={place}"])["runs"]
    state = folder.state("m.h5")
    assert state is not None
    _, files = folder.open("m.h5", state)
    if is_there:
        location = files.find(name, "m.h5")
        assert location is not None
        with files.use(location) as source:
            assert source.read(0, len(SECRET)) == SECRET
    else:
        with pytest.raises(Forbidden, match="is not served"):
            files.find(name, "m.h5")


def test_a_file_of_any_name_is_named_if_it_is_hdf5(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "part", "w") as file:
        file["x"] = np.arange(3)
    folder = named_folders([f"runs={tmp_path}"])["runs"]
    with h5py.File(tmp_path / "m.h5", "w") as file:
        file["x"] = 1
    state = folder.state("m.h5")
    assert state is not None
    assert folder.open("m.h5", state)[1].find("part", "m.h5") is not None


def test_a_chunk_that_cannot_fit_is_refused_and_one_large_one_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hsparse.hdf5.importer.file_data.LARGE_CHUNK", 1024)
    data = np.arange(4 * 2**20, dtype="u1")
    for name in "abc":
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            file.create_dataset("x", data=data, chunks=(len(data) - 1,), compression="lzf")
    folder = DirectoryFiles(tmp_path)

    def read(name: str, most: int) -> bytes:
        state = folder.state(name)
        assert state is not None
        file = ServedFile(f"/runs/{name}", unknown(1), 0.0, lambda: folder.open(name, state), most=most)
        key = next(one for one in file.keys("") if not one.endswith(".json"))
        chunk = file.get(key)
        assert chunk is not None
        return bytes(chunk.encode() if isinstance(chunk, FileChunk) else chunk)

    for name in ("a.h5", "b.h5", "c.h5"):
        assert read(name, len(data))
        assert _LARGE.content is None  # of a file that is closed nothing is kept
        with pytest.raises(TooLarge, match="--chunk-memory"):
            read(name, len(data) // 2)
