"""Files that people have, by kind: what a place lists, what is read, downloaded and imported, and what is said."""

from __future__ import annotations

import io
import random
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

import h5py
import h5pyd
import numpy as np
import pytest

import hsparse
from hsparse.cli.embedded_server import embedded_server
from hsparse.cli.main import main
from hsparse.config import load_settings
from hsparse.format.codec_library import lookup3
from tests.files_matrix.exceptions import KNOWN, SERVED
from tests.files_matrix.exits import EXITS, Imported
from tests.files_matrix.makers import MAKERS
from tests.sn.in_place.conftest import ask
from tests.support.find_program import find_program

DATA = np.arange(20, dtype="<i4")


def _hdf5(path: Path, **options: Any) -> None:
    with h5py.File(path, "w", **options) as file:
        file.create_dataset("x", data=DATA, chunks=(10,), compression="gzip", shuffle=True)


def _masked(mask: int, **options: Any) -> Callable[[Path], None]:
    """Make a file with a chunk that went through no filter, as its mask says in one of the ways."""

    def make(path: Path) -> None:
        with h5py.File(path, "w", **options) as file:
            dataset = file.create_dataset("x", (20,), "<i4", chunks=(10,), compression="gzip", shuffle=True)
            dataset[:10] = DATA[:10]
            dataset.id.write_direct_chunk((10,), DATA[10:].tobytes(), filter_mask=mask)

    return make


def _sized(path: Path) -> None:
    """Make a file whose chunks' layout has another size of elements than their type, as C# programs write it."""
    _hdf5(path, libver=("v110", "v110"))
    data = bytearray(path.read_bytes())
    with h5py.File(path) as file:
        start = h5py.h5o.get_info(file["x"].id).addr
    layout = data.index(bytes((4, 2, 0, 2, 1, 10, 4)), start)
    end = _header_end(data, start)
    assert lookup3(data[start:end]) == int.from_bytes(data[end : end + 4], "little")
    data[layout + 6] = 100  # with which the sizes of chunks in their index would have more bytes
    data[end : end + 4] = lookup3(data[start:end]).to_bytes(4, "little")
    path.write_bytes(data)


def _header_end(data: bytes | bytearray, start: int) -> int:
    """Return where the checksum of the object header of version 2 at `start` is."""
    flags = data[start + 5]
    place = start + 6 + (16 if flags & 0x20 else 0) + (4 if flags & 0x10 else 0)
    width = 1 << (flags & 3)
    return place + width + int.from_bytes(data[place : place + width], "little")


GOOD: dict[str, Callable[[Path], None]] = {
    "sized.h5": _sized,
    **{
        f"a{suffix}": _hdf5
        for suffix in (".nwb", ".h5mu", ".mcool", ".cool", ".loom", ".nx5", ".nc4", ".hdf")
    },
    **dict.fromkeys(("a.dat", "none", "a\u00a0b.h5", "x" * 248 + ".h5", "a,b.h5", "photo.tiff"), _hdf5),
    **{f"block-{size}.mat": lambda path, size=size: _hdf5(path, userblock_size=size) for size in (512, 2048)},
    **{
        f"mask-{mask:x}-{bounds}.h5": _masked(mask, libver=bounds)
        for mask in (0x3, 0x0FFFFFFF, 0xFFFFFFFF)
        for bounds in ("earliest", "latest")
    },
}
OTHERS = {
    "old.nc": (b"CDF\x01" + bytes(100), "is a netCDF-3 file, not HDF5: convert it by nccopy -k nc4"),
    "large.nc": (b"CDF\x05" + bytes(100), "nccopy"),
    "modis.hdf": (bytes.fromhex("0e031301") + bytes(200), "is an HDF4 file"),
    "page.h5": (b"\n<!DOCTYPE html><html></html>", "is a web page"),
    "pointer.h5": (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
    "annex.h5ad": (b"/annex/objects/MD5E-s1--x.h5ad", "git annex get"),
    "empty.h5": (b"", "is empty"),
    "five.mat": (b"MATLAB 5.0 MAT-file, Platform" + bytes(600), "save -v7.3"),
    "notes": (b"text", "is not an HDF5 file"),
    "random.h5": (b"x" * 5000, "is not an HDF5 file"),
}
"""Files of other formats, with what is said of each."""


def _virtual(path: Path, source: str) -> None:
    with h5py.File(path, "w", libver="latest") as file:
        file["x"] = DATA
        layout = h5py.VirtualLayout((10,), "i8")
        layout[:] = h5py.VirtualSource(source, "x", (10,))
        file.create_virtual_dataset("v", layout)


SOURCES = {
    "outside.h5": "../../outside.h5",
    "beyond.h5": "/etc/outside.h5",
    "hidden.h5": ".hidden.h5",
    "text.h5": "notes",
    "bad.h5": "random.h5",
    "absent.h5": "absent/x.h5",
}
"""Files with a virtual dataset, by the name of its source, which cannot be read."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kinds") / "a,b"
    folder.mkdir()
    for name, make in GOOD.items():
        make(folder / name)
    for name, (data, _) in OTHERS.items():
        (folder / name).write_bytes(data)
    (folder / "some").mkdir()
    for name, source in SOURCES.items():
        _virtual(folder / "some" / name, source)
    _hdf5(folder / "some" / ".hidden.h5")
    _hdf5(folder / "some" / "good.h5")
    (folder / "some" / "notes").write_bytes(b"text")
    (folder / "some" / "random.h5").write_bytes(b"x" * 5000)
    return folder


@pytest.fixture(scope="module")
def url(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    files = f"runs={place}".replace(",", "\\,")
    root = tmp_path_factory.mktemp("root")
    with embedded_server(
        load_settings(root=root, port=0, fsync=False, files=files)
    ) as url:  # as on a command line
        yield url


def test_what_is_hdf5_or_named_so_is_listed(url: str) -> None:
    found = ask(url, "/domains?domain=/runs/")
    files = [one for one in found["domains"] if one["class"] == "domain"]
    reasons = {one["name"].removeprefix("/runs/"): one.get("reason") for one in files}
    assert reasons.keys() - OTHERS.keys() == GOOD.keys()
    assert reasons.keys() & OTHERS.keys() == OTHERS.keys() - {"notes", "five.mat"}
    assert all(reasons[name] is None for name in GOOD)
    assert all(OTHERS[name][1] in reason for name, reason in reasons.items() if name in OTHERS)


def test_files_whose_sources_cannot_be_read_are_counted(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = ask(url, "/domains?domain=/runs/some/&verbose=1")
    entries = {one["name"].removeprefix("/runs/some/"): one for one in found["domains"]}
    assert entries.keys() == {*SOURCES, "good.h5", "random.h5"}
    for name in (*SOURCES, "good.h5"):
        one = ask(url, f"/?domain=/runs/some/{name}&verbose=1")
        assert one["total_size"] == entries[name]["total_size"] > 0
        assert one["num_datasets"] == entries[name]["num_datasets"] == (1 if name == "good.h5" else 2)
        for command in (["info"], ["ls", "-lr"], ["du"]):
            assert main([*command, f"/runs/some/{name}", "--endpoint", url]) == 0
    capsys.readouterr()


@pytest.mark.parametrize("name", GOOD)
def test_a_file_of_any_name_is_read_and_downloaded(url: str, name: str) -> None:
    with hsparse.open(f"/runs/{name}", endpoint=url) as file:
        assert np.array_equal(file["x"][...], DATA)
    with urlopen(f"{url}/files/runs/{quote(name)}") as reply, h5py.File(io.BytesIO(reply.read())) as file:
        assert np.array_equal(file["x"][...], DATA)


@pytest.mark.parametrize("name", [one for one in GOOD if one.startswith(("mask", "block", "sized"))])
def test_a_file_of_any_kind_is_imported(url: str, place: Path, name: str) -> None:
    given = ["import", str(place / name), f"/home/admin/{name}", "--endpoint", url, "--quiet"]
    assert main(given) == 0
    with hsparse.open(f"/home/admin/{name}", endpoint=url) as file:
        assert np.array_equal(file["x"][...], DATA)


@pytest.mark.parametrize("name", OTHERS)
def test_another_format_is_named_with_the_remedy(url: str, place: Path, name: str) -> None:
    status, message = ask(url, f"/groups?domain=/runs/{name}")
    assert (status, OTHERS[name][1] in message) == (400, True), message
    assert str(place) not in message


def test_a_file_is_looked_at_again_once_it_has_changed(url: str, place: Path) -> None:
    (place / "late.h5").write_bytes(b"")
    assert ask(url, "/groups?domain=/runs/late.h5")[0] == 400
    _hdf5(place / "late.h5")
    with hsparse.open("/runs/late.h5", endpoint=url) as file:
        assert np.array_equal(file["x"][...], DATA)
    (place / "late.h5").unlink()


def _flip(path: Path, offset: int, count: int = 4) -> None:
    data = bytearray(path.read_bytes())
    data[offset : offset + count] = (~np.frombuffer(data, np.uint8, count, offset)).tobytes()
    path.write_bytes(data)


def _chunked(filters: dict[str, Any], name: str = "x") -> Callable[[Path], None]:
    """Make a file with a damaged chunk: the second of the dataset `name`."""

    def make(path: Path) -> None:
        with h5py.File(path, "w") as file:
            if name != "x":
                file.create_dataset("x/data", data=DATA)
                file.create_dataset("x/indptr", data=[0, 5, 20])
                file["x"].attrs.update({"encoding-type": "csr_matrix", "shape": [2, 20]})
            dataset = file.create_dataset(name, data=DATA, chunks=(10,), **filters)
            info = dataset.id.get_chunk_info(1)
        _flip(path, info.byte_offset + info.size // 2)

    return make


def _header(path: Path) -> None:
    """Make a file whose root group has no header."""
    _hdf5(path)
    with h5py.File(path) as file:
        address = h5py.h5o.get_info(file.id).addr
    _flip(path, address)


def _cut(path: Path) -> None:
    _hdf5(path)
    path.write_bytes(path.read_bytes()[:-10])


def _heap(path: Path) -> None:
    """Make a file with texts in a global heap whose signature is damaged."""
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=["a"] * 20, dtype=h5py.string_dtype(), chunks=(10,))
    _flip(path, path.read_bytes().index(b"GCOL"))


def _mapped(damaged: Callable[[Path], None]) -> Callable[[Path], None]:
    """Make a file with a virtual dataset of one in a damaged file beside it."""

    def make(path: Path) -> None:
        part = f"part-{path.name}"
        damaged(path.with_name(part))
        layout = h5py.VirtualLayout((20,), "<i4")
        layout[:] = h5py.VirtualSource(part, "x", (20,))
        with h5py.File(path, "w") as file:
            file.create_virtual_dataset("x", layout)

    return make


DAMAGED: dict[str, tuple[Callable[[Path], None], str]] = {
    "deflate": (_chunked({"compression": "gzip", "shuffle": True}), "/x (chunk 1): The filter deflate"),
    "checksum": (_chunked({"fletcher32": True}), "/x (chunk 1): The filter fletcher32"),
    "matrix": (_chunked({"fletcher32": True}, "x/indices"), "/x (chunk"),
    "heap": (_heap, "/x (chunk 0): The global heap"),
    "cut": (_cut, "it was cut short"),
    "header": (_header, "/: The object header"),
    "source": (
        _mapped(_chunked({"fletcher32": True})),
        "/runs/damaged/part-source.h5: /x (chunk 1): The filter fletcher32",
    ),
    "cut-source": (_mapped(_cut), "/runs/damaged/part-cut-source.h5: "),
    "header-source": (_mapped(_header), "/runs/damaged/part-header-source.h5: "),
}
"""Damaged files, with what is said of each."""


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_file_is_named_and_not_asked_for_again(url: str, place: Path, damage: str) -> None:
    path = place / "damaged" / f"{damage}.h5"
    path.parent.mkdir(exist_ok=True)
    make, text = DAMAGED[damage]
    make(path)
    domain = f"/runs/damaged/{damage}.h5"
    with pytest.raises(hsparse.DamagedFile) as caught:
        hsparse.open(domain, endpoint=url)["x"][...]
    message = str(caught.value)
    assert caught.value.status == 422
    assert text in message
    assert domain in message or damage.endswith("source")
    assert str(place) not in message
    with pytest.raises(OSError, match="Errno 422"):  # of a 500 it says that it has no retry left
        h5pyd.File(domain, endpoint=url, username="admin", password="any", retries=1)["x"][...]


LINKS = {
    "beside": ("other.h5", 8),
    "above": ("../raw/a.h5", 1),
    "absolute": ("{place}/raw/a.h5", 1),
    "moved": ("/gpfs/old/other.h5", 8),
}
"""External links as programs write them, with the value there."""


@pytest.mark.parametrize("master", ["proc/m.h5", "latest.h5"])
@pytest.mark.parametrize("link", LINKS)
def test_an_external_link_leads_where_hdf5_looks(url: str, place: Path, master: str, link: str) -> None:
    """Absolute names, those of files that were moved, and a master that is a symbolic link."""
    folder = place / f"links-{link}-{master.partition('/')[0]}"
    for name, value in (("raw/a.h5", 1), ("proc/other.h5", 8)):
        (folder / name).parent.mkdir(parents=True)
        with h5py.File(folder / name, "w") as file:
            file["x"] = [value]
    with h5py.File(folder / "proc" / "m.h5", "w") as file:
        file["e"] = h5py.ExternalLink(LINKS[link][0].format(place=folder), "/x")
    (folder / "latest.h5").symlink_to("proc/m.h5")
    with h5py.File(folder / master) as file:
        right = file["e"][0] if link != "above" or master == "proc/m.h5" else LINKS[link][1]
    with hsparse.open(f"/runs/{folder.name}/{master}", endpoint=url) as file:
        assert file["e"][0] == right == LINKS[link][1]


COUNT = 1000
KINDS = 30
DAMAGED_EVERY = 7


@pytest.fixture(scope="module")
def thousand(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory: `3-0.h5` is the file of the third maker, the others are copies, those in `damaged` changed."""
    place = tmp_path_factory.mktemp("thousand")
    made = {}
    for number, make in enumerate(MAKERS.values()):
        made[number] = place / f"{number}-0.h5"
        make(made[number])
    assert len(made) >= KINDS
    chosen = random.Random(0)
    for number in range(COUNT - len(made)):
        kind, copy = number % len(made), 1 + number // len(made)
        path = place / f"{kind}-{copy}{'-damaged' * (number % DAMAGED_EVERY == 0)}.h5"
        shutil.copyfile(made[kind], path)
        if path.name.endswith("-damaged.h5"):
            path.write_bytes(_damaged_bytes(path.read_bytes(), chosen))
    return place


def _damaged_bytes(data: bytes, chosen: random.Random) -> bytes:
    """Return a file that was cut short, or of which some bytes are others."""
    place = chosen.randrange(len(data))
    return chosen.choice(
        (
            data[:place],
            data[: len(data) // 2] + bytes(len(data) - len(data) // 2),
            data[:place] + chosen.randbytes(64) + data[place + 64 :],
            chosen.randbytes(200) + data[200:],
        )
    )


@contextmanager
def _served(place: Path, root: Path) -> Iterator[str]:
    """Serve a directory by a process to which it is mounted for reading alone; the value is the server's URL."""
    mounted = root / "mounted"
    mounted.mkdir()
    serve = f"exec {find_program('hsparse')} serve --root {root / 'store'} --port 0 --files data={mounted}"
    script = f"mount --bind -o ro {place} {mounted} && ! touch {mounted}/x 2>/dev/null && {serve}"
    process = subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        if " on http" not in line:
            process.wait()
            said = process.stderr.read().strip()
            if "unshare" in said or "mount" in said:
                pytest.skip(f"A read-only mount needs a right that is not there: {said}")
            raise RuntimeError(said)
        yield line.rpartition(" on ")[2].split()[0]
    finally:
        process.terminate()
        process.communicate()


@pytest.mark.skipif(find_program("unshare") is None, reason="A mount of one process needs Linux's unshare.")
def test_a_thousand_files_on_a_mount_for_reading(thousand: Path, tmp_path: Path) -> None:
    before = _state_of(thousand)
    with _served(thousand, tmp_path) as url:
        began = time.perf_counter()
        listing = ask(url, "/domains?domain=/data/")["domains"]
        took = time.perf_counter() - began
        names = [one["name"].removeprefix("/data/") for one in listing]
        assert sorted(names) == sorted(before)
        print(f"\nlisted {len(names)} files in {took:.2f} s")

        opened: list[tuple[float, str]] = []
        refused: dict[str, str] = {}
        for name in names:
            began = time.perf_counter()
            try:
                with hsparse.open(f"{url}/data/{name}") as file:
                    list(file)
            except hsparse.HsparseError as error:
                refused[name] = str(error)
            opened.append((time.perf_counter() - began, name))
        opened.sort()
        print(f"opened each in {opened[len(opened) // 2][0]:.3f} s, the slowest in", opened[-5:])

        assert all("damaged" in name for name in refused), refused
        assert all(f"/data/{name}: " in said for name, said in refused.items())
        assert len(refused) > COUNT // DAMAGED_EVERY // 4
        listing = ask(url, "/domains?domain=/data/")["domains"]
        reasons = {one["name"].removeprefix("/data/"): one.get("reason") for one in listing}
        assert {name for name, reason in reasons.items() if reason} == set(refused)

        different = []
        for number, name in enumerate(MAKERS):
            given = Imported(name, thousand / f"{number}-0.h5", url, f"/data/{number}-0.h5", tmp_path)
            different += [f"{name}: {one}" for one in EXITS["client"](given)]
        expected = (*KNOWN, *SERVED)
        different = [one for one in different if not any(known.explains("client", one) for known in expected)]
        assert not different, "\n".join(different)
    assert _state_of(thousand) == before


def _state_of(place: Path) -> dict[str, tuple[int, int]]:
    return {path.name: (path.stat().st_size, path.stat().st_mtime_ns) for path in place.iterdir()}
