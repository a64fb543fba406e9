"""h5pyd's hsload: files loaded, and linked."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import h5py
import h5pyd
import hdf5plugin
import numpy as np
import pytest
import requests
import xarray as xr

from hsparse.storage.s3.s3_store import S3Store
from tests.clients.h5pyd_tool import Ended, run_tool, run_tools
from tests.clients.hdf5_difference import differences
from tests.clients.hdf5_files import FILES, OPTIONS
from tests.clients.netcdf_files import NETCDF
from tests.clients.test_h5pyd_types import plain
from tests.support.endurance import ENDURANCE, spread
from tests.support.s3_servers import make_bucket
from tests.support.server_process import server_process

H5DIFF = shutil.which("h5diff")
TOPICS = spread([*FILES, *NETCDF], short=(len(FILES) + len(NETCDF)) // 2)
"""The tools take a third of a second for one, most of it in h5pyd."""

IGNORING = "--ignore-filters"
FLAGS = {
    f"filter {name}": [IGNORING] for name in ("blosc", "blosc2", "lz4", "zstd", "bitshuffle", "szip", "nbit")
}
"""What hsload is told beside the file and the domain."""

REFUSED = {
    "arrays": ("hsload", "truth value of an array", "takes the fill value of an array type for one number"),
    "dates": ("hsload", "unexpected dtype kind: M", "h5json has no dtype of dates"),
    "complex numbers in compounds": (
        "hsload",
        "unexpected dtype kind: c",
        "h5json has them outside compounds only",
    ),
    "field names that are not ASCII": ("hsload", "non-ascii field name", "h5json refuses them"),
    "region references": (
        "hsload",
        "Unexpected metadata type",
        "makes h5py's type, which h5pyd does not know",
    ),
    "sequences of compounds": ("hsload", "Cannot compare structured", "compares them with zeros"),
    "sequences of one length": ("hsload", "cannot reshape", "h5pyd takes them for a table of numbers"),
    "sequences of sequences": ("hsload", "cannot reshape", "h5pyd takes them for a table of numbers"),
    "sequences with nothing in them": (
        "hsget",
        "",
        "h5pyd reads 0 for them, and h5py ends with a fault on writing it",
    ),
    "sequences in compounds": ("hsget", "'int' object", "h5pyd says that their fill value is 0"),
    "text in compounds": ("hsget", "Can't implicitly convert", "h5pyd says that their fill value is 0"),
    "references in sequences": (
        "hsget",
        "Can't convert",
        "makes an array of sequences where one of references is due",
    ),
    "filter bzip2": (
        "hsload",
        "filter unknown is unknown",
        "passes on h5py's name of filters it does not know",
    ),
    "filter blosc": ("hsget", "is unavailable", "asks h5py for a filter by HSDS's name"),
    "filter lz4": ("hsget", "is unavailable", "asks h5py for a filter by HSDS's name"),
    "filter zstd": (
        "hsload",
        "H5Z_FILTER_ZSTD not supported",
        "not among the filters that h5pyd takes HSDS to have",
    ),
}
"""The tool that ends, what it prints, and why; by topic."""

LOADED = [
    topic
    for topic, (tool, *_) in REFUSED.items()
    if topic in TOPICS and tool == "hsget" and topic != "references in sequences"
]
"""What hsload loads and hsget refuses; references are of each library's own, their sequences in `dimension scales`."""

LOST = {
    "*: layout": "hsload gives each dataset chunks",
    "*: chunks": "hsload and the server (as HSDS) enlarge chunks",
    "*: padding of text": "h5py's dtype of fixed text is padded by nulls",
    "*@*: length of text": "the type is taken from the value, which is bytes up to the first null",
    "*: gaps": "dtypes of compounds are made anew from their fields",
    "*: creation order": "not asked for by either tool",
    "bit fields/*: type": "h5py's dtype of a bit field is an unsigned integer",
    "compounds with gaps/*: fill value": "as its type",
    "attributes of other*@utf-8: character set": "the type is taken from the value, which is bytes",
    "attributes of other*@array: *": "an attribute of arrays is read as one of numbers, with more dimensions",
    "object references/@one: *": "hsload sends the text of a reference that is alone in an attribute",
    "attributes with region references/@region: missing": "hsload says that it leaves them out",
    "committed types/*: committed": "the type is taken from the dtype",
    "extents/none: maxshape": "h5pyd says 0 for no limit, so that a limit of 0 is none",
    "extents/null*": "h5pyd makes a scalar of a null dataset: it does not send its extent",
    "fill values of text/text: fill value": "hsload leaves out fill values of variable length",
    "filter [!l]*: filters": "hsload is told to leave them out",
    "filters/fletcher32: filters": "hsload takes the filter for unknown to HSDS",
    "filters/all of them: filters": "hsload takes fletcher32 for unknown to HSDS",
    "filters/scaleoffset: filters": "hsload takes the filter for unknown to HSDS",
    "a group in itself/a/up: missing": "hsload makes links to what it made, which the root is not",
    "netcdf encoded*/rain: filters": "hsload takes fletcher32 for unknown to HSDS",
}
"""Differences that the tools make, and why: patterns of the topic, the path and what is different."""


UNEQUAL = {
    "fixed text": (1, "compares the padding of text too"),
    "a group in itself": (1, "a link is lost"),
    "attributes with region references": (1, "an attribute is lost"),
    "attributes of other types than their values": (2, "does not read text of another character set"),
    "filter lzf": (2, "has no lzf"),
}
"""The status that h5diff ends with where it is not 0, and why; by topic."""

NOT_COMPARED = {
    "*is an empty dataset": "h5diff does not compare what was never written, or has no elements",
    "bit fields: *H5T_BITFIELD*": "in LOST",
    "object references: *H5T_REFERENCE*": "in LOST",
}
"""What h5diff calls not comparable, and why: patterns of the topic and of its line."""


SERVED = [topic for topic in TOPICS if REFUSED.get(topic, ("",))[0] != "hsload"]
BLOSC = "filter l*/x: filters"
"""A served file has the filters that chunks are stored through: Blosc in place of LZF and LZ4."""


@dataclass(frozen=True, slots=True)
class Trip:
    """A file, where it was loaded, its copy after hsload and hsget, and how these ended."""

    original: Path
    url: str
    domain: str
    copy: Path
    ended: dict[str, Ended]


@pytest.fixture(scope="session")
def trips(tmp_path_factory: pytest.TempPathFactory, embedded_url: str) -> dict[str, Trip]:
    """Every file, loaded into a server and fetched again."""
    root = tmp_path_factory.mktemp("root")
    files = {topic: make(topic, root) for topic in TOPICS}
    copies = {topic: path.with_suffix(".copy") for topic, path in files.items()}
    domains = {topic: f"/home/admin/{path.name}" for topic, path in files.items()}
    fetched = [topic for topic in TOPICS if REFUSED.get(topic, ("",))[0] != "hsload"]
    loads = [["hsload", *FLAGS.get(topic, []), str(files[topic]), domains[topic]] for topic in TOPICS]
    gets = [["hsget", domains[topic], str(copies[topic])] for topic in fetched]
    ended = run_tools(embedded_url, *loads, *gets)
    loaded = dict(zip(TOPICS, ended, strict=False))
    got = dict(zip(fetched, ended[len(TOPICS) :], strict=True))
    trips = {}
    for topic in TOPICS:
        both = {"hsload": loaded[topic]} | ({"hsget": got[topic]} if topic in got else {})
        trips[topic] = Trip(files[topic], embedded_url, domains[topic], copies[topic], both)
    return trips


def make(topic: str, root: Path) -> Path:
    """Write the file of a topic and return its path."""
    path = root / f"{topic.replace(' ', '-')}.h5"
    if topic in NETCDF:
        NETCDF[topic](path)
        return path
    with h5py.File(path, "w", **OPTIONS.get(topic, {})) as file:
        FILES[topic](file)
    return path


def compare(first: Path, second: Path) -> Ended:
    """Return what h5diff says."""
    return subprocess.run(
        ["h5diff", "-c", str(first), str(second)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "HDF5_PLUGIN_PATH": hdf5plugin.PLUGIN_PATH},
    )


def rows_of(difference: str) -> set[str]:
    return {pattern for pattern in LOST if fnmatchcase(difference, pattern)}


@pytest.mark.endurance
@pytest.mark.parametrize("topic", [topic for topic in TOPICS if topic not in REFUSED])
def test_a_file_is_what_it_was(trips: dict[str, Trip], topic: str) -> None:
    trip = trips[topic]
    for tool, ended in trip.ended.items():
        assert ended.returncode == 0, f"{tool} printed {ended.stdout}{ended.stderr}"
    found = [topic + difference for difference in differences(trip.original, trip.copy)]
    assert [difference for difference in found if not rows_of(difference)] == []


@pytest.mark.endurance
@pytest.mark.parametrize("topic", SERVED)
def test_a_domain_is_served_as_it_was(trips: dict[str, Trip], topic: str, tmp_path: Path) -> None:
    trip = trips[topic]
    path = tmp_path / "served.h5"
    path.write_bytes(requests.get(f"{trip.url}/files{trip.domain}", timeout=60).content)
    found = [topic + difference for difference in differences(trip.original, path)]
    assert [one for one in found if not rows_of(one) and not fnmatchcase(one, BLOSC)] == []
    if H5DIFF is not None:
        done = compare(trip.original, path)
        assert done.returncode == UNEQUAL.get(topic, (0, ""))[0], done.stdout + done.stderr


@pytest.mark.endurance
@pytest.mark.parametrize("topic", [topic for topic in REFUSED if topic in TOPICS])
def test_what_a_tool_refuses(trips: dict[str, Trip], topic: str) -> None:
    """When this fails, the tool has been mended: the row can go."""
    tool, text, _ = REFUSED[topic]
    ended = trips[topic].ended
    assert ended[tool].returncode != 0
    assert text in ended[tool].stderr
    assert tool == "hsload" or ended["hsload"].returncode == 0


@pytest.mark.endurance
@pytest.mark.parametrize("topic", LOADED)
def test_what_hsget_refuses_was_loaded(trips: dict[str, Trip], topic: str) -> None:
    trip = trips[topic]
    options = {"endpoint": trip.url, "username": "admin", "password": "any", "retries": 1}
    with h5py.File(trip.original) as original, h5pyd.File(trip.domain, "r", **options) as loaded:
        assert set(loaded) == set(original)
        for name, dataset in original.items():
            assert loaded[name].dtype.names == dataset.dtype.names
            assert plain(loaded[name][...]) == plain(dataset[...])


@pytest.mark.endurance
def test_every_row_of_what_is_lost_is_needed(trips: dict[str, Trip]) -> None:
    needed: set[str] = set()
    for topic in TOPICS:
        if topic not in REFUSED:
            trip = trips[topic]
            needed |= set().union(
                *(rows_of(topic + found) for found in differences(trip.original, trip.copy))
            )
    rows = {row for row in LOST if re.split("[/@:]", row)[0] in TOPICS}
    assert (set(LOST) if ENDURANCE.full else rows) - needed == set()


@pytest.mark.endurance
@pytest.mark.needs("h5diff")
@pytest.mark.parametrize("topic", [topic for topic in TOPICS if topic not in REFUSED])
def test_h5diff_finds_no_difference(trips: dict[str, Trip], topic: str) -> None:
    trip = trips[topic]
    done = compare(trip.original, trip.copy)
    status, _ = UNEQUAL.get(topic, (0, ""))
    assert done.returncode == status, done.stdout + done.stderr
    lines = [f"{topic}: {line}" for line in done.stdout.splitlines()]
    if not status:
        assert [line for line in lines if not any(fnmatchcase(line, row) for row in NOT_COMPARED)] == []


@pytest.mark.endurance
@pytest.mark.parametrize("topic", [topic for topic in NETCDF if topic in TOPICS])
def test_xarray_reads_the_copy_as_the_original(trips: dict[str, Trip], topic: str) -> None:
    trip = trips[topic]
    opened = (xr.open_datatree(path, engine="h5netcdf") for path in (trip.original, trip.copy))
    with next(opened) as original, next(opened) as copy:
        xr.testing.assert_identical(copy, original)


DOMAIN = "/home/admin/linked.h5"
KEY = "data/deep/all.h5"
LINKED = ("H5D_CONTIGUOUS_REF", "H5D_CHUNKED_REF", "H5D_CHUNKED_REF_INDIRECT")
COPIED = {"copied"}


@dataclass(frozen=True, slots=True)
class Site:
    """A server, its store's directory or bucket, and a copy of the file in the store to compare with."""

    url: str
    root: Path
    bucket: str
    file: Path

    def open(self, domain: str = DOMAIN) -> Any:
        return h5pyd.File(domain, "r", endpoint=self.url, username="admin", password="any", retries=1)

    def load(self, *arguments: str, lifted: bool = True) -> Ended:
        """Run hsload, in the store's root as its help says."""
        tool = "tests.clients.hsload_link" if lifted else "hsload"
        return run_tool(self.url, tool, *arguments, cwd=self.root)


@pytest.fixture(scope="module", params=["directory", "two data nodes", "bucket"])
def site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, moto_endpoint: str
) -> Iterator[Site]:
    """A server with the file in its store and loaded by --link."""
    root: Path = tmp_path_factory.mktemp("root")
    make_file(root / KEY)
    flags, variables = ["--root", str(root), "--no-fsync"], {}
    if request.param == "two data nodes":
        flags += ["--dn", "2"]
    bucket = root.name
    if request.param == "bucket":
        bucket = "linked-files"
        make_bucket(moto_endpoint, bucket)
        asyncio.run(put_object(moto_endpoint, bucket, KEY, (root / KEY).read_bytes()))
        flags = ["--bucket", bucket, "--s3-endpoint", moto_endpoint, "--s3-region", "us-east-1"]
        variables = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    with server_process(*flags, **variables) as server:
        site = Site(server.url, root, bucket, root / KEY)
        way = ["--linkpath", f"s3://{bucket}/{KEY}"] if request.param == "bucket" else []
        loaded = site.load("--link", *way, KEY, DOMAIN)
        assert loaded.returncode == 0, loaded.stderr
        yield site
        assert server.stop() == 0


async def put_object(endpoint: str, bucket: str, key: str, data: bytes) -> None:
    store = S3Store(bucket, endpoint=endpoint, region="us-east-1", access_key="test", secret_key="test")
    await (await store.open()).put(key, data)
    await store.close()


def test_everything_is_linked_and_equal(site: Site) -> None:
    rng = np.random.default_rng(2)
    names = dataset_names(site.file)
    assert len(names) > 15
    with h5py.File(site.file) as file, site.open() as domain:
        assert domain.attrs["title"] == file.attrs["title"]
        for name in names:
            original, linked = file[name], domain[name]
            assert (linked.id.layout["class"] in LINKED) == (name not in COPIED), name
            assert linked.dtype == original.dtype, name
            np.testing.assert_array_equal(linked[...], original[...], err_msg=name)
            for _ in range(12):
                index = random_selection(rng, original.shape)
                np.testing.assert_array_equal(linked[index], original[index], err_msg=f"{name} {index}")


def test_fastlink_lets_the_server_find_the_chunks(site: Site) -> None:
    where = f"s3://{site.bucket}/{KEY}"
    for name, way in ("fast", ["--linkpath", where]), ("faster", []):
        if not way and site.bucket == "linked-files":
            continue  # a path of this machine is none of the bucket
        path = f"/home/admin/{name}.h5"
        loaded = site.load("--fastlink", *way, KEY, path)
        assert loaded.returncode == 0, loaded.stderr
        indirect = 0
        with h5py.File(site.file) as file, site.open(path) as domain:
            for dataset in set(dataset_names(site.file)) - COPIED:  # which hsload 1.0.0 then does not copy
                np.testing.assert_array_equal(domain[dataset][...], file[dataset][...], err_msg=dataset)
                indirect += domain[dataset].id.layout["class"] == LINKED[2]
        assert indirect > 5


def test_masks_and_points(site: Site) -> None:
    with h5py.File(site.file) as file, site.open() as domain:
        values = file["chunked/holes"][...]
        mask = values > 50
        np.testing.assert_array_equal(
            np.sort(domain["chunked/holes"][mask]), np.sort(file["chunked/holes"][...][mask])
        )


def test_nothing_is_written_into_the_file(site: Site) -> None:
    before = site.file.read_bytes()

    def write() -> None:
        with h5pyd.File(
            DOMAIN, "r+", endpoint=site.url, username="admin", password="any", retries=1
        ) as domain:
            domain["contiguous/f8"][0, 0] = 1.0

    with pytest.raises(OSError, match="400"):
        write()
    assert site.file.read_bytes() == before


def test_h5pyd_links_by_a_layout_given_as_chunks(site: Site) -> None:
    data = site.file.read_bytes()
    image = {
        "class": "H5D_CONTIGUOUS_REF",
        "file_uri": f"s3://{site.bucket}/{KEY}",
        "offset": 0,
        "size": len(data),
    }
    options = {"endpoint": site.url, "username": "admin", "password": "any", "retries": 1}
    with h5pyd.File("/home/admin/image.h5", "w", **options) as domain:
        domain.create_dataset("h5image", (len(data),), dtype="u1", chunks=image)
    with site.open("/home/admin/image.h5") as domain:
        assert domain["h5image"].chunks is None
        assert domain["h5image"][...].tobytes() == data
        assert domain["h5image"][1000:2000:3].tobytes() == data[1000:2000:3]


def test_hsload_1_0_0_ends_before_its_first_linked_dataset(site: Site) -> None:
    """When this fails, h5pyd has been mended: `hsload_link` and what docs/clients.md says of it can go."""
    ended = site.load("--link", KEY, "/home/admin/unlifted.h5", lifted=False)
    assert ended.returncode != 0
    assert "can be resizable" in ended.stderr


def test_a_file_that_is_not_in_the_store_is_named_by_a_read(site: Site, tmp_path: Path) -> None:
    other = shutil.copy(site.file, tmp_path / "other.h5")
    ended = site.load("--link", "--linkpath", "data/none.h5", str(other), "/home/admin/other.h5")
    assert ended.returncode == 0, ended.stderr
    with site.open("/home/admin/other.h5") as domain:
        np.testing.assert_array_equal(domain["copied"][...], np.arange(10))
        with pytest.raises(OSError, match="404"):
            domain["contiguous/f8"][...]


COMPOUND = np.dtype([("id", "<i4"), ("xyz", ">f8", (3,)), ("name", "S5"), ("ok", "?")])


def make_file(path: Path, seed: int = 1) -> None:
    """Write the file; all its datasets have more elements than hsload copies."""
    rng = np.random.default_rng(seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        file.attrs["title"] = "linked"
        add = file.create_dataset
        add("contiguous/f8", data=rng.random((300, 70)))
        add("contiguous/big_endian", data=rng.integers(0, 2**31, (40, 30, 20)).astype(">i4"))
        add("contiguous/large", data=rng.integers(0, 2**31, (1500, 1201)).astype("<i4"))
        add("contiguous/compound", data=_records(rng, 900))
        add("chunked/plain", data=rng.random((100, 90)), chunks=(30, 40))
        add("chunked/three", data=rng.integers(0, 99, (20, 33, 40)).astype("<i2"), chunks=(7, 8, 9))
        add("chunked/gzip", data=rng.integers(0, 9, (200, 150)), chunks=(64, 50), compression="gzip")
        add(
            "chunked/shuffle",
            data=rng.integers(0, 999, (201, 151)).astype(">u2"),
            chunks=(20, 30),
            compression="gzip",
            shuffle=True,
        )
        add("chunked/lzf", data=np.arange(5000) // 7, chunks=(600,), compression="lzf", shuffle=True)
        add("chunked/lzf_declined", data=rng.random(3000), chunks=(500,), compression="lzf")
        add("chunked/fletcher", data=rng.random((60, 50)), chunks=(10, 20), fletcher32=True)
        add(
            "chunked/all",
            data=rng.integers(0, 99, (70, 80)).astype("<f4"),
            chunks=(16, 17),
            compression="gzip",
            shuffle=True,
            fletcher32=True,
        )
        add("chunked/compound", data=_records(rng, 1000), chunks=(64,), compression="gzip", shuffle=True)
        add(
            "chunked/strings", data=np.array([b"%d" % i for i in range(800)]), chunks=(90,), compression="lzf"
        )
        add("chunked/bool", data=rng.random((40, 40)) > 0.5, chunks=(16, 16), compression="gzip")
        holes = add("chunked/holes", (400, 300), "<i4", chunks=(20, 25), fillvalue=-7, compression="gzip")
        holes[35:90, 100:160] = rng.integers(0, 99, (55, 60))
        few = add("chunked/few", (400, 300), "<i4", chunks=(100, 100), fillvalue=-7)
        few[150:160, 10:20] = 5
        add("tiny", data=np.arange(20_000, dtype="<i4"), chunks=(10,))
        add("copied", data=np.arange(10))


def _records(rng: np.random.Generator, count: int) -> np.ndarray[Any, Any]:
    data = np.zeros(count, COMPOUND)
    data["id"], data["xyz"] = np.arange(count), rng.random((count, 3))
    data["name"], data["ok"] = b"abc", rng.random(count) > 0.5
    return data


def dataset_names(path: Path) -> list[str]:
    """Return the names of all datasets of a file."""
    names: list[str] = []
    with h5py.File(path) as file:
        file.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
    return names


def random_selection(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Return what h5py and h5pyd can both be indexed with: slices, indices, at most one list."""
    parts: list[Any] = []
    listed = False
    for length in shape:
        kind = rng.integers(0, 5)
        if kind == 0:
            parts.append(int(rng.integers(0, length)))
        elif kind == 1 and not listed:
            listed = True
            count = int(rng.integers(1, min(6, length) + 1))
            parts.append(sorted(rng.choice(length, count, replace=False).tolist()))
        else:
            first = int(rng.integers(0, length))
            last = int(rng.integers(first + 1, length + 1))
            parts.append(slice(first, last, int(rng.integers(1, 4)) if kind == 2 else 1))
    return tuple(parts)
