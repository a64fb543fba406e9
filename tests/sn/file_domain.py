"""A domain with a dataset of every kind that a file has to have, and what its elements are."""

from __future__ import annotations

import io
from typing import Any

import h5py
import numpy as np

from tests.sn.value_client import sparse
from tests.support.rest_client import RestClient

INT = "H5T_STD_I32LE"
TEXT = {
    "class": "H5T_STRING",
    "charSet": "H5T_CSET_UTF8",
    "strPad": "H5T_STR_NULLTERM",
    "length": "H5T_VARIABLE",
}
POINT = {
    "class": "H5T_COMPOUND",
    "fields": [{"name": "x", "type": "H5T_IEEE_F32LE"}, {"name": "n", "type": "H5T_STD_I16BE"}],
}
REFERENCE = {"class": "H5T_REFERENCE", "base": "H5T_STD_REF_OBJ"}
WORDS = ["", "one", "größe", "x" * 500, "two"] * 8
GZIP = [{"id": 2}, {"id": 1, "level": 4}]


def dataset(kind: Any, shape: Any, value: Any = None, **given: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return what `place` is given of a dataset."""
    return (kind, shape, value), given


CHUNKED = {"class": "H5D_CHUNKED", "dims": [16, 16]}
ROWS = {"class": "H5D_CHUNKED", "dims": [16]}
GRID = np.arange(1200).reshape(40, 30)
DATASETS = {
    "/g/chunked": dataset(INT, [40, 30], GRID.tolist(), layout=CHUNKED | {"stripes": 3}, filters=GZIP, maxdims=[0, 90]),
    "/g/part": dataset(INT, [400, 30], 7, select="[300:310,3]", layout=CHUNKED, fillValue=-1),
    "/whole": dataset("H5T_IEEE_F64BE", [6], [1, 2, 3, 4, 5, 0.5]),
    "/scalar": dataset(INT, [], 42),
    "/never": dataset(INT, [3], fillValue=9),
    "/null": dataset(INT, "H5S_NULL"),
    "/points": dataset(POINT, [2], [[0.5, -3], [1.5, 4]]),
    "/words": dataset(TEXT, [40], WORDS, layout=ROWS),
    "/sparse": dataset(
        INT, [40, 30], 8, select="[3:20,5]", layout=sparse(16, 8) | {"stripes": 2}, filters=GZIP, fillValue=-2,
        maxdims=[0, 30],
    ),
    "/sparse points": dataset(POINT, [100], [[0.5, -3]], select="[50:51]", layout=sparse(100)),
    "/sparse words": dataset(
        TEXT, [50, 50], [["", "zwei"]], select="[9:10,9:11]", layout=sparse(10, 10), fillValue="none", maxdims=[0, 0]
    ),
    "/structured words": dataset(
        TEXT, [40], WORDS, layout={"class": "H5D_STRUCT_CHUNK", "dims": [16], "flags": ["H5D_VL_DATA"]}
    ),
    "/initial": dataset(
        INT, [40], 0, select="[5:7]", layout=ROWS, filters=GZIP, initializer=["arange", "--start=1", "--step=2"]
    ),
    "/sparse nothing": dataset(INT, [9], layout=sparse(4)),
}  # fmt: skip


async def place(
    client: RestClient, h5path: str, kind: Any, shape: Any, value: Any = None, **given: Any
) -> str:
    """Create a dataset at a path and write `value` (`select` says where); return its id."""
    select, maxdims = given.pop("select", None), given.pop("maxdims", None)
    body = {"type": kind, "shape": shape, "h5path": h5path, "creationProperties": given}
    body |= {} if maxdims is None else {"maxdims": maxdims}
    made = await client("POST", "/datasets", body, implicit=1)
    assert made.status == 201, made.body
    if value is not None:
        where = {"select": select} if select else {}
        wrote = await client("PUT", f"/datasets/{made['id']}/value", {**where, "value": value})
        assert wrote.status == 200, wrote.body
    id: str = made["id"]
    return id


async def fill_domain(client: RestClient) -> dict[str, str]:
    """Fill the client's domain; return the ids of its datasets by path."""
    ids = {path: await place(client, path, *args, **given) for path, (args, given) in DATASETS.items()}
    target = f"datasets/{ids['/whole']}"
    ids["/references"] = await place(client, "/references", REFERENCE, [3], [target, "", target])
    root = (await client("GET", "/"))["root"]
    for title, link in (
        ("soft", {"h5path": "/g/chunked"}),
        ("external", {"h5path": "/x", "h5domain": "/home/other.h5"}),
        ("again", {"id": ids["/sparse"]}),
        ("again.defined", {"h5path": "/whole"}),
    ):
        assert (await client("PUT", f"/groups/{root}/links/{title}", link)).status == 201
    attributes = {
        "text": {"type": TEXT, "shape": [2], "value": ["a", "ß"]},
        "to": {"type": REFERENCE, "shape": [], "value": target},
        "none": {"type": INT, "shape": "H5S_NULL"},
    }
    made = await client("PUT", f"/groups/{root}/attributes", {"attributes": attributes})
    assert made.status == 201, made.body
    return ids


async def fetch(client: RestClient, **options: Any) -> bytes:
    """Return the domain's file."""
    reply = await client("GET", f"/files{client.domain}", domain=None, **options)
    assert reply.status == 200, reply.body
    body: bytes = reply.body
    return body


def check_file(data: bytes, *, structured: bool = False) -> None:
    """Compare a file of the domain with what was written."""
    with h5py.File(io.BytesIO(data)) as file:
        assert (file["g/chunked"][()] == np.arange(1200).reshape(40, 30)).all()
        assert file["g/chunked"].maxshape == (None, 90)
        assert file["g/chunked"].compression == "gzip"
        part = np.full((400, 30), -1)
        part[300:310, 3] = 7
        assert (file["g/part"][()] == part).all()
        assert file["whole"][()].tolist() == [1, 2, 3, 4, 5, 0.5]
        assert file["whole"].chunks is None
        assert file["scalar"][()] == 42
        assert file["never"][()].tolist() == [9] * 3
        assert file["null"].shape is None
        initial = np.arange(1, 81, 2)
        initial[5:7] = 0
        assert (file["initial"][()] == initial).all()
        assert file["points"][()].tolist() == [(0.5, -3), (1.5, 4)]
        for name in ("words", "structured words"):
            assert file[name].asstr()[()].tolist() == WORDS
        assert [bool(one) and file[one].name for one in file["references"][()]] == ["/whole", False, "/whole"]
        assert file.get("external", getlink=True).filename == "/home/other.h5"
        assert file["soft"] == file["g/chunked"]
        assert file.attrs["text"].tolist() == ["a", "ß"]
        assert file[file.attrs["to"]].name == "/whole"
        assert file.attrs["none"] == h5py.Empty("<i4")
        names = ["sparse", "sparse points", "sparse words", "sparse nothing"]
        if structured:
            for name in names:
                assert name in file
                try:
                    file[name]
                except KeyError:
                    continue
                raise AssertionError(f"{name} was opened")
            return
        _check_sparse(file)


def _check_sparse(file: h5py.File) -> None:
    values, defined = np.full((40, 30), -2), np.zeros((40, 30), bool)
    values[3:20, 5], defined[3:20, 5] = 8, True
    assert (file["sparse"][()] == values).all()
    assert (file["again"][()] == values).all()
    assert (_defined(file["sparse"]) == defined).all()
    assert file["sparse"].chunks == (16, 8)
    assert file["sparse"].id.get_num_chunks() == 2
    assert file.get("again.defined", getlink=True).path == "/whole"
    points = np.zeros(100, bool)
    points[50] = True
    assert file["sparse points"][50].tolist() == (0.5, -3)
    assert (_defined(file["sparse points"]) == points).all()
    words, there = np.full((50, 50), "none", object), np.zeros((50, 50), bool)
    words[9, 9:11], there[9, 9:11] = ["", "zwei"], True
    assert (file["sparse words"].asstr()[()] == words).all()
    assert (_defined(file["sparse words"]) == there).all()
    assert not _defined(file["sparse nothing"]).any()


def _defined(dataset: h5py.Dataset) -> np.ndarray:
    """Return what is defined, by the reference in the dataset's attribute."""
    found: np.ndarray = dataset.file[dataset.attrs["DEFINED_SET"]][()]
    assert found.dtype == bool
    return found
