"""Names with characters that mean something in URLs: each entry point has the domain of the whole name, or none."""

from __future__ import annotations

import glob
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
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
    "sample#1.h5",
    "what?.h5",
    "x.h5?bucket=other",
    "x.h5#part",
    "a%23b.h5",
    "a%2fb.h5",
    "%ff.h5",
    "100%.h5",
    "tail.h5 ",
    " lead.h5",
    "ü/é.h5",
    "x.h5@1",
    "me@x.h5",
    "../x.h5",
    "in/../x.h5",
    "in//x.h5",
    "./x.h5",
    "x\t.h5",
    "x.h5\n",
    "a&b=c.h5",
    "a+b.h5",
    "a;b.h5",
    "[ab].h5",
    "*.h5",
    "\udc80.h5",
    "http://h/x.h5",
)
BESIDE = (
    "x.h5",
    "sample",
    "what",
    "a#b.h5",
    "a",
    "\ufffd.h5",
    "100",
    "tail.h5",
    "lead.h5",
    "é.h5",
    "a b.h5",
    "b.h5",
)
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


def replace_url(place: Place, name: str) -> None:
    with hsparse.open(f"{place.url}{place.folder}/{name}", "w") as file:
        file["y"] = [9]


def replace_encoded(place: Place, name: str) -> None:
    with hsparse.open(f"{place.url}{place.folder}/{quote(name, errors='surrogateescape')}", "w") as file:
        file["y"] = [9]


def replace_path(place: Place, name: str) -> None:
    with hsparse.open(place.path(name), "w", endpoint=place.url) as file:
        file["y"] = [9]


def replace_protocol(place: Place, name: str) -> None:
    with hsparse.open(f"hdf5:/{place.path(name)}", "w", endpoint=place.url) as file:
        file["y"] = [9]


def create_folder(place: Place, name: str) -> None:
    with hsparse.open(place.folder, endpoint=place.url) as folder:
        folder.create_folder(name)


def clone(place: Place, name: str) -> None:
    with hsparse.open(place.path("b.h5"), endpoint=place.url) as file:
        file.clone(place.path(name))


def command(*words: str) -> None:
    if main([*words]) != 0:
        raise HsparseError("refused")


def import_file(place: Place, name: str) -> None:
    source = str(place.scratch / "new.h5")
    command("import", source, place.path(name), "--endpoint", place.url, "--quiet")


def copy(place: Place, name: str) -> None:
    command("cp", place.path("b.h5"), place.path(name), "--exact", "--endpoint", place.url)


def remove(place: Place, name: str) -> None:
    command("rm", glob.escape(place.path(name)), "--endpoint", place.url)  # which takes patterns


WRITES: tuple[Callable[[Place, str], None], ...] = (
    replace_url,
    replace_encoded,
    replace_path,
    replace_protocol,
    create_folder,
    clone,
    import_file,
    copy,
    remove,
)


def read_url(place: Place, name: str) -> object:
    with hsparse.open(f"{place.url}{place.folder}/{name}", "r") as file:
        return file.attrs["own"]


def read_snapshot(place: Place, name: str) -> object:
    with hsparse.open(f"{place.url}{place.folder}/{name}", "r", snapshot=1) as file:
        return file.attrs["own"]


def read_item(place: Place, name: str) -> object:
    with hsparse.open(place.folder, endpoint=place.url) as folder:
        return folder[name].attrs["own"]


def read_xarray(place: Place, name: str) -> object:
    with xarray.open_dataset(f"{place.url}{place.folder}/{name}", engine="hsparse") as data:
        return data.attrs["own"]


def read_fsspec(place: Place, name: str) -> object:
    address = f"hsparse://{place.url.removeprefix('http://')}{place.folder}/{name}"
    with fsspec.open(address) as raw, h5py.File(raw) as file:
        return file.attrs["own"]


def read_export(place: Place, name: str) -> object:
    target = place.scratch / f"{next(NUMBERS)}.h5"
    command("export", place.path(name), str(target), "--endpoint", place.url)
    with h5py.File(target) as file:
        return file.attrs["own"]


def read_scan(place: Place, name: str) -> object:
    hsparse.scan(f"{place.url}{place.folder}/{name}", "x")
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


READS = (read_url, read_snapshot, read_item, read_xarray, read_fsspec, read_export, read_scan, read_virtual)


def same(place: Place, name: str) -> Iterator[str]:
    """Yield the paths that a name may mean: itself, decoded once where it is a URL's, without empty parts."""
    for one in (name, unquote(name)):
        yield place.path(one)
        yield place.path("/".join(part for part in one.split("/") if part not in ("", ".")))


@pytest.mark.parametrize("name", NAMES[: repeats(len(NAMES), short=3)])
@pytest.mark.parametrize("write", WRITES)
def test_what_is_changed_has_the_whole_name(
    place: Place, write: Callable[[Place, str], None], name: str
) -> None:
    before, meant = place.names(), set(same(place, name))
    try:
        write(place, name)
        is_refused = False
    except REFUSED:
        is_refused = True
    after = place.names()
    if write is remove or not is_refused:
        assert {path: own for path, own in before.items() if path not in meant} == {
            path: own for path, own in after.items() if path not in meant
        }
    else:
        assert after == before


@pytest.mark.parametrize("name", NAMES[: repeats(len(NAMES), short=3)])
@pytest.mark.parametrize("read", READS)
def test_what_is_read_has_the_whole_name(
    unchanged: Place, read: Callable[[Place, str], object], name: str
) -> None:
    try:
        found = read(unchanged, name)
    except REFUSED:
        return
    assert found in {None, *same(unchanged, name)}
