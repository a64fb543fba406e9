"""Domains exported with matrices as groups: read by AnnData and Binsparse, and imported again as they were."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import scipy.sparse

from hsparse.cli.main import main
from hsparse.client.connection import Connection
from hsparse.hdf5.format.plan.matrix_encoding import MatrixEncoding
from tests.cli.importer.conftest import Import
from tests.cli.importer.test_sparse_matrix import CELLS, elements_at, elements_of, random_matrix

ENCODINGS = [one.value for one in MatrixEncoding]
BOOLEAN = {
    "class": "H5T_ENUM",
    "base": {"class": "H5T_INTEGER", "base": "H5T_STD_I8LE"},
    "members": [{"name": "FALSE", "value": 0}, {"name": "TRUE", "value": 1}],
}
FORM = {"encoding-type", "encoding-version", "shape", "binsparse"}


@pytest.fixture
def domain(imported: Import, tmp_path: Path) -> Connection:
    """A domain with matrices of several types, one of them with two links, a reference to it and one to a region."""
    with h5py.File(tmp_path / "empty.h5", "w") as file:
        file.create_group("g")
        file["type"] = np.dtype("<f4")
    connection = imported(tmp_path / "empty.h5")
    for name, kind, fill in (
        ("small", {"class": "H5T_INTEGER", "base": "H5T_STD_U8LE"}, 0),
        ("big", {"class": "H5T_INTEGER", "base": "H5T_STD_I16BE"}, -1),
        ("flag", BOOLEAN, 0),
        ("typed", committed(connection), 2.5),
    ):
        record = connection.json(
            "POST",
            "/datasets",
            body={
                "h5path": f"/g/{name}",
                "type": kind,
                "shape": [60, 40],
                "creationProperties": {
                    "layout": {"class": "H5D_STRUCT_CHUNK", "dims": [13, 9], "flags": ["H5D_SPARSE_DATA"]},
                    "fillValue": fill,
                },
            },
        )
        matrix = random_matrix(3).tocoo()
        values = (matrix.data.astype(int) % (2 if kind is BOOLEAN else 50)).tolist()
        body = {"points": np.stack(matrix.coords, 1).tolist(), "value": values}
        connection.json("PUT", f"/datasets/{record['id']}/value", body=body)
    return connection


def committed(connection: Connection) -> str:
    id: str = connection.json("GET", "/datatypes/", h5path="/type")["id"]
    return id


def exported(connection: Connection, path: Path, *flags: str) -> Path:
    arguments = ["export", str(connection.domain), str(path), "--endpoint", connection.url]
    assert main([*arguments, *flags]) == 0
    return path


def described(connection: Connection, path: str) -> dict[str, Any]:
    """Return what there is of a dataset whatever its chunks are."""
    record = connection.json("GET", "/datasets/", h5path=path)
    attributes = connection.json("GET", f"/datasets/{record['id']}/attributes", IncludeData=1)["attributes"]
    return {
        "type": {name: value for name, value in record["type"].items() if name != "id"},
        "committed": "id" in record["type"],
        "shape": record["shape"],
        "fill": record["creationProperties"].get("fillValue", 0),
        "attributes": {one["name"]: one["value"] for one in attributes if one["name"] not in FORM},
    }


@pytest.mark.parametrize("form", ENCODINGS)
def test_they_are_imported_as_they_were(
    imported: Import, domain: Connection, tmp_path: Path, form: str
) -> None:
    paths = [f"/g/{name}" for name in ("small", "big", "flag", "typed")]
    id = domain.json("GET", "/datasets/", h5path=paths[0])["id"]
    root = domain.json("GET", "/")["root"]
    domain.json("PUT", f"/groups/{root}/links/again", body={"id": id})
    text = {"class": "H5T_STRING", "length": 2, "charSet": "H5T_CSET_ASCII", "strPad": "H5T_STR_NULLPAD"}
    domain.json("PUT", f"/datasets/{id}/attributes/unit", body={"type": text, "shape": [], "value": "mm"})
    kind = {"class": "H5T_REFERENCE", "base": "H5T_STD_REF_OBJ"}
    body = {"type": kind, "shape": [], "value": f"datasets/{id}"}
    domain.json("PUT", f"/groups/{root}/attributes/to", body=body)
    region = {"id": id, "select_type": "H5S_SEL_POINTS", "selection": [[1, 2], [30, 4]]}
    kind = {"class": "H5T_REFERENCE", "base": "H5T_STD_REF_DSETREG"}
    body = {"type": kind, "shape": [], "value": region}
    domain.json("PUT", f"/groups/{root}/attributes/region", body=body)
    file = exported(domain, tmp_path / "out.h5", "--matrices", form)
    again = imported(file)
    for path in paths:
        assert elements_at(again, path) == elements_at(domain, path)
        assert described(again, path) == described(domain, path)
    there = again.json("GET", "/datasets/", h5path=paths[0])["id"]
    assert again.json("GET", "/datasets/", h5path="/again")["id"] == there
    root = again.json("GET", "/")["root"]
    assert again.json("GET", f"/groups/{root}/attributes/to")["value"] == f"datasets/{there}"
    found = again.json("GET", f"/groups/{root}/attributes/region")["value"]
    assert {name: found[name] for name in region} == region | {"id": there.removeprefix("d-")}
    assert exported(again, tmp_path / "more.h5", "--matrices", form).stat().st_size


@pytest.mark.parametrize("kind", ["csr", "csc"])
def test_anndata_reads_a_domain(imported: Import, tmp_path: Path, kind: str) -> None:
    anndata = pytest.importorskip("anndata", reason="anndata is not installed")
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    matrix = random_matrix(5, "<f4")
    names = [f"cell {number}" for number in range(60)]
    cells = anndata.AnnData(
        matrix.asformat(kind),
        obs=pandas.DataFrame({"batch": pandas.Categorical(["a", "b"] * 30)}, index=names),
        var=pandas.DataFrame({"length": np.arange(40.0)}, index=[f"gene {number}" for number in range(40)]),
        layers={"counts": random_matrix(6, "<i8")},
        uns={"about": "a test"},
    )
    cells.write_h5ad(tmp_path / "in.h5ad")
    file = exported(imported(tmp_path / "in.h5ad"), tmp_path / "out.h5ad", "--matrices", f"anndata-{kind}")
    found = anndata.read_h5ad(file)
    for one, other in ((found.X, cells.X), (found.layers["counts"], cells.layers["counts"])):
        assert scipy.sparse.issparse(one)
        assert one.format == kind
        assert one.dtype == other.dtype
        assert elements_of(one) == elements_of(other)
    pandas.testing.assert_frame_equal(found.obs, cells.obs)
    pandas.testing.assert_frame_equal(found.var, cells.var)
    assert found.uns["about"] == "a test"
    backed = anndata.read_h5ad(file, backed="r")
    assert np.array_equal(backed.X[3:9].toarray(), cells.X[3:9].toarray())
    backed.file.close()


@pytest.mark.parametrize("form", ENCODINGS[2:])
def test_binsparse_reads_them(domain: Connection, tmp_path: Path, form: str) -> None:
    binsparse = pytest.importorskip("binsparse", reason="binsparse is not installed")
    container = pytest.importorskip("binsparse.container", reason="binsparse is not installed")
    file = exported(domain, tmp_path / "out.h5", "--matrices", form)
    with h5py.File(file) as opened:
        for name in ("small", "big", "flag", "typed"):
            tensor = binsparse.BinsparseTensor.parse(container.HDF5BinsparseContainer(opened["g"][name]))
            expected = elements_at(domain, f"/g/{name}")
            assert tensor.shape == (60, 40)
            assert tensor.number_of_stored_values == len(expected)
            assert tensor.fill_value == {"big": -1, "typed": 2.5}.get(name)
            lines = (
                tensor.indices_0
                if form.endswith("coo")
                else np.repeat(np.arange(len(tensor.pointers_to_1) - 1), np.diff(tensor.pointers_to_1))
            )
            pair = (tensor.indices_1, lines) if form.endswith("csc") else (lines, tensor.indices_1)
            places = zip(*(one.tolist() for one in pair), strict=True)
            assert dict(zip(places, tensor.values.tolist(), strict=True)) == expected


def test_a_fill_value_of_another_type(imported: Import, tmp_path: Path) -> None:
    matrix = random_matrix(2, "<i4").tocoo()
    about = {
        "version": "0.1",
        "format": "COO",
        "shape": list(matrix.shape),
        "number_of_stored_values": matrix.nnz,
        "fill": True,
        "data_types": {"values": "int32", "fill_value": "float64"},
    }
    with h5py.File(tmp_path / "bin.h5", "w") as file:
        group = file.create_group("m")
        group.attrs["binsparse"] = json.dumps({"binsparse": about})
        group["values"], (group["indices_0"], group["indices_1"]) = matrix.data, matrix.coords
        group["fill_value"] = [0.5]
    imported(tmp_path / "bin.h5", status=2)


def test_an_old_file_of_anndata_comes_out_in_the_form_of_today(imported: Import, tmp_path: Path) -> None:
    file = exported(imported(CELLS), tmp_path / "cells.h5", "--matrices", "anndata-csr")
    with h5py.File(CELLS) as old, h5py.File(file) as new:
        for path in ("/raw.X", "/uns/neighbors/connectivities"):
            matrices = []
            for group, shape in ((old[path], "h5sparse_shape"), (new[path], "shape")):
                parts = (group["data"][()], group["indices"][()], group["indptr"][()])
                matrices.append(scipy.sparse.csr_array(parts, tuple(group.attrs[shape])))
            assert elements_of(matrices[0]) == elements_of(matrices[1])
            assert matrices[1].has_sorted_indices
            assert new[path].attrs["encoding-type"] == "csr_matrix"


@pytest.mark.filterwarnings("ignore::Warning")  # AnnData warns of files of its older versions
def test_an_anndata_file_comes_out_as_it_went_in(imported: Import, tmp_path: Path, url: str) -> None:
    """Without flags: the same content, in about as many bytes."""
    anndata = pytest.importorskip("anndata", reason="anndata is not installed")
    connection = imported(CELLS)
    file = exported(connection, tmp_path / "cells.h5ad")
    found, cells = anndata.read_h5ad(file), anndata.read_h5ad(CELLS)
    for name in ("X", "obs", "var", "obsm", "varm", "obsp", "uns"):
        assert_alike(getattr(found, name), getattr(cells, name), name)
    assert_alike(found.raw.X, cells.raw.X, "raw.X")
    assert_alike(found.raw.var, cells.raw.var, "raw.var")
    assert file.stat().st_size < CELLS.stat().st_size
    with connection.response("GET", f"/files{connection.domain}") as response:
        assert response.read() == file.read_bytes()


def assert_alike(found: Any, expected: Any, path: str) -> None:
    """Compare what AnnData reads: frames, arrays, matrices, and dictionaries of these."""
    if isinstance(expected, Mapping):
        assert set(found) == set(expected), path
        for name, value in expected.items():
            assert_alike(found[name], value, f"{path}/{name}")
    elif scipy.sparse.issparse(expected):
        assert (type(found), found.dtype) == (type(expected), expected.dtype), path
        assert (found.nnz, (found != expected).nnz) == (expected.nnz, 0), path
    elif hasattr(expected, "equals"):
        assert found.equals(expected), path
    else:
        assert np.asarray(found).dtype == np.asarray(expected).dtype, path
        np.testing.assert_array_equal(found, expected, err_msg=path)


def test_matrices_of_both_kinds_keep_theirs(imported: Import, tmp_path: Path) -> None:
    anndata = pytest.importorskip("anndata", reason="anndata is not installed")
    cells = anndata.AnnData(random_matrix(4, "<f4").tocsr())
    cells.layers["by column"] = random_matrix(5, "<f4").tocsc()
    cells.write_h5ad(tmp_path / "in.h5ad", compression="gzip")
    found = anndata.read_h5ad(exported(imported(tmp_path / "in.h5ad"), tmp_path / "out.h5ad"))
    assert found.X.format == "csr"
    assert found.layers["by column"].format == "csc"
    assert (found.X != cells.X).nnz == (found.layers["by column"] != cells.layers["by column"]).nnz == 0
