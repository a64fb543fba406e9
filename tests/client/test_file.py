"""`hsparse.open`: domains and folders of a server, by URL, endpoint and configuration."""

from __future__ import annotations

import pytest

import hsparse
from hsparse.client.connection import Connection
from hsparse.client.direct.direct_elements import DirectElements
from hsparse.client.file import File, Folder
from hsparse.client.sources.chosen_elements import ChosenElements
from hsparse.client.sources.http_elements import HttpElements


def test_a_domain_is_a_file(connection: Connection) -> None:
    with hsparse.open(f"{connection.url}{connection.domain}") as file:
        assert isinstance(file, File)
        assert list(file) == []
        assert file.filename == connection.domain
        assert connection.domain in repr(file)


def test_modes(url: str) -> None:
    address = f"{url}/modes.h5"
    with pytest.raises(KeyError, match="mode='a'") as missing:
        hsparse.open(address)
    assert isinstance(missing.value, hsparse.NotFound)
    hsparse.open(address, "x").create_group("first")  # type: ignore[union-attr]
    with pytest.raises(FileExistsError):
        hsparse.open(address, "x")
    assert list(hsparse.open(address, "a")) == ["first"]
    assert list(hsparse.open(address, "w")) == []
    with pytest.raises(ValueError, match="mode"):
        hsparse.open(address, "rw")  # type: ignore[arg-type]


def test_a_folder_lists_what_is_in_it(url: str) -> None:
    top = hsparse.open(url)
    assert isinstance(top, Folder)
    made = top.create_folder("runs")
    with pytest.raises(FileExistsError):
        top.create_folder("runs")
    hsparse.open(f"{url}/runs/b.h5", "x")
    hsparse.open(f"{url}/runs/a.h5", "x")
    assert list(made) == ["a.h5", "b.h5"]
    assert len(made) == 2
    assert isinstance(made["a.h5"], File)
    assert isinstance(top["runs"], Folder)
    assert "runs" in top
    with pytest.raises(KeyError):
        made["none.h5"]


def test_the_server_may_be_named_apart(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hsparse.open("/apart.h5", "x", endpoint=url)
    monkeypatch.setenv("HS_ENDPOINT", url)
    assert isinstance(hsparse.open("hdf5://apart.h5"), File)
    assert isinstance(hsparse.open("/apart.h5"), File)


def test_values_are_read_as_the_caller_says(url: str) -> None:
    """A few elements come from the server; more of them past it, where the caller or the way allows it."""
    file = hsparse.open(f"{url}/ways.h5", "x")
    assert isinstance(file, File)
    made = file.create_sparse("x", (200, 100), "f4", (50, 100))
    made.write_region("[0:200,0:100:2]", 1.0)
    for direct, kind in ((False, HttpElements), (None, DirectElements)):
        opened = hsparse.open(f"{url}/ways.h5", direct=direct)
        assert isinstance(opened, File)
        x = opened["x"]
        assert isinstance(x, hsparse.SparseDataset)
        assert isinstance(x.source, ChosenElements)
        assert x[7, 4] == 1
        assert ("chosen" in vars(x.source)) == (direct is False)
        assert x.read()[1].sum() == 10_000
        assert isinstance(x.source.chosen, kind)
