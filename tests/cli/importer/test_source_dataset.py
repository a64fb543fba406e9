"""Objects found by their paths: through groups, soft links and external links, and what stops the search."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import h5py
import pytest

from hsparse.errors import Corrupt, Forbidden
from hsparse.hdf5.format.parse.parsed_object import ObjectKind
from hsparse.hdf5.importer.source import LocalSource
from hsparse.hdf5.importer.source_dataset import MAX_DEPTH, FoundObject, SourceFile, find_object
from hsparse.hdf5.importer.source_files import SourceFiles


class Finder:
    def __init__(self, path: Path) -> None:
        self.files = SourceFiles(str(path), lambda location: LocalSource(Path(location)))
        self.source = LocalSource(path)
        self.file = SourceFile.of(self.source, self.files)

    def __call__(self, path: str) -> FoundObject | None:
        return find_object(self.source, self.file.file, self.files, path)


@pytest.fixture
def find(tmp_path: Path) -> Iterator[Finder]:
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["deep/x"] = [1, 2, 3]
    with h5py.File(tmp_path / "f.h5", "w") as file:
        file["g/h/x"] = [1, 2]
        file["g/loop"] = file["g"]
        file["g/relative"] = h5py.SoftLink("h/x")
        file["absolute"] = h5py.SoftLink("/g/h")
        file["dangling"] = h5py.SoftLink("/g/none")
        file["a"], file["b"] = h5py.SoftLink("b"), h5py.SoftLink("a")
        file["away"] = h5py.ExternalLink("other.h5", "deep")
        file["gone"] = h5py.ExternalLink("none.h5", "x")
        file["out"] = h5py.ExternalLink("/etc/hostname", "x")
    finder = Finder(tmp_path / "f.h5")
    yield finder
    finder.source.close()
    finder.files.close()


@pytest.mark.parametrize(
    "path",
    ["/g/h/x", "g/h/x", "./g//h/./x", "g/loop/loop/h/x", "g/relative", "absolute/x", "g/loop/relative"],
)
def test_paths_in_the_file(find: Finder, path: str) -> None:
    found = find(path)
    assert found is not None
    assert found.source is find.source
    assert found.object.kind == ObjectKind.DATASET


def test_paths_to_another_file(find: Finder, tmp_path: Path) -> None:
    found = find("away/x")
    assert found is not None
    assert found.source.name == str(tmp_path / "other.h5")
    assert found.object.dataset is not None
    assert found.object.dataset.shape["dims"] == [3]
    assert find.file.find(found.object.header.address) is None


@pytest.mark.parametrize("path", ["none", "g/none/x", "dangling", "gone", "away/none", "g/h/x/y"])
def test_what_is_not_there(find: Finder, path: str) -> None:
    assert find(path) is None


def test_the_root_group(find: Finder) -> None:
    found = find("/")
    assert found is not None
    assert found.object.kind == ObjectKind.GROUP


def test_what_is_refused(find: Finder) -> None:
    with pytest.raises(Corrupt, match="More than 16 links"):
        find("a")
    with pytest.raises(Corrupt, match="limit is 1000"):
        find("/".join(["x"] * (MAX_DEPTH + 1)))
    with pytest.raises(Forbidden, match="hostname"):
        find("out")
