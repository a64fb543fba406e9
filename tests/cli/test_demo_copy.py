from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest
from rich.console import Console

from demo.story import Story, WrongAnswer
from hsparse.cli.demo_copy import check_copy, copy_file, objects
from hsparse.cli.embedded_server import embedded_server
from hsparse.client.connection import Connection
from hsparse.config import load_settings


@pytest.fixture
def file(tmp_path: Path) -> Iterator[h5py.File]:
    with h5py.File(tmp_path / "some.h5", "w") as opened:
        opened.attrs["title"] = "some thing, ü"
        opened.attrs["numbers"] = np.arange(6, dtype=">i2").reshape(2, 3)
        opened["a/b/image"] = np.arange(12, dtype=">f4").reshape(3, 4)
        opened["a/b/image"].attrs["unit"] = np.bytes_("mm")
        opened["a/scalar"] = 2.5
        opened["a/nan"] = np.array([np.nan, 1, -np.inf])
        opened["a/flags"] = np.array([True, False])
        opened["a/colors"] = np.array([0, 2, 1], h5py.enum_dtype({"red": 0, "green": 1, "blue": 2}, "i1"))
        table = np.dtype([("name", "S5"), ("place", "f8", (2,)), ("good", "?")])
        opened["table"] = np.array([(b"one", (1, 2), True), (b"two", (3, 4), False)], table)
        opened.create_dataset(
            "grows", (5,), "u8", maxshape=(None,), chunks=(2,), compression="gzip", shuffle=True
        )
        opened["skipped/x"] = 1
        yield opened


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[Connection]:
    settings = load_settings(root=tmp_path / "store", port=0, fsync=False)
    with embedded_server(settings) as url, Connection(url, "/copy.h5") as opened:
        opened.json("PUT", "/", {})
        yield opened


def story() -> Story:
    return Story(Console(file=io.StringIO()))


def test_all_but_what_is_skipped_is_copied_as_it_is(file: h5py.File, connection: Connection) -> None:
    seen: list[None] = []
    copied = copy_file(connection, file, "/skipped", lambda: seen.append(None))
    assert copied.groups == ["/a", "/a/b"]
    assert sorted(copied.datasets) == [
        "/a/b/image",
        "/a/colors",
        "/a/flags",
        "/a/nan",
        "/a/scalar",
        "/grows",
        "/table",
    ]
    assert len(seen) == len(objects(file, "/skipped")) == 9
    assert copied.elements == 12 + 3 + 2 + 3 + 1 + 5 + 2
    assert check_copy(connection, file, copied, story()) > 0
    record = connection.json("GET", "/datasets/", h5path="/grows")
    assert record["shape"]["maxdims"] == ["H5S_UNLIMITED"]
    assert record["creationProperties"]["layout"]["dims"] == [2]
    assert [one["id"] for one in record["creationProperties"]["filters"]] == [2, 1]
    mapping = connection.json("GET", "/datasets/", h5path="/a/colors")["type"]["members"]
    assert {one["name"]: one["value"] for one in mapping} == {"red": 0, "green": 1, "blue": 2}
    root = connection.json("GET", "/")["root"]
    assert [one["title"] for one in connection.json("GET", f"/groups/{root}/links")["links"]] == [
        "a",
        "grows",
        "table",
    ]


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("/a/b/image", "The values of /a/b/image: the answer at [2, 3] is 11.0, not -1.0"),
        ("/a/flags", "The values of /a/flags: the answer at [1] is False, not True"),
    ],
)
def test_a_value_that_differs_is_found(
    path: str, named: str, file: h5py.File, connection: Connection
) -> None:
    copied = copy_file(connection, file, "/skipped")
    values = file[path][()]
    values.flat[-1] = -1
    file[path][...] = values
    with pytest.raises(WrongAnswer) as caught:
        check_copy(connection, file, copied, story())
    assert named in caught.value.message


@pytest.mark.parametrize("owner", ["/", "/a/b/image"])
def test_an_attribute_that_differs_is_found(owner: str, file: h5py.File, connection: Connection) -> None:
    name = "title" if owner == "/" else "unit"
    copied = copy_file(connection, file, "/skipped")
    file[owner].attrs[name] = "other"
    with pytest.raises(WrongAnswer, match=f"The attribute {name} of {owner}"):
        check_copy(connection, file, copied, story())


def test_a_type_that_differs_is_found(file: h5py.File, connection: Connection) -> None:
    copied = copy_file(connection, file, "/skipped")
    del file["a/b/image"]
    file["a/b/image"] = np.arange(12, dtype="<f4").reshape(3, 4)
    with pytest.raises(WrongAnswer, match="The type of /a/b/image"):
        check_copy(connection, file, copied, story())
