"""Files of domains: fetched, read by fsspec, and their parts."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fsspec
import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hsparse
from hsparse.client.errors import Unreachable
from hsparse.client.http.sign_in import SignIn
from hsparse.client.integrations.fsspec_filesystem import HsparseFileSystem
from hsparse.errors import BadRequest, Conflict, HsparseError, NotFound, PreconditionFailed, StoreFailed
from hsparse.hdf5.domain_file import MAX_BROKEN_CONNECTIONS, DomainFile, PartFile
from hsparse.hdf5.format.plan.file_form import STOCK
from hsparse.hdf5.json_reader import JsonReader
from tests.client.access_ways import open_file
from tests.support.characters import CHARACTERS

DATA = bytes(range(256)) * 10
STATE, OTHER = "2-stock-" + "01" * 16, "2-stock-" + "02" * 16


class FakeConnection:
    """Answers as a server of one file does, `most` bytes at a time before the connection ends."""

    url = "http://server"

    def __init__(self, most: int, etag: str | None = f'"{STATE}"', domain: str | None = None) -> None:
        self.most = most
        self.etag = etag
        self.domain = domain
        self.asked: list[tuple[str, str, Any, Any]] = []

    def repeated(self, read: Callable[[], Any]) -> Any:
        return read()

    @contextmanager
    def response(
        self, method: str, path: str, headers: Any = None, **params: object
    ) -> Iterator[SimpleNamespace]:
        self.asked.append((method, path, headers, params))
        if method == "HEAD":
            told = {"Content-Length": str(len(DATA))} | ({"ETag": self.etag} if self.etag else {})
            told |= {"X-Hdf-Domain": self.domain} if self.domain else {}
            yield SimpleNamespace(status=200, headers=told)
            return
        assert headers["If-Match"] == self.etag
        start = int(headers["Range"].removeprefix("bytes=").removesuffix("-"))
        left = [DATA[start : start + self.most]]
        yield SimpleNamespace(status=206, read=lambda size: left.pop() if left else b"")


def fetch(connection: Any, target: Path, domain: str = "/home/f.h5") -> list[tuple[int, int]]:
    told: list[tuple[int, int]] = []
    DomainFile(connection, domain, STOCK).fetch(target, lambda have, size: told.append((have, size)))
    return told


def test_a_connection_that_ends_early_is_no_end(tmp_path: Path) -> None:
    connection = FakeConnection(1000)
    told = fetch(connection, tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == DATA
    assert told == [(have, len(DATA)) for have in (0, 1000, 2000, 2560)]
    assert [one[0] for one in connection.asked] == ["HEAD", "GET", "GET", "GET"]
    assert {one[1] for one in connection.asked} == {"/files/home/f.h5"}
    assert connection.asked[0][3] == {"layout": "stock"}


def test_a_part_of_the_same_state_is_continued_and_others_go(tmp_path: Path) -> None:
    (tmp_path / f"f[1].{STATE}.part").write_bytes(DATA[:2000])
    kept = [f"f1.{OTHER}.part", f"f[1].{OTHER}.other", "f[1].csv.part", f"f[1].h5.{OTHER}.part"]
    for other in (f"f[1].{OTHER}.part", *kept):
        (tmp_path / other).write_bytes(b"x")
    connection = FakeConnection(10_000)
    fetch(connection, tmp_path / "f[1]")
    assert connection.asked[1][2]["Range"] == "bytes=2000-"
    assert (tmp_path / "f[1]").read_bytes() == DATA
    assert sorted(one.name for one in tmp_path.iterdir()) == sorted(["f[1]", *kept])


def test_a_part_that_is_longer_than_the_file_counts_for_nothing(tmp_path: Path) -> None:
    (tmp_path / f"f.{STATE}.part").write_bytes(DATA + b"x")
    fetch(FakeConnection(10_000), tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == DATA


def test_it_is_given_up_when_nothing_comes(tmp_path: Path) -> None:
    connection = FakeConnection(0)
    with pytest.raises(Unreachable):
        fetch(connection, tmp_path / "f")
    assert len(connection.asked) == 1 + MAX_BROKEN_CONNECTIONS
    assert not (tmp_path / "f").exists()


def test_a_server_that_does_not_say_what_it_has(tmp_path: Path) -> None:
    for etag in (None, 'W/"e"', '"../e"'):
        with pytest.raises(HsparseError, match="without the file's etag or size"):
            fetch(FakeConnection(10, etag), tmp_path / "f")
    assert not list(tmp_path.iterdir())


def test_the_path_of_a_domain(tmp_path: Path) -> None:
    connection = FakeConnection(10_000)
    fetch(connection, tmp_path / "f", "/home/plain")
    assert connection.asked[0][1] == "/files/home/plain"
    with pytest.raises(BadRequest, match="absolute path"):
        fetch(connection, tmp_path / "f", "plain")


def test_the_file_of_another_domain(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="use /home/f"):
        fetch(FakeConnection(10_000, domain="/home/f"), tmp_path / "f", "/home/f.h5")
    fetch(FakeConnection(10_000, domain="/home/gr%C3%B6%C3%9Fe"), tmp_path / "f", "/home/größe")


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    target = tmp_path / "f"
    with PartFile(target, STATE) as part:
        part.file.write(b"one")
        with pytest.raises(Conflict, match="written by another export"), PartFile(target, STATE):
            pass
        with PartFile(target, OTHER) as other:
            other.remove_others()
        assert part.path.exists(), "somebody writes it"
        part.finish(replace=False)
    assert target.read_bytes() == b"one"
    with PartFile(target, STATE) as part:
        part.remove_others()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["f", f"f.{STATE}.part"]


def test_a_target_that_was_made_meanwhile(tmp_path: Path) -> None:
    target = tmp_path / "f"
    with PartFile(target, STATE) as part:
        part.file.write(b"new")
        target.write_bytes(b"old")
        with pytest.raises(Conflict, match="was made meanwhile"):
            part.finish(replace=False)
        assert target.read_bytes() == b"old"
        part.finish(replace=True)
    assert (target.read_bytes(), [one.name for one in tmp_path.iterdir()]) == (b"new", ["f"])


def test_what_a_disk_refuses(tmp_path: Path) -> None:
    with pytest.raises(StoreFailed, match="f cannot be written"), PartFile(tmp_path / "none" / "f", STATE):
        pass
    with pytest.raises(StoreFailed, match="File name too long"), PartFile(tmp_path / ("n" * 250), STATE):
        pass
    with pytest.raises(StoreFailed, match="No space left"), PartFile(tmp_path / "f", STATE):
        raise OSError(28, "No space left on device")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(CHARACTERS, max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(CHARACTERS, max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


def reader(text: bytes, size: int) -> JsonReader:
    return JsonReader(text[at : at + size] for at in range(0, len(text), size))


def read_pieces(found: JsonReader, like: Any) -> Any:
    """Read a value piece by piece where it is an object or array."""
    if isinstance(like, dict):
        return {name: read_pieces(found, like[name]) for name in found.members()}
    if isinstance(like, list):
        parts = iter(like)
        return [read_pieces(found, next(parts)) for _ in found.items()]
    return found.value()


@given(VALUES, st.integers(1, 12), st.sampled_from([None, 1]), st.booleans())
def test_values(value: Any, size: int, indent: int | None, ascii: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii).encode()
    assert (reader(text, size).value(), read_pieces(reader(text, size), value)) == (value, value)


@pytest.mark.parametrize(
    "text",
    [b"", b"[1", b'{"a"', b'{"a":', b'{"a":1', b"[1 2]", b"{1:2", b"\xff", b"nonsense", b'{"a" 1}', b"1"],
)
def test_what_is_none(text: bytes) -> None:
    with pytest.raises(HsparseError, match="not the expected JSON"):
        read_all(reader(text, 3), array=text.startswith(b"["))


def read_all(found: JsonReader, *, array: bool) -> None:
    for _ in found.items() if array else found.members():
        found.value()


SMALL = {"block_size": 4096}


@pytest.fixture(scope="module")
def place(url: str) -> str:
    """The server as fsspec names it; it has /lab/a.h5, /lab/deep/b.h5."""
    top: Any = hsparse.open(url)
    top.create_folder("lab").create_folder("deep")
    for name in ("a.h5", "deep/b.h5"):
        file = open_file(f"{url}/lab/{name}", "x")
        file.create_dataset("run/x", data=np.arange(10_000))
        file.create_sparse("y", (30, 30), "f4", (10, 10)).write([[3, 4]], [5])
    return url.replace("http://", "hsparse://")


@pytest.fixture(scope="module")
def system(place: str) -> HsparseFileSystem:
    found = fsspec.filesystem("hsparse", endpoint=place.replace("hsparse", "http"))
    assert isinstance(found, HsparseFileSystem)
    return found


def test_h5py_reads_a_domain(place: str) -> None:
    with fsspec.open(f"{place}/lab/a.h5", **SMALL) as raw, h5py.File(raw) as file:
        assert np.array_equal(file["run/x"][...], np.arange(10_000))
        assert file["y"][3, 4] == 5


def test_folders_are_listed(place: str, system: HsparseFileSystem) -> None:
    assert system.ls("/lab", detail=False) == ["/lab/a.h5", "/lab/deep"]
    assert [one["type"] for one in system.ls(f"{place}/lab")] == ["file", "directory"]
    assert system.glob("/lab/**/*.h5") == ["/lab/a.h5", "/lab/deep/b.h5"]
    assert system.ls("/lab/a.h5", detail=False) == ["/lab/a.h5"]
    assert "/lab" in system.ls("/", detail=False)
    assert system.isdir("/")
    assert system.isdir("/lab/deep/")
    assert system.unstrip_protocol("/lab/a.h5") == f"{place}/lab/a.h5"


def test_what_a_file_is(place: str, system: HsparseFileSystem) -> None:
    info = system.info("/lab/a.h5")
    assert (info["size"], info["type"]) == (len(system.cat_file("/lab/a.h5")), "file")
    assert (system.cat_file("/lab/a.h5", 1, 4), system.ukey("/lab/a.h5")) == (b"HDF", info["etag"])
    assert system.checksum("/lab/a.h5") != system.checksum("/lab/deep/b.h5")
    assert not system.exists("/lab/none.h5")
    for path in ("/lab/none.h5", "/none/none.h5"):
        with pytest.raises(FileNotFoundError, match="none"):
            system.open(path)
        with pytest.raises(FileNotFoundError, match="none"):
            system.ls(path)


def test_ranges_are_of_one_state(url: str, place: str) -> None:
    hsparse.open(f"{url}/changing.h5", "x").create_dataset("x", data=np.arange(100_000))  # type: ignore[union-attr]
    with fsspec.open(f"{place}/changing.h5", cache_type="none") as file:
        assert file.read(8) == b"\x89HDF\r\n\x1a\n"
        hsparse.open(f"{url}/changing.h5")["x"][5] = 1  # type: ignore[index]
        with pytest.raises(PreconditionFailed, match="changed"):
            file.read()
    with fsspec.open(f"{place}/changing.h5") as raw, h5py.File(raw) as again:
        assert again["x"][5] == 1


def test_it_can_be_pickled(system: HsparseFileSystem) -> None:
    file = pickle.loads(pickle.dumps(system)).open("/lab/a.h5")
    assert (file.read(4), file.blocksize) == (b"\x89HDF", 1 << 20)
    with pickle.loads(pickle.dumps(file)) as copy:
        assert copy.read(4) == b"\r\n\x1a\n"


def test_the_form_is_an_option(place: str) -> None:
    options = {"layout": "structured", "user": "ada", "password": "any"}
    with fsspec.open(f"{place}/lab/a.h5", **options) as raw, h5py.File(raw) as file:
        assert np.array_equal(file["run/x"][:3], [0, 1, 2])
    with pytest.raises(hsparse.BadRequest):
        fsspec.open(f"{place}/lab/a.h5", layout="none").open()


def test_https_has_a_protocol_of_its_own() -> None:
    system = fsspec.filesystem(
        "hsparse+https", **HsparseFileSystem._get_kwargs_from_urls("hsparse+https://h/x")
    )
    assert system.endpoint == "https://h"
    assert system.unstrip_protocol("/x.h5") == "hsparse+https://h/x.h5"


def test_it_is_read_only_and_needs_a_server(
    system: HsparseFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NotImplementedError, match=r"hsparse\.open"):
        system.open("/lab/a.h5", "wb")
    monkeypatch.setattr("hsparse.client.integrations.fsspec_filesystem.read_sign_in", SignIn)
    with pytest.raises(ValueError, match="Name a server"):
        HsparseFileSystem(skip_instance_cache=True)
