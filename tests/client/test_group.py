"""Groups, links, attributes and dense datasets through `hsparse.open`, beside h5py's own values."""

from __future__ import annotations

import numpy as np
import pytest

import hsparse
from hsparse.client.connection import Connection
from hsparse.client.file import File


@pytest.fixture
def file(connection: Connection) -> File:
    found = hsparse.open(f"{connection.url}{connection.domain}")
    assert isinstance(found, File)
    return found


def test_paths_lead_to_objects(file: File) -> None:
    file.create_group("a/b").create_dataset("x", data=np.arange(6).reshape(2, 3))
    assert list(file) == ["a"]
    assert "a/b/x" in file
    assert "a/none" not in file
    assert file["a"]["b"]["x"].name == "/a/b/x"  # type: ignore[index,union-attr]
    assert file["a/b"]["/a/b/x"][1].tolist() == [3, 4, 5]  # type: ignore[index]
    with pytest.raises(KeyError, match="/a/c"):
        file["a/c"]


def test_links(file: File) -> None:
    x = file.create_dataset("x", data=[1, 2])
    file["same"] = x
    file["soft"] = hsparse.SoftLink("/x")
    file["away"] = hsparse.ExternalLink("/other.h5", "/y")
    file["array"] = np.array(["é", "b"])
    assert sorted(file) == ["array", "away", "same", "soft", "x"]
    assert file["same"].id == file["soft"].id == x.id
    assert file["array"][...].tolist() == ["é", "b"]  # type: ignore[index]
    with pytest.raises(FileExistsError):
        file.create_group("x")
    with pytest.raises(FileExistsError):
        file["same"] = hsparse.SoftLink("/y")
    del file["same"]
    assert "same" not in file
    with pytest.raises(KeyError):
        del file["same"]


@pytest.mark.parametrize(
    "value",
    [
        7,
        2.5,
        "text é",
        True,
        np.uint8(3),
        np.array([1.5, np.nan]),
        ["a", "bc"],
        np.array([[True, False]]),
        np.array([(1, 2.5)], [("i", "i4"), ("f", "f8")]),
        np.zeros((0, 3), np.int16),
        None,
        b"bytes",
    ],
    ids=repr,
)
def test_attributes_come_back(file: File, value: object) -> None:
    file.attrs["a/b"] = value
    found = hsparse.open(f"{file.connection.url}{file.filename}").attrs["a/b"]  # type: ignore[union-attr]
    if value is None:
        assert found is None
        return
    expected = np.asarray(value)
    if expected.dtype.kind == "S":
        expected = expected.astype("U")
    np.testing.assert_array_equal(np.asarray(found).astype(expected.dtype), expected)
    assert np.shape(found) == expected.shape


def test_attributes_change(file: File) -> None:
    file.attrs.update({"one": 1, "two": "zwei"})
    file.attrs["one"] = "eins"
    assert dict(file.attrs) == {"one": "eins", "two": "zwei"}
    del file.attrs["one"]
    assert list(file.attrs) == ["two"]
    with pytest.raises(KeyError, match="one"):
        del file.attrs["one"]
    with pytest.raises(KeyError, match="two"):
        file.attrs["one"]


def test_the_records_of_a_tree_come_by_paths(file: File) -> None:
    group = file.create_group("a")
    group.create_dataset("x", data=[1])
    group["loop"] = group
    assert sorted(file.records()) == ["a", "a/loop", "a/x"]
    assert sorted(group.records()) == ["loop", "x"]


def test_sparse_datasets_have_a_class_of_their_own(file: File) -> None:
    made = file.create_sparse("m", (4, 5), "f4", (2, 5), attributes={"unit": "K"})
    made.write([[1, 2]], [0.5])
    found = file["m"]
    assert isinstance(found, hsparse.SparseDataset)
    assert found.attrs["unit"] == "K"
    assert found.chunks == (2, 5)
    assert found.count() == 1
    with pytest.raises(FileExistsError):
        file.create_sparse("m", (4, 5), "f4", (2, 5))
