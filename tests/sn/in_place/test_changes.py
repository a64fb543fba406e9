"""Every kind of change of what is served, and of what it names, by every reader: never the value that was there before.

What HDF5 reads in the place after a change is right, or an error where HDF5 has one.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from errno import EACCES, ESTALE, errorcode
from functools import partial
from io import BytesIO
from pathlib import Path
from threading import Event
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import h5py
import h5pyd
import numpy as np
import pytest

import hsparse
from hsparse.errors import Conflict, HsparseError
from hsparse.sn.objects.extent_polling import ExtentLooks
from tests.sn.in_place.conftest import served

COUNT = 4
LONG_AGO = 10**9
Values = list[int] | None
"""None is an error."""


# --- what there is -------------------------------------------------------------------------------------


def write_source(path: Path, values: list[int]) -> None:
    with h5py.File(path, "w", libver="latest") as file:
        file.create_dataset("x", data=np.array(values, "i8"), maxshape=(None,), chunks=(COUNT,))


def write_virtual(path: Path, source: str, *, endless: bool = False) -> None:
    layout = h5py.VirtualLayout((COUNT,), "i8", maxshape=(None,) if endless else None)
    if endless:
        end = h5py.h5s.UNLIMITED
        layout[:end] = h5py.VirtualSource(source, "x", (COUNT,), maxshape=(None,))[:end]
    else:
        layout[:] = h5py.VirtualSource(source, "x", (COUNT,))
    with h5py.File(path, "w", libver="latest") as file:
        file.create_virtual_dataset("x", layout, fillvalue=-1)


def write_raw(path: Path, values: list[int]) -> None:
    path.write_bytes(np.array(values, "i8").tobytes())


def write_external(path: Path, raw: str) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("x", (COUNT,), "i8", external=[(raw, 0, 8 * COUNT)])


class World:
    """Files in a place: `part` is what changes, and `served` the one that is read."""

    def __init__(self, place: Path, kind: str) -> None:
        self.place, self.kind = place, kind
        self.part = place / ("part.raw" if kind == "raw" else "part.h5")
        self.served = self.part if kind == "file" else place / "served.h5"

    def write(self, path: Path, values: list[int]) -> None:
        (write_raw if self.kind == "raw" else write_source)(path, values)

    def make(self) -> None:
        match self.kind:
            case "virtual" | "endless":
                write_virtual(self.served, self.part.name, endless=self.kind == "endless")
            case "absolute":
                write_virtual(self.served, str(self.part))
            case "nested":
                write_virtual(self.place / "between.h5", self.part.name)
                write_virtual(self.served, "between.h5")
            case "raw":
                write_external(self.served, self.part.name)
            case "raw_of_source":
                write_external(self.place / "between.h5", "part.raw")
                write_virtual(self.served, "between.h5")
            case "link":
                with h5py.File(self.served, "w") as file:
                    file["x"] = h5py.ExternalLink(self.part.name, "/x")
        for path in self.place.iterdir():
            os.utime(path, (LONG_AGO, LONG_AGO))

    def right(self) -> Values:
        """Return what HDF5 reads."""
        before = Path.cwd()
        os.chdir(self.place)  # beside which HDF5 looks for raw data
        try:
            with h5py.File(self.served) as file:
                return [int(one) for one in file["x"][:]]
        except (OSError, KeyError, RuntimeError):
            return None
        finally:
            os.chdir(before)


class RawOfSource(World):
    def __init__(self, place: Path, kind: str) -> None:
        super().__init__(place, kind)
        self.part = place / "part.raw"

    def write(self, path: Path, values: list[int]) -> None:
        write_raw(path, values)


KINDS = ("file", "virtual", "endless", "absolute", "nested", "raw", "raw_of_source", "link")


# --- how it changes ------------------------------------------------------------------------------------


def rewritten(world: World) -> None:
    if world.part.suffix == ".raw":
        with world.part.open("r+b") as file:
            file.write(np.full(COUNT, 2, "i8").tobytes())
        return
    with h5py.File(world.part, "r+") as file:
        file["x"][:] = 2


def rewritten_with_its_time(world: World) -> None:
    """In place, of the same size, and with the old time of the file."""
    size = world.part.stat().st_size
    rewritten(world)
    os.utime(world.part, (LONG_AGO, LONG_AGO))
    assert world.part.stat().st_size == size


def grown(world: World) -> None:
    if world.part.suffix == ".raw":
        with world.part.open("ab") as file:
            file.write(np.full(COUNT, 2, "i8").tobytes())
        return
    with h5py.File(world.part, "r+") as file:
        file["x"].resize((COUNT + 2,))
        file["x"][COUNT:] = 2


def replaced(world: World) -> None:
    new = world.place / ".new"
    world.write(new, [3] * COUNT)
    os.utime(new, (LONG_AGO, LONG_AGO))
    new.replace(world.part)


def cut(world: World) -> None:
    """As a copy that has not ended."""
    world.part.write_bytes(world.part.read_bytes()[:-8])


def deleted(world: World) -> None:
    world.part.unlink()


def arrived(world: World) -> None:
    world.write(world.part, [4] * COUNT)


CHANGES = (rewritten, rewritten_with_its_time, grown, replaced, cut, deleted, arrived)


# --- who reads it --------------------------------------------------------------------------------------


def asked(url: str, path: str, accept: str = "application/json") -> bytes:
    request = Request(f"{url}{path}", headers={"Accept": accept})
    with urlopen(request, timeout=60) as answer:
        return bytes(answer.read())


def dataset(url: str, name: str) -> str:
    more = "follow_soft_links=1&follow_external_links=1"
    found = json.loads(asked(url, f"/datasets/?domain=/runs/{name}&h5path=/x&{more}"))
    domain = found.get("domain") or f"/runs/{name}"
    return f"/datasets/{found['id']}/{{}}?domain={domain}"


def as_json(url: str, name: str) -> list[int]:
    return list(json.loads(asked(url, dataset(url, name).format("value")))["value"])


def as_binary(url: str, name: str) -> list[int]:
    data = asked(url, dataset(url, name).format("value"), "application/octet-stream")
    return [int(one) for one in np.frombuffer(data, "<i8")]


def by_sum(url: str, name: str) -> int:
    with hsparse.open(f"{url}/runs/{name}") as file:
        return int(file["x"].sum())


def by_client(url: str, name: str) -> list[int]:
    with hsparse.open(f"{url}/runs/{name}") as file:
        return [int(one) for one in file["x"][:]]


def as_file(url: str, name: str) -> list[int]:
    data = asked(url, f"/files/runs/{name}")
    with h5py.File(BytesIO(data)) as file:
        return [int(one) for one in file["x"][:]]


def by_query(url: str, name: str) -> list[int]:
    data = asked(url, f"{dataset(url, name).format('value')}&query=_%20%3E%20-9")
    return [one for _, one in sorted(zip(*map(json.loads(data).get, ("index", "value")), strict=True))]


def by_h5pyd(url: str, name: str) -> list[int]:
    user = {"username": "admin", "password": "admin"}
    with h5pyd.File(f"/runs/{name}", "r", endpoint=url, use_cache=False, retries=1, **user) as file:
        return [int(one) for one in file["x"][:]]


def by_map(url: str, name: str) -> list[int]:
    """Read the bytes at which the map says that chunks lie."""
    refs = json.loads(asked(url, f"/map?domain=/runs/{name}&format=kerchunk&addresses=file"))["refs"]
    (shape,) = json.loads(refs["x/.zarray"])["shape"]
    data = b""
    for chunk in range(-(-shape // COUNT)):
        href, start, size = refs[f"x/{chunk}"]
        wanted = Request(href, headers={"Range": f"bytes={start}-{start + size - 1}"})
        with urlopen(wanted, timeout=60) as answer:
            data += answer.read()
    return [int(one) for one in np.frombuffer(data, "<i8")[:shape]]


Reader = Callable[[str, str], Any]
READERS: tuple[Reader, ...] = (as_json, as_binary, by_sum, by_client, as_file, by_query, by_h5pyd, by_map)


def outcome(read: Callable[[], Any]) -> Any:
    """Return what is read, None for an error of the server."""
    try:
        return read()
    except OSError as error:  # h5pyd's has the status as its number
        status = error.code if isinstance(error, HTTPError) else error.errno or 0
        if status >= 500:
            raise
        return None
    except (HsparseError, KeyError):
        return None


def wanted(reader: Reader, right: Values) -> Any:
    return sum(right) if reader is by_sum and right is not None else right


def serving(tmp_path: Path) -> AbstractContextManager[str]:
    return served(tmp_path / "root", f"runs={tmp_path / 'runs'}", files_cache=tmp_path / "cache")


def made(tmp_path: Path, kind: str) -> World:
    """Return a world of a kind whose place is empty."""
    (tmp_path / "runs").mkdir()
    return (RawOfSource if kind == "raw_of_source" else World)(tmp_path / "runs", kind)


def is_for(reader: Reader, world: World) -> bool:
    """Say whether the reader gets the values, not a link as it is, nor that they are in another file."""
    return not (reader is as_file and world.kind == "link") and (reader is not by_map or world.kind == "file")


def check(url: str, world: World, reader: Reader, what: str) -> None:
    if not is_for(reader, world):
        return
    found = outcome(lambda: reader(url, world.served.name))
    right = wanted(reader, world.right())
    if right is None and found is not None:
        # Where HDF5 has an error for a link that leads nowhere the server may say so, too; never a value.
        raise AssertionError(f"{what}: {reader.__name__} has {found} of what is not there")
    assert found == right, f"{what}: {reader.__name__}"


CASES = [
    (kind, change)
    for kind in KINDS
    for change in CHANGES
    if change is not grown or kind not in ("virtual", "absolute", "nested")  # whose extent is as it is
]


@pytest.mark.parametrize(
    ("kind", "change"), CASES, ids=lambda one: one if isinstance(one, str) else one.__name__
)
def test_no_reader_has_what_was_there(tmp_path: Path, kind: str, change: Callable[[World], None]) -> None:
    world = made(tmp_path, kind)
    if change is not arrived:
        raw = world.part.suffix == ".raw"
        world.write(world.part, [1] * (2 if raw and change is grown else COUNT))
    world.make()
    with serving(tmp_path) as url:
        for again in range(2):
            for reader in READERS:
                check(url, world, reader, f"before, {again}")
        handle: Any = None
        try:
            handle = hsparse.open(f"{url}/runs/{world.served.name}")
            held = handle["x"]
            held[:]
        except (HsparseError, KeyError):
            held = None
        old = world.right()
        time.sleep(0.01)  # a file system tells changes apart that are a tick of the kernel's clock apart
        change(world)
        right = world.right()
        assert right != old, "a change that changes nothing"
        for reader in READERS:
            check(url, world, reader, "after")
        if held is not None:
            found = outcome(lambda: [int(one) for one in held[:]])
            assert found is None or found == right or (right is not None and found == right[: len(found)])
        if handle is not None:
            handle.close()
    with serving(tmp_path) as url:
        for reader in READERS:
            check(url, world, reader, "after a restart")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reason", [ESTALE, EACCES], ids=errorcode.get)
def test_what_is_out_of_reach_has_no_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, reason: int
) -> None:
    """A file of a mount that does not answer, or that may not be looked at, is not one that is not there."""
    world = made(tmp_path, kind)
    world.write(world.part, [1] * COUNT)
    world.make()
    looks = {name: getattr(os, name) for name in ("stat", "lstat")}

    def fail(name: str, path: Any, *args: Any, **options: Any) -> Any:
        if str(path) == str(world.part):
            raise OSError(reason, os.strerror(reason))
        return looks[name](path, *args, **options)

    with serving(tmp_path) as url:
        assert as_json(url, world.served.name) == [1] * COUNT
        for name in looks:
            monkeypatch.setattr(os, name, partial(fail, name))
        for reader in (as_json, as_binary, by_query):
            with pytest.raises(HTTPError) as caught:
                reader(url, world.served.name)
            caught.value.close()
            assert caught.value.code == (403 if reason == EACCES else 500)
        monkeypatch.undo()
        assert as_json(url, world.served.name) == [1] * COUNT


@pytest.mark.parametrize("kind", ["file", "endless"])
def test_rows_that_come_are_followed_or_an_error_says_why_not(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked, look = Event(), ExtentLooks.next

    async def next_look(looks: ExtentLooks, id: str) -> Any:
        found = await look(looks, id)
        looked.set()
        return found

    monkeypatch.setattr(ExtentLooks, "next", next_look)
    world = made(tmp_path, kind)
    world.write(world.part, [1] * COUNT)
    world.make()
    with serving(tmp_path) as url, hsparse.open(f"{url}/runs/{world.served.name}") as file:
        rows = file["x"].follow(timeout=30)
        with ThreadPoolExecutor(1) as threads:
            coming = threads.submit(next, rows)
            assert looked.wait(60)
            grown(world)
            if kind == "file":
                with pytest.raises(Conflict, match="has changed; open it again"):
                    coming.result(60)
            else:
                assert coming.result(60).tolist() == [2, 2]
