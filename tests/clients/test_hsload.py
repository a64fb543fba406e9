"""hsload and hsget of h5pyd 1.0.0: a file of every kind goes to a server and back, and is what it was.

`REFUSED` and `LOST` are what the tools themselves cannot do, by their source; all else must be equal, to h5diff of
HDF5's own tools, and to a comparison of types, extents, properties, links and attributes bit by bit.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import h5py
import h5pyd
import hdf5plugin
import pytest
import requests
import xarray as xr

from tests.clients.h5pyd_tool import Ended, run_tools
from tests.clients.hdf5_difference import differences
from tests.clients.hdf5_files import FILES, OPTIONS
from tests.clients.netcdf_files import NETCDF
from tests.clients.test_h5pyd_types import plain
from tests.support.endurance import ENDURANCE, spread

H5DIFF = shutil.which("h5diff")
TOPICS = spread([*FILES, *NETCDF], short=(len(FILES) + len(NETCDF)) // 2)
"""The tools take a third of a second for one, most of it in h5pyd."""
pytestmark = pytest.mark.endurance

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


@pytest.mark.parametrize("topic", [topic for topic in TOPICS if topic not in REFUSED])
def test_a_file_is_what_it_was(trips: dict[str, Trip], topic: str) -> None:
    trip = trips[topic]
    for tool, ended in trip.ended.items():
        assert ended.returncode == 0, f"{tool} printed {ended.stdout}{ended.stderr}"
    found = [topic + difference for difference in differences(trip.original, trip.copy)]
    assert [difference for difference in found if not rows_of(difference)] == []


@pytest.mark.parametrize("topic", SERVED)
def test_a_domain_is_served_as_the_file_that_it_was(
    trips: dict[str, Trip], topic: str, tmp_path: Path
) -> None:
    trip = trips[topic]
    path = tmp_path / "served.h5"
    path.write_bytes(requests.get(f"{trip.url}/files{trip.domain}", timeout=60).content)
    found = [topic + difference for difference in differences(trip.original, path)]
    assert [one for one in found if not rows_of(one) and not fnmatchcase(one, BLOSC)] == []
    if H5DIFF is not None:
        done = compare(trip.original, path)
        assert done.returncode == UNEQUAL.get(topic, (0, ""))[0], done.stdout + done.stderr


@pytest.mark.parametrize("topic", [topic for topic in REFUSED if topic in TOPICS])
def test_what_a_tool_refuses(trips: dict[str, Trip], topic: str) -> None:
    """When this fails, the tool has been mended: the row can go."""
    tool, text, _ = REFUSED[topic]
    ended = trips[topic].ended
    assert ended[tool].returncode != 0
    assert text in ended[tool].stderr
    assert tool == "hsload" or ended["hsload"].returncode == 0


@pytest.mark.parametrize("topic", LOADED)
def test_what_hsget_refuses_was_loaded(trips: dict[str, Trip], topic: str) -> None:
    trip = trips[topic]
    options = {"endpoint": trip.url, "username": "admin", "password": "any", "retries": 1}
    with h5py.File(trip.original) as original, h5pyd.File(trip.domain, "r", **options) as loaded:
        assert set(loaded) == set(original)
        for name, dataset in original.items():
            assert loaded[name].dtype.names == dataset.dtype.names
            assert plain(loaded[name][...]) == plain(dataset[...])


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


@pytest.mark.parametrize("topic", [topic for topic in NETCDF if topic in TOPICS])
def test_xarray_reads_the_copy_as_the_original(trips: dict[str, Trip], topic: str) -> None:
    trip = trips[topic]
    opened = (xr.open_datatree(path, engine="h5netcdf") for path in (trip.original, trip.copy))
    with next(opened) as original, next(opened) as copy:
        xr.testing.assert_identical(copy, original)
