"""Sparse datasets exported as ordinary chunks with a defined set, and imported again as they were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from hsparse.client.connection import Connection
from tests.cli.importer.conftest import Import, exported
from tests.cli.importer.domain_picture import Picture, differences, picture_of

U2 = {"class": "H5T_INTEGER", "base": "H5T_STD_U16LE"}
F8 = {"class": "H5T_FLOAT", "base": "H5T_IEEE_F64BE"}
PAIR = {"class": "H5T_COMPOUND", "fields": [{"name": "a", "type": F8}, {"name": "b", "type": U2}]}
TEXT = {
    "class": "H5T_STRING",
    "length": "H5T_VARIABLE",
    "charSet": "H5T_CSET_UTF8",
    "strPad": "H5T_STR_NULLPAD",
}
ARRAY = {"class": "H5T_ARRAY", "base": U2, "dims": [2]}
SEQUENCE = {"class": "H5T_VLEN", "base": U2}
REFERENCE = {"class": "H5T_REFERENCE", "base": "H5T_STD_REF_OBJ"}
CASES: dict[str, tuple[Any, Any, list[int], list[int], list[Any]]] = {
    "numbers": (U2, None, [40, 30], [16, 8], [1, 7, 0]),
    "fill": (U2, 9, [40, 30], [16, 8], [9, 7, 0]),
    "floats": (F8, -2.5, [100], [16], [0.0, -2.5, 1e300]),
    "rank 3": (U2, None, [7, 9, 11], [4, 4, 4], [0, 5, 65535]),
    "compounds": (PAIR, [0.5, 3], [50, 8], [20, 8], [[0.5, 3], [0.0, 0], [7.25, 1]]),
    "arrays": (ARRAY, None, [50, 8], [20, 8], [[0, 0], [0, 1], [7, 1]]),
    "text": (TEXT, None, [50, 8], [20, 8], ["", "zwei", "three"]),
    "filled text": (TEXT, "none", [50, 8], [20, 8], ["", "none", "three"]),
    "sequences": (SEQUENCE, None, [50], [20], [[], [1], [1, 2, 3]]),
    "references": (REFERENCE, None, [50, 8], [20, 8], ["", "ROOT", "ROOT"]),
    "nothing": (U2, 4, [40, 30], [16, 8], []),
    "no extent": (U2, 4, [0, 30], [16, 8], []),
}


@pytest.fixture
def domain(imported: Import, tmp_path: Path) -> Connection:
    with h5py.File(tmp_path / "empty.h5", "w") as file:
        file.create_group("g")
    return imported(tmp_path / "empty.h5")


def create(
    domain: Connection, path: str, kind: Any, fill: Any, shape: list[int], dims: list[int], values: list[Any]
) -> str:
    """Create a sparse dataset with these values, in different chunks where there are some."""
    layout = {"class": "H5D_STRUCT_CHUNK", "dims": dims, "flags": ["H5D_SPARSE_DATA"]}
    if kind in (TEXT, SEQUENCE):
        layout["flags"] = ["H5D_SPARSE_DATA", "H5D_VL_DATA"]
    properties: dict[str, Any] = {"layout": layout} | ({} if fill is None else {"fillValue": fill})
    space = {"shape": shape, "maxdims": [0, *shape[1:]]} if not shape[0] else {"shape": shape}
    body = {"h5path": path, "type": kind, "creationProperties": properties, **space}
    id: str = domain.json("POST", "/datasets", body)["id"]
    root = domain.json("GET", "/")["root"]
    places = [[(number * length) // 3 for length in shape] for number in range(len(values))]
    there = [f"groups/{root}" if value == "ROOT" else value for value in values]
    if there:
        domain.json("PUT", f"/datasets/{id}/value", {"points": places, "value": there})
    return id


def same(one: Picture, other: Picture) -> bool:
    found = differences(one, other)
    print(*found, sep="\n")
    return not found


@pytest.mark.parametrize("case", CASES)
def test_it_is_imported_as_it_was(imported: Import, domain: Connection, tmp_path: Path, case: str) -> None:
    create(domain, "/g/one", *CASES[case])
    before = picture_of(domain)
    file = exported(domain, tmp_path / "out.h5")
    assert "one.defined" in h5py.File(file)["g"]
    again = imported(file)
    assert same(before, picture_of(again))
    assert before["/g/one"]["defined"] is not None
    assert len(before["/g/one"]["defined"]) == len(CASES[case][-1])
    assert same(before, picture_of(imported(exported(again, tmp_path / "more.h5"))))


def test_names_may_be_taken(imported: Import, domain: Connection, tmp_path: Path) -> None:
    id = create(domain, "/g/one", *CASES["fill"])
    create(domain, "/g/one.defined", *CASES["numbers"])
    domain.json("PUT", f"/datasets/{id}/attributes/DEFINED_SET", {"type": U2, "shape": [], "value": 5})
    before = picture_of(domain)
    file = exported(domain, tmp_path / "out.h5")
    assert "DEFINED_SET_" in h5py.File(file)["g/one"].attrs
    assert same(before, picture_of(imported(file)))


def test_as_is_leaves_both_datasets(imported: Import, domain: Connection, tmp_path: Path) -> None:
    create(domain, "/g/one", *CASES["fill"])
    found = picture_of(imported(exported(domain, tmp_path / "out.h5"), "--as-is"))
    assert found["/g/one"]["layout"]["class"] == "H5D_CHUNKED"
    assert "attribute DEFINED_SET" in found["/g/one"]
    assert np.sum(found["/g/one.defined"]["value"]) == 3


@pytest.mark.parametrize(("value", "case"), [(8, "fill"), ("new", "text"), ("new", "filled text")])
def test_what_others_wrote_to_the_file_is_defined(
    imported: Import, domain: Connection, tmp_path: Path, value: Any, case: str
) -> None:
    create(domain, "/g/one", *CASES[case])
    before = picture_of(domain)["/g/one"]["defined"]
    file = exported(domain, tmp_path / "out.h5")
    with h5py.File(file, "a") as edited:
        edited["g/one"][2, 3] = edited["g/one"][45 if case != "fill" else 39, 7] = value
    found = picture_of(imported(file))["/g/one"]
    places = [[2, 3], [45 if case != "fill" else 39, 7]]
    assert found["defined"] == sorted(before + places)
    assert [found["value"][row][column] for row, column in places] == [value, value]


@pytest.mark.parametrize("what", ["number", "extent", "chunks", "type", "attributes"])
def test_an_attribute_of_that_name_may_be_of_others(imported: Import, tmp_path: Path, what: str) -> None:
    with h5py.File(tmp_path / "in.h5", "w") as file:
        file.create_dataset("one", (8, 6), "u2", chunks=(4, 3), data=np.ones((8, 6)))
        shape, chunks = (8, 7) if what == "extent" else (8, 6), (2, 2) if what == "chunks" else (4, 3)
        file.create_dataset("other", shape, "i1" if what == "type" else bool, chunks=chunks)
        file["one"].attrs["DEFINED_SET"] = 3 if what == "number" else file["other"].ref
        if what == "attributes":
            file["other"].attrs["unit"] = "m"
    found = picture_of(imported(tmp_path / "in.h5"))
    assert found["/one"]["layout"]["class"] == "H5D_CHUNKED"
    assert {"/one", "/other"} <= found.keys()
    assert "attribute DEFINED_SET" in found["/one"]
