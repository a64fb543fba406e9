"""Compressed matrices come as finished chunks, each once; domains exported as groups come back as they were."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from hsparse.cli.main import main
from hsparse.client.connection import Connection
from hsparse.client.http.retrying_client import RetryingClient
from hsparse.client.sparse_dataset import SparseDataset
from hsparse.errors import TooLarge
from hsparse.format.selections.points import Points
from hsparse.format.selections.selection_encoding import encode_offsets
from hsparse.format.structured.region import encode_region
from hsparse.hdf5.format.plan.matrix_encoding import MatrixEncoding
from hsparse.hdf5.importer.matrix_chunks import encode_places, order_of
from tests.cli.importer.conftest import Import, Refused, Stopped, exported, stop_after
from tests.cli.importer.test_sparse_matrix import CELLS, elements_at, elements_of, random_matrix, write_h5ad
from tests.support.endurance import spread

LIMITS = {
    "ELEMENTS_AT_ONCE": 50,
    "MAX_CUT_ELEMENTS": 60,
    "MAX_ROWS_ELEMENTS": 150,
    "MAX_WAITING_BYTES": 12 * 100,
    "MAX_NUMBERED_CHUNKS": 20,
}
"""So small that a matrix is cut into pieces, rows of chunks are cut together, and lines are read for some chunks."""


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in LIMITS.items():
        monkeypatch.setattr(f"hsparse.hdf5.importer.matrix_chunks.{name}", value)


def chunks_of(connection: Connection, path: str = "/X") -> dict[str, bytes]:
    """Return the stored bytes of chunks by their names."""
    id = connection.json("GET", "/datasets/", h5path=path)["id"]
    rows = connection.json("GET", f"/datasets/{id}/chunks")["chunks"]
    names = ["_".join(map(str, row["scaled"])) for row in rows]
    return {name: connection.binary("GET", f"/datasets/{id}/chunks/{name}/value") for name in names}


def sent_chunks(sent: list[str]) -> list[str]:
    return [line.split("/")[-2] for line in sent if line.startswith("PUT") and "/chunks/" in line]


@pytest.mark.parametrize(
    ("kind", "dtype", "indices", "chunk"),
    [
        ("csr", "<f4", "<i4", "16x7"),
        ("csc", "<f4", "<i8", "16x7"),
        ("csc", ">i2", "<i8", "13x40"),
        ("csr", "<f8", ">u2", "60x3"),
        ("csc", "<c8", "<u8", "9x8"),
        ("csr", "?", "i1", "7x11"),
    ],
)
@pytest.mark.usefixtures("small")
def test_each_chunk_is_sent_once_as_the_server_encodes_it(
    imported: Import,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    dtype: str,
    indices: str,
    chunk: str,
) -> None:
    matrix = random_matrix(1, np.dtype(dtype).newbyteorder("="))
    matrix.data[matrix.indptr[20] : matrix.indptr[26]] = 0
    matrix.eliminate_zeros()  # rows without elements
    matrix = matrix.asformat(kind)
    sent = stop_after(10_000, monkeypatch)
    path = write_h5ad(tmp_path / "x.h5ad", matrix, "X", indices, dtype, chunks=(17,), compression="gzip")
    connection = imported(path, "--chunk", chunk)
    assert elements_at(connection, "/X") == elements_of(matrix)
    found = chunks_of(connection)
    assert sorted(sent_chunks(sent)) == sorted(found)
    assert not [line for line in sent if line.startswith("PUT") and "chunks" not in line and "value" in line]
    record = connection.json("GET", "/datasets/", h5path="/X")
    body = {name: record[name] for name in ("type", "shape", "creationProperties")} | {"h5path": "/again"}
    body["shape"] = body["shape"]["dims"]
    id = connection.json("POST", "/datasets", body)["id"]
    places = np.stack(matrix.tocoo().coords, 1).astype(np.uint64)
    region = encode_region(Points(matrix.shape, places), matrix.data.astype(dtype))
    connection.json("PUT", f"/datasets/{id}/value", region, sparse=1)
    assert chunks_of(connection, "/again") == found


@pytest.mark.parametrize("kind", ["csr", "csc"])
@pytest.mark.usefixtures("small")
def test_indices_in_any_order(
    imported: Import, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    matrix = random_matrix(2).asformat(kind)
    for first, last in zip(matrix.indptr, matrix.indptr[1:], strict=False):
        order = np.random.default_rng(first).permutation(last - first) + first
        matrix.indices[first:last], matrix.data[first:last] = matrix.indices[order], matrix.data[order]
    flags = ("--chunk", "16x7", "--progress", "json")
    connection = imported(write_h5ad(tmp_path / "x.h5ad", matrix), *flags)
    assert elements_at(connection, "/X") == elements_of(matrix)
    counts = [json.loads(line).get("elements", 0) for line in capsys.readouterr().out.splitlines()]
    assert max(counts) == matrix.nnz


@pytest.mark.parametrize("kind", ["csr", "csc"])
def test_two_elements_at_a_place_are_refused(refused: Refused, tmp_path: Path, kind: str) -> None:
    matrix = random_matrix(3).asformat(kind)
    line = int(np.flatnonzero(np.diff(matrix.indptr) > 2)[0])
    matrix.indices[matrix.indptr[line] + 2] = matrix.indices[matrix.indptr[line]]
    said = refused(write_h5ad(tmp_path / "x.h5ad", matrix))
    assert "/X: 1 of " in said
    assert "sum_duplicates" in said


@pytest.mark.parametrize("kind", ["csr", "csc"])
def test_a_matrix_without_elements(imported: Import, tmp_path: Path, kind: str) -> None:
    matrix = scipy.sparse.random_array((30, 20), density=0, format=kind)
    connection = imported(write_h5ad(tmp_path / "x.h5ad", matrix))
    assert elements_at(connection, "/X") == {}
    assert SparseDataset.open(connection, "/X").shape == (30, 20)


@pytest.mark.endurance
@pytest.mark.parametrize("ending", ["h5ad", "npz"])
@pytest.mark.parametrize("kind", ["csr", "csc"])
@pytest.mark.parametrize("count", spread(range(4, 24), short=2))
@pytest.mark.usefixtures("small")
def test_an_import_that_was_stopped_sends_the_chunks_that_are_missing(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, count: int, ending: str
) -> None:
    matrix, path = random_matrix(4).asformat(kind), tmp_path / f"x.{ending}"
    if ending == "npz":
        scipy.sparse.save_npz(path, matrix)
    else:
        write_h5ad(path, matrix)
    domain, name = f"/home/admin/chunks-{kind}-{count}-{ending}.h5", "/matrix" if ending == "npz" else "/X"
    command = ["import", str(path), domain, "--endpoint", url, "--chunk", "16x9", "--resume"]
    command += ["--requests", "1"]
    with Connection(url, domain) as connection:
        with monkeypatch.context() as patch:
            sent = stop_after(count, patch)
            with pytest.raises(Stopped):
                main(command)
            first = sent_chunks(sent)
        with monkeypatch.context() as patch:
            sent = stop_after(1000, patch)
            assert main(command) == 0
        assert elements_at(connection, name) == elements_of(matrix)
        assert sorted(first + sent_chunks(sent)) == sorted(chunks_of(connection, name))
        with monkeypatch.context() as patch:
            sent = stop_after(1000, patch)
            assert main(command) == 0
        assert sent_chunks(sent) == []


def test_a_chunk_with_another_number_of_elements_is_sent_again(url: str, tmp_path: Path) -> None:
    """As another version of hsparse may have left it."""
    matrix = random_matrix(5)
    path, domain = write_h5ad(tmp_path / "x.h5ad", matrix), "/home/admin/other-number.h5"
    command = ["import", str(path), domain, "--endpoint", url, "--chunk", "30x20", "--resume"]
    assert main(command) == 0
    with Connection(url, domain) as connection:
        id = connection.json("GET", "/datasets/", h5path="/X")["id"]
        connection.json("DELETE", f"/datasets/{id}/value", select="[0:10,0:10]")
        assert len(elements_at(connection, "/X")) < matrix.nnz
        assert main(command) == 0
        assert elements_at(connection, "/X") == elements_of(matrix)


def test_a_chunk_that_is_too_large_for_a_request_is_sent_in_parts(
    imported: Import, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send: Callable[..., Any] = RetryingClient.json

    def refused(self: RetryingClient, method: str, path: str, body: Any = None, **params: Any) -> Any:
        if method == "PUT" and path.endswith("/value") and len(body) > 500:
            raise TooLarge("The body is too large.")
        return send(self, method, path, body, **params)

    monkeypatch.setattr(RetryingClient, "json", refused)
    matrix = random_matrix(6)
    connection = imported(write_h5ad(tmp_path / "x.h5ad", matrix))
    assert elements_at(connection, "/X") == elements_of(matrix)


@given(st.lists(st.integers(1, 12), min_size=1, max_size=3).map(tuple), st.data())
def test_places_are_encoded_as_the_server_does(dims: tuple[int, ...], data: st.DataObject) -> None:
    volume = int(np.prod(dims))
    if data.draw(st.booleans()):
        taken = np.zeros(dims, np.bool_)
        taken[
            tuple(slice(data.draw(st.integers(0, 3)), None, data.draw(st.integers(1, 4))) for _ in dims)
        ] = 1
    else:
        seed, part = data.draw(st.integers(0, 1000)), data.draw(st.floats(0, 1))
        taken = np.random.default_rng(seed).random(volume) < part
    offsets = np.flatnonzero(taken).astype(np.uint32)
    assert encode_places(offsets, dims) == encode_offsets(offsets, dims)


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(1, 9)), max_size=30), st.integers(1, 12))
def test_elements_are_brought_into_the_order_of_their_chunks(runs: list[tuple[int, int]], most: int) -> None:
    numbers = np.array([number for number, length in runs for _ in range(min(length, most))], np.uint16)
    order, counts = order_of(numbers, 9)
    wanted = np.argsort(numbers, kind="stable")
    assert counts.tolist() == [np.count_nonzero(numbers == number) for number in range(9)]
    assert (np.arange(len(numbers)) if order is None else order).tolist() == wanted.tolist()


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
