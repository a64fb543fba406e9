"""What the demo compares of an imported file."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest
from rich.console import Console

from demo import cells
from demo.story import Story, WrongAnswer
from hsparse.cli.embedded_server import embedded_server
from hsparse.client.connection import Connection
from hsparse.config import load_settings

DOMAIN = "/copy.h5"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[h5py.File]:
    monkeypatch.setattr(cells, "FILE", tmp_path / "some.h5")
    with h5py.File(cells.FILE, "w") as made:
        made.attrs["title"] = "some thing, \u00fc"
        made.attrs["numbers"] = np.arange(6, dtype=">i2").reshape(2, 3)
        made["a/b/image"] = np.arange(12, dtype=">f4").reshape(3, 4)
        made["a/b/image"].attrs["unit"] = np.bytes_("mm")
        made["a/scalar"] = 2.5
        made["a/nan"] = np.array([np.nan, 1, -np.inf])
        made["a/flags"] = np.array([True, False])
        made["a/colors"] = np.array([0, 2, 1], h5py.enum_dtype({"red": 0, "green": 1, "blue": 2}, "i1"))
        table = np.dtype([("name", "S5"), ("place", "f8", (2,)), ("good", "?")])
        made["table"] = np.array([(b"one", (1, 2), True), (b"two", (3, 4), False)], table)
        for name in ("raw.X", "a/links"):  # [[0, 5], [7, 0]]
            made.create_group(name).attrs.update({"h5sparse_format": "csr", "h5sparse_shape": [2, 2]})
            made[name].update({"data": np.array([5.0, 7.0]), "indices": [1, 0], "indptr": [0, 1, 2]})
    with h5py.File(cells.FILE, "r+") as opened:
        yield opened


@pytest.fixture
def connection(tmp_path: Path, file: h5py.File) -> Iterator[Connection]:
    file.close()
    settings = load_settings(root=tmp_path / "store", port=0, fsync=False)
    with embedded_server(settings) as url, Connection(url, DOMAIN) as opened:
        assert cells._import(url, DOMAIN) > 0
        yield opened


def story() -> Story:
    return Story(Console(file=io.StringIO()))


def test_all_but_the_matrix_is_compared(connection: Connection) -> None:
    with h5py.File(cells.FILE) as file:
        stored = cells._check_rest(connection, file, story())
    assert stored.points == 12 + 1 + 3 + 2 + 3 + 2 + 2
    assert stored.nbytes > 0
    assert stored.write_seconds is None


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("/a/b/image", r"The values of /a/b/image: the answer at \[2, 3\] is 11.0, not -1.0"),
        ("/a/links/data", r"The elements of /a/links: values: the answer at \[1\] is 7.0, not -1.0"),
        ("/a/flags", r"The values of /a/flags: the answer at \[1\] is False, not True"),
    ],
)
def test_a_value_that_differs_is_found(path: str, named: str, connection: Connection) -> None:
    with h5py.File(cells.FILE, "r+") as file:
        values = file[path][()]
        values.flat[-1] = -1
        file[path][...] = values
        with pytest.raises(WrongAnswer, match=named):
            cells._check_rest(connection, file, story())


@pytest.mark.parametrize("owner", ["/", "/a/b/image"])
def test_an_attribute_that_differs_is_found(owner: str, connection: Connection) -> None:
    name = "title" if owner == "/" else "unit"
    with h5py.File(cells.FILE, "r+") as file:
        file[owner].attrs[name] = "other"
        with pytest.raises(WrongAnswer, match=f"The attribute {name} of {owner}"):
            cells._check_rest(connection, file, story())


def test_a_type_that_differs_is_found(connection: Connection) -> None:
    with h5py.File(cells.FILE, "r+") as file:
        del file["a/b/image"]
        file["a/b/image"] = np.arange(12, dtype="<f4").reshape(3, 4)
        with pytest.raises(WrongAnswer, match="The type of /a/b/image"):
            cells._check_rest(connection, file, story())
