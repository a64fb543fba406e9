"""Virtual datasets that stay virtual when their file is imported: equal to what h5py reads, and nothing is copied."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from hsparse.cli.main import main
from hsparse.client.connection import Connection
from tests.cli.importer.domain_content import domain_differences
from tests.cli.importer.virtual_files import VIRTUAL, numbers, source, virtual

COPIED = {"missing sources", "unlimited without sources"}
"""Those whose sources are not all there."""


class Linked:
    """Files of a directory as domains below a folder of its own, sources first."""

    def __init__(self, url: str, folder: str) -> None:
        self.url, self.folder = url, folder
        self._opened: list[Connection] = []

    def run(self, place: Path, *flags: str, status: int = 0) -> Connection:
        files = sorted(place.rglob("*.h5"), key=lambda one: (one.name == "v.h5", one.name == "inner.h5"))
        for folder in dict.fromkeys(file.parent.relative_to(place).as_posix() for file in files):
            assert (
                main(["mkdir", "-p", f"{self.folder}/{folder}".removesuffix("/."), "--endpoint", self.url])
                == 0
            )
        for file in files:
            domain = f"{self.folder}/{file.relative_to(place).as_posix()}"
            expected = (status,) if file.name == "v.h5" else (0, 3)
            assert main(["import", str(file), domain, "--endpoint", self.url, *flags]) in expected
        return self.open("v.h5")

    def open(self, name: str) -> Connection:
        self._opened.append(Connection(self.url, f"{self.folder}/{name}"))
        return self._opened[-1]

    def close(self) -> None:
        for one in self._opened:
            one.close()


@pytest.fixture
def linked(url: str, request: pytest.FixtureRequest) -> Iterator[Linked]:
    found = Linked(url, f"/home/admin/linked-{abs(hash(request.node.name))}")
    yield found
    found.close()


def layout_of(connection: Connection, path: str = "/v") -> dict[str, Any]:
    found: dict[str, Any] = dataset_of(connection, path)["creationProperties"]["layout"]
    return found


@pytest.mark.parametrize("topic", VIRTUAL)
def test_it_is_what_h5py_reads(linked: Linked, tmp_path: Path, topic: str) -> None:
    VIRTUAL[topic](tmp_path)
    connection = linked.run(tmp_path, status=3 if topic in COPIED else 0)
    with h5py.File(tmp_path / "v.h5") as file:
        names = [name for name, one in file.items() if isinstance(one, h5py.Dataset) and one.is_virtual]
        kinds = {layout_of(connection, f"/{name}")["class"] for name in names}
        assert kinds == {"H5D_CHUNKED" if topic in COPIED else "H5D_VIRTUAL"}
        assert domain_differences(file, connection) == []


def test_copies_are_made_when_asked_for(linked: Linked, tmp_path: Path) -> None:
    VIRTUAL["several files"](tmp_path)
    connection = linked.run(tmp_path, "--copy")
    assert layout_of(connection)["class"] == "H5D_CHUNKED"
    with h5py.File(tmp_path / "v.h5") as file:
        assert domain_differences(file, connection) == []


def test_sources_are_in_another_folder(
    linked: Linked, tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The folder of domains is named; files that are named absolutely are looked for by their last part."""
    (tmp_path / "run").mkdir()
    path = source(tmp_path / "run", "s.h5", numbers(0, 6))
    linked.run(tmp_path / "run")
    for number, other in enumerate(["run/s.h5", str(path)]):
        layout = h5py.VirtualLayout((2, 6), "<i4")
        for row, name in enumerate([str(path), other]):
            layout[row] = h5py.VirtualSource(name, "data", (6,))
        virtual(tmp_path, layout, f"v{number}.h5")
        target = f"{linked.folder}-{number}.h5"
        command = ["import", str(tmp_path / f"v{number}.h5"), target, "--endpoint", url]
        assert main([*command, "--linked", linked.folder]) == 0
        told = "/v stays virtual" in capsys.readouterr().out
        assert told == (number == 1)  # run/s.h5 is no domain below the folder, so that all is copied
        with Connection(url, target) as connection:
            found = connection.binary("GET", f"/datasets/{dataset_of(connection)['id']}/value")
            assert np.array_equal(np.frombuffer(found, "<i4").reshape(2, 6), [numbers(0, 6)] * 2)
            mappings = layout_of(connection).get("mappings", [])
            assert [one["file"] for one in mappings] == [f"{linked.folder}/s.h5"] * 2 * number


def dataset_of(connection: Connection, path: str = "/v") -> dict[str, Any]:
    found: dict[str, Any] = connection.json("GET", "/datasets/", h5path=path)
    return found


@pytest.mark.parametrize(
    "topic",
    [
        "several files",
        "strided blocks",
        "irregular",
        "unlimited strides",
        "pattern of files",
        "types",
        "texts",
    ],
)
def test_it_is_exported_as_a_virtual_dataset(linked: Linked, tmp_path: Path, url: str, topic: str) -> None:
    """An export beside the files that it names is read by libhdf5 as the first one; a copy is what it was."""
    VIRTUAL[topic](tmp_path)
    linked.run(tmp_path)
    out = tmp_path / "out.h5"
    assert main(["export", f"{linked.folder}/v.h5", str(out), "--endpoint", url]) == 0
    with h5py.File(tmp_path / "v.h5") as first, h5py.File(out) as second:
        for name, one in first.items():
            assert second[name].is_virtual
            assert second[name].shape == one.shape
            assert np.array_equal(second[name][()], one[()])
    assert main(["mkdir", f"{linked.folder}/copies", "--endpoint", url]) == 0
    for copy in ("copy.h5", "copies/copy.h5"):
        assert main(["cp", f"{linked.folder}/v.h5", f"{linked.folder}/{copy}", "--endpoint", url]) == 0
        with h5py.File(tmp_path / "v.h5") as file:
            names = [name for name, one in file.items() if one.is_virtual]
            assert layout_of(linked.open(copy), f"/{names[0]}")["class"] == "H5D_VIRTUAL"
            assert domain_differences(file, linked.open(copy)) == []
