"""Groups, links, attributes and dense datasets through `hsparse.open`, beside h5py's own values."""

from __future__ import annotations

import base64
import io
from typing import Any

import h5py
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


RECORD = np.dtype([("name", "S4"), ("place", "f8", (2,)), ("wave", "c8")])
GAPS = np.dtype([("n", "u1"), ("x", "f8")], align=True)


@pytest.mark.parametrize(
    "value",
    [
        b"raw\xff",
        [b"raw\xff", b"a"],
        np.bytes_(b"\xb0C"),
        np.array([[b"\xb0C", b"K"]]),
        np.array([(b"\xb0C\xff", [1, 2], 1j)], RECORD),
        np.array((b"K", [1, 2], 1 + 2j), RECORD)[()],
        np.array([(b"\xb0", ([b"\xff", b"b"],))], [("a", "S2"), ("b", [("c", "S1", (2,))])]),
        np.array([(1, 2.5)], GAPS),
        np.complex64(1 + 2j),
        np.array([1j, np.nan], ">c16"),
        np.void(b"a\0\xff"),
    ],
    ids=repr,
)
def test_attributes_are_those_of_h5py(file: File, value: Any) -> None:
    file.attrs["a"] = value
    file.attrs.refresh()
    found = file.attrs["a"]
    with h5py.File(io.BytesIO(), "w") as reference:
        reference.attrs["a"] = value
        expected = reference.attrs["a"]
    assert np.asarray(found).dtype == np.asarray(expected).dtype
    np.testing.assert_array_equal(found, expected)


ASCII = {"class": "H5T_STRING", "charSet": "H5T_CSET_ASCII", "strPad": "H5T_STR_NULLPAD", "length": 2}
VLEN = ASCII | {"length": "H5T_VARIABLE"}


@pytest.mark.parametrize(
    ("kind", "shape", "data", "expected"),
    [
        (ASCII, [], b"\xb0C", b"\xb0C"),
        (ASCII, [2], b"\xb0CK\0", [b"\xb0C", b"K"]),
        (VLEN, [], b"\2\0\0\0\xb0C", "\udcb0C"),
        (
            {"class": "H5T_COMPOUND", "fields": [{"name": "u", "type": VLEN}, {"name": "v", "type": ASCII}]},
            [1],
            b"\1\0\0\0\xb0\xb0C",
            [("\udcb0", b"\xb0C")],
        ),
        ({"class": "H5T_VLEN", "base": ASCII}, [1], b"\4\0\0\0\xb0CK\0", [[b"\xb0C", b"K"]]),
        ({"class": "H5T_ARRAY", "dims": [2], "base": ASCII}, [1], b"\xb0CK\0", [[b"\xb0C", b"K"]]),
        ({"class": "H5T_ARRAY", "dims": [2], "base": VLEN}, [], b"\1\0\0\0\xb0\1\0\0\0K", ["\udcb0", "K"]),
        (
            {"class": "H5T_ARRAY", "dims": [3], "base": "H5T_STD_U8LE"},
            [2],
            b"\1\2\3\4\5\6",
            [[1, 2, 3], [4, 5, 6]],
        ),
        (
            {"class": "H5T_VLEN", "base": {"class": "H5T_VLEN", "base": "H5T_STD_U8LE"}},
            [1],
            b"\5\0\0\0\1\0\0\0\7",
            [[[7]]],
        ),
    ],
)
def test_any_attribute_of_a_server_is_read(
    file: File, kind: Any, shape: list[int], data: bytes, expected: Any
) -> None:
    body = {"type": kind, "shape": shape, "value": base64.b64encode(data).decode(), "encoding": "base64"}
    file.connection.json("PUT", f"/groups/{file.id}/attributes/a", body)
    found = dict(file.attrs)["a"]
    while isinstance(found, np.ndarray) and (found.dtype != object or found.shape):
        found = found.tolist()
    assert _lists(found) == expected


def _lists(value: Any) -> Any:
    """Return arrays in lists as lists."""
    if isinstance(value, list | np.ndarray):
        return [_lists(one) for one in value]
    return value.item() if isinstance(value, np.generic) else value


def test_region_references_and_unset_attributes_do_not_hide_others(file: File) -> None:
    target = file.create_dataset("x", data=[1, 2, 3])
    region = {"class": "H5T_REFERENCE", "base": "H5T_STD_REF_DSETREG"}
    selected = {"id": target.id[2:], "select_type": "H5S_SEL_POINTS", "selection": [[1]]}
    bodies = {
        "one": {"type": region, "value": selected},
        "some": {"type": region, "shape": [2], "value": [selected, None]},
        "unset": {"type": "H5T_STD_I8LE", "shape": [2]},
    }
    file.connection.json("PUT", f"/groups/{file.id}/attributes", {"attributes": bodies})
    found = dict(file.attrs)
    assert found["one"]["selection"] == [[1]]
    assert [one and one["selection"] for one in found["some"]] == [[[1]], None]
    assert found["unset"].tolist() == [0, 0]


@pytest.mark.parametrize("name", ["x" * 1025, "é" * 32_767])
def test_names_of_attributes_are_as_long_as_those_of_hdf5(file: File, name: str) -> None:
    file.attrs[name] = 7
    file.attrs.refresh()
    assert dict(file.attrs) == {name: 7}
    with pytest.raises(ValueError, match="65534 bytes of UTF-8"):
        file.attrs["x" * 65_535] = 7


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
