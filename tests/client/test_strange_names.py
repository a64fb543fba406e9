"""Names with characters that mean something in URLs: each entry point has the domain of the whole name, or none."""

from __future__ import annotations

import glob
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import fsspec
import h5py
import pytest
import xarray

import hsparse
from hsparse.cli.main import main
from hsparse.client.connection import Connection
from hsparse.errors import HsparseError
from tests.support.endurance import repeats

pytestmark = pytest.mark.endurance
NUMBERS = itertools.count()
NAMES = (
    "sample#1.h5", "what?.h5", "x.h5?bucket=other", "x.h5#part", "a%23b.h5", "a%2fb.h5", "%ff.h5",
    "100%.h5", "tail.h5 ", " lead.h5", "ü/é.h5", "x.h5@1", "me@x.h5", "../x.h5", "in/../x.h5", "in//x.h5",
    "./x.h5", "x\t.h5", "x.h5\n", "a&b=c.h5", "a+b.h5", "a;b.h5", "[ab].h5", "*.h5", "\udc80.h5",
    "http://h/x.h5",
)  # fmt: skip
BESIDE = (
    "x.h5", "sample", "what", "a#b.h5", "a", "\ufffd.h5", "100", "tail.h5", "lead.h5", "é.h5", "a b.h5",
    "b.h5",
)  # fmt: skip
"""What a name becomes that is cut, decoded twice, stripped or taken for a pattern."""
REFUSED = (HsparseError, OSError)


@dataclass
class Place:
    """A folder in which `BESIDE` are domains, each with its own name in the attribute `own`."""

    url: str
    folder: str
    scratch: Path

    def names(self) -> dict[str, object]:
        """Return the names that all domains of the folder have in them, by path; of new ones None."""
        found: dict[str, object] = {}
        waiting = [self.folder]
        while waiting:
            with hsparse.open(waiting.pop(), endpoint=self.url) as folder:
                for record in folder.records():
                    if record["class"] == "folder":
                        waiting.append(record["name"])
                        continue
                    with hsparse.open(record["name"], endpoint=self.url) as file:
                        found[record["name"]] = file.attrs.get("own")
        return found

    @property
    def address(self) -> str:
        return f"{self.url}{self.folder}"

    def path(self, name: str) -> str:
        return f"{self.folder}/{name}"


@pytest.fixture(scope="module")
def place(embedded_url: str, tmp_path_factory: pytest.TempPathFactory) -> Place:
    return make_place(embedded_url, tmp_path_factory.mktemp("names"))


@pytest.fixture(scope="module")
def unchanged(embedded_url: str, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A folder in which nothing is replaced, so that each domain has its name in it."""
    return make_place(embedded_url, tmp_path_factory.mktemp("unchanged"))


def make_place(embedded_url: str, scratch: Path) -> Place:
    folder = f"/home/admin/names{next(NUMBERS)}"
    with Connection(embedded_url) as connection:
        for one in (folder, f"{folder}/in", f"{folder}/ü"):
            connection.json("PUT", "/", {"folder": 1}, domain=one)
    for name in BESIDE:
        with hsparse.open(f"{folder}/{name}", "w", endpoint=embedded_url) as file:
            file.attrs["own"] = f"{folder}/{name}"
            file["x"] = [1, 2, 3]
    with h5py.File(scratch / "new.h5", "w") as file:
        file["y"] = [9]
    return Place(embedded_url, folder, scratch)


def replace(address: str, **options: Any) -> None:
    with hsparse.open(address, "w", **options) as file:
        file["y"] = [9]


def create_folder(place: Place, name: str) -> None:
    with hsparse.open(place.folder, endpoint=place.url) as folder:
        folder.create_folder(name)


def clone(place: Place, name: str) -> None:
    with hsparse.open(place.path("b.h5"), endpoint=place.url) as file:
        file.clone(place.path(name))


def command(place: Place, *words: str) -> None:
    if main([*words, "--endpoint", place.url]) != 0:
        raise HsparseError("refused")


WRITES: dict[str, Callable[[Place, str], None]] = {
    "replace a URL": lambda place, name: replace(f"{place.address}/{name}"),
    "replace a URL, encoded": lambda place, name: replace(
        f"{place.address}/{quote(name, errors='surrogateescape')}"
    ),
    "replace a path": lambda place, name: replace(place.path(name), endpoint=place.url),
    "replace a protocol": lambda place, name: replace(f"hdf5:/{place.path(name)}", endpoint=place.url),
    "create a folder": create_folder,
    "clone": clone,
    "import": lambda place, name: command(
        place, "import", str(place.scratch / "new.h5"), place.path(name), "--quiet"
    ),
    "copy": lambda place, name: command(place, "cp", place.path("b.h5"), place.path(name), "--exact"),
    "remove": lambda place, name: command(place, "rm", glob.escape(place.path(name))),  # which takes patterns
}


def own(address: str, **options: Any) -> object:
    with hsparse.open(address, "r", **options) as file:
        return file.attrs["own"]


def read_item(place: Place, name: str) -> object:
    with hsparse.open(place.folder, endpoint=place.url) as folder:
        return folder[name].attrs["own"]


def read_xarray(place: Place, name: str) -> object:
    with xarray.open_dataset(f"{place.address}/{name}", engine="hsparse") as data:
        return data.attrs["own"]


def read_fsspec(place: Place, name: str) -> object:
    address = f"hsparse://{place.address.removeprefix('http://')}/{name}"
    with fsspec.open(address) as raw, h5py.File(raw) as file:
        return file.attrs["own"]


def read_export(place: Place, name: str) -> object:
    target = place.scratch / f"{next(NUMBERS)}.h5"
    command(place, "export", place.path(name), str(target))
    with h5py.File(target) as file:
        return file.attrs["own"]


def read_scan(place: Place, name: str) -> object:
    hsparse.scan(f"{place.address}/{name}", "x")
    return None


def read_virtual(place: Place, name: str) -> object:
    layout = hsparse.VirtualLayout((3,), "i8")
    layout[:] = hsparse.VirtualSource(name, "x", (3,))
    with hsparse.open(place.path(f"in/virtual{next(NUMBERS)}.h5"), "w", endpoint=place.url) as file:
        file.attrs["own"] = file.filename
        found = file.create_virtual_dataset("x", layout, fillvalue=-1)[:]
        # Beside the file there is none of these names; the folder above it has `x.h5`.
        assert found.tolist() == ([1, 2, 3] if name == "../x.h5" else [-1, -1, -1])
    raise HsparseError("The source is not there.")


READS: dict[str, Callable[[Place, str], object]] = {
    "URL": lambda place, name: own(f"{place.address}/{name}"),
    "snapshot": lambda place, name: own(f"{place.address}/{name}", snapshot=1),
    "item": read_item,
    "xarray": read_xarray,
    "fsspec": read_fsspec,
    "export": read_export,
    "scan": read_scan,
    "virtual": read_virtual,
}


def same(place: Place, name: str) -> Iterator[str]:
    """Yield the paths that a name may mean: itself, decoded once where it is a URL's, without empty parts."""
    for one in (name, unquote(name)):
        yield place.path(one)
        yield place.path("/".join(part for part in one.split("/") if part not in ("", ".")))


@pytest.mark.parametrize("name", NAMES[: repeats(len(NAMES), short=3)])
@pytest.mark.parametrize("write", WRITES)
def test_what_is_changed_has_the_whole_name(place: Place, write: str, name: str) -> None:
    before, meant = place.names(), set(same(place, name))
    try:
        WRITES[write](place, name)
        is_refused = False
    except REFUSED:
        is_refused = True
    after = place.names()
    if write == "remove" or not is_refused:
        assert {path: own for path, own in before.items() if path not in meant} == {
            path: own for path, own in after.items() if path not in meant
        }
    else:
        assert after == before


@pytest.mark.parametrize("name", NAMES[: repeats(len(NAMES), short=3)])
@pytest.mark.parametrize("read", READS)
def test_what_is_read_has_the_whole_name(unchanged: Place, read: str, name: str) -> None:
    try:
        found = READS[read](unchanged, name)
    except REFUSED:
        return
    assert found in {None, *same(unchanged, name)}
