"""Sparse matrices of every form, imported and compared with what scipy reads."""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import scipy.io
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from hsparse.client.connection import Connection
from hsparse.client.http.retrying_client import RetryingClient
from hsparse.client.sparse_dataset import SparseDataset
from hsparse.hdf5.importer.command import add_arguments
from hsparse.hdf5.importer.sparse_matrix import row_of
from tests.cli.importer.conftest import Import, Refused
from tests.cli.importer.domain_picture import assert_is_file, domain_differences

CELLS = Path(__file__).parents[3] / "demo" / "data" / "pbmc68k_reduced.h5ad"
KINDS = ("coo", "csr", "csc", "bsr", "dia")


def random_matrix(seed: int, dtype: Any = "<f8", shape: tuple[int, int] = (60, 40)) -> Any:
    rng = np.random.default_rng(seed)
    found = scipy.sparse.random_array(shape, density=0.1, rng=rng, dtype="<f8", format="csr")
    found.data = (found.data * 100).astype(dtype)
    return found


def elements_at(connection: Connection, path: str) -> dict[tuple[int, ...], Any]:
    """Return the defined elements by their coordinates."""
    record = connection.json("GET", "/datasets/", h5path=path)
    if record["type"]["class"] == "H5T_COMPOUND":
        answer = connection.json("GET", f"/datasets/{record['id']}/value", sparse=1)
        places = answer["selection"]["coordinates"]
        return {tuple(place): complex(*value) for place, value in zip(places, answer["value"], strict=True)}
    coords, values = SparseDataset(connection, record).read()
    return dict(zip(map(tuple, coords.tolist()), values.tolist(), strict=True))


def elements_of(matrix: Any) -> dict[tuple[int, ...], Any]:
    found = matrix.tocoo()
    places = np.stack(found.coords, axis=1).tolist()
    return dict(zip(map(tuple, places), found.data.tolist(), strict=True))


def write_h5ad(
    path: Path, matrix: Any, name: str = "X", indices: str = "<i4", values: str | None = None, **options: Any
) -> Path:
    """Write a compressed matrix as AnnData does."""
    with h5py.File(path, "w") as file:
        group = file.create_group(name)
        group.attrs["encoding-type"], group.attrs["shape"] = f"{matrix.format}_matrix", matrix.shape
        for part, data in (
            ("data", matrix.data.astype(values or matrix.dtype)),
            ("indices", matrix.indices.astype(indices)),
            ("indptr", matrix.indptr),
        ):
            group.create_dataset(part, data=data, **(options if len(data) else {}))
    return path


# --- AnnData and Binsparse ------------------------------------------------------------------------


def test_an_anndata_file(imported: Import) -> None:
    connection = imported(CELLS)
    with h5py.File(CELLS) as file:
        for path in ("/raw.X", "/uns/neighbors/connectivities", "/uns/neighbors/distances"):
            group = file[path]
            parts = (group["data"][...], group["indices"][...], group["indptr"][...])
            matrix = scipy.sparse.csr_array(parts, tuple(group.attrs["h5sparse_shape"]))
            assert elements_at(connection, path) == elements_of(matrix)
            dataset = SparseDataset(connection, connection.json("GET", "/datasets/", h5path=path))
            assert dataset.shape == matrix.shape
            assert dataset.dtype == matrix.dtype
            assert np.array_equal(dataset.read_dense(), matrix.toarray())
        found = [line.split(":")[0] for line in domain_differences(file, connection)]
    assert sorted(found) == ["/raw.X", "/uns/neighbors/connectivities", "/uns/neighbors/distances"]


def test_an_anndata_file_as_it_is(imported: Import) -> None:
    assert_is_file(imported(CELLS, "--as-is"), CELLS)


@pytest.mark.parametrize("kind", ["csr", "csc"])
def test_layers(imported: Import, tmp_path: Path, kind: str) -> None:
    matrix = random_matrix(1, "<f4").asformat(kind)
    options = {"chunks": (17,), "compression": "gzip"}
    with h5py.File(write_h5ad(tmp_path / "layers.h5ad", matrix, "layers/counts", **options), "r+") as file:
        file["layers/counts"].attrs["encoding-version"] = "0.1.0"
        file["X"] = file["layers/counts"]
    connection = imported(tmp_path / "layers.h5ad")
    assert elements_at(connection, "/layers/counts") == elements_of(matrix)
    ids = [connection.json("GET", "/datasets/", h5path=path)["id"] for path in ("/X", "/layers/counts")]
    assert ids[0] == ids[1]
    value = connection.json("GET", f"/datasets/{ids[0]}/attributes/encoding-type")["value"]
    assert value == f"{kind}_matrix"


@pytest.mark.parametrize(
    ("index", "message"),
    [(-1, "negative"), (40, "not below its extent 40"), (10**6, "not below its extent 40")],
)
def test_an_index_beyond_a_matrix_whose_lines_are_divided_is_refused(
    refused: Refused, tmp_path: Path, index: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hsparse.hdf5.importer.matrix_chunks.MAX_WAITING_BYTES", 600)
    matrix = random_matrix(1)
    matrix.indices[100] = index
    assert message in refused(write_h5ad(tmp_path / "cells.h5ad", matrix), "--chunk", "60x10")


@pytest.mark.parametrize("kind", ["CSR", "CSC", "COO", "COOR"])
@pytest.mark.parametrize("iso", [False, True])
def test_binsparse(imported: Import, tmp_path: Path, kind: str, iso: bool) -> None:
    matrix = random_matrix(2, "<i4")
    if iso:
        matrix.data[:] = 7
    matrix = matrix.asformat(kind[:3].lower())
    about = {
        "version": "0.1",
        "format": kind,
        "shape": list(matrix.shape),
        "number_of_stored_values": matrix.nnz,
        "data_types": {"values": "iso[int32]" if iso else "int32"},
    }
    with h5py.File(tmp_path / "bin.h5", "w") as file:
        group = file.create_group("m")
        group.attrs["binsparse"] = json.dumps({"binsparse": about})
        group["values"] = matrix.data[:1] if iso else matrix.data
        if kind.startswith("COO"):
            group["indices_0"], group["indices_1"] = matrix.coords
        else:
            group["indices_1"], group["pointers_to_1"] = matrix.indices, matrix.indptr
    assert elements_at(imported(tmp_path / "bin.h5"), "/m") == elements_of(matrix)


@pytest.mark.parametrize("part", ["indices", "indptr", "data"])
def test_a_damaged_matrix_leaves_no_domain(refused: Refused, tmp_path: Path, part: str) -> None:
    matrix = random_matrix(3)
    setattr(matrix, part, getattr(matrix, part)[:-1] if part != "indices" else matrix.indices + 1000)
    assert "hsparse: /X: " in refused(write_h5ad(tmp_path / "damaged.h5ad", matrix))


# --- Matrix Market --------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["real", "integer", "unsigned-integer", "complex", "pattern"])
@pytest.mark.parametrize("symmetry", ["general", "symmetric", "skew-symmetric", "hermitian"])
@pytest.mark.parametrize("packed", [False, True], ids=["mtx", "mtx.gz"])
def test_matrix_market(imported: Import, tmp_path: Path, field: str, symmetry: str, packed: bool) -> None:
    without_sign = field in ("pattern", "unsigned-integer")
    if (symmetry == "hermitian" and field != "complex") or (symmetry == "skew-symmetric" and without_sign):
        symmetry = "general"
    kinds = {"integer": "<i8", "unsigned-integer": "<u8", "complex": "<c16"}
    matrix = random_matrix(4, kinds.get(field, "<f8"), (40, 40)).toarray()
    if field == "complex":
        matrix = matrix + 1j * matrix.T
    if symmetry != "general":
        other = matrix.T.conj() if symmetry == "hermitian" else matrix.T
        matrix = matrix - other if symmetry == "skew-symmetric" else matrix + other
    if field == "pattern":
        matrix = (matrix != 0).astype("<f8")
    path = tmp_path / "some.mtx"
    scipy.io.mmwrite(
        path, scipy.sparse.coo_array(matrix), field=field, symmetry=symmetry, comment="some\nlines"
    )
    expected = elements_of(scipy.io.mmread(path, spmatrix=False))
    if packed:
        (tmp_path / "some.mtx.gz").write_bytes(gzip.compress(path.read_bytes()))
        path = tmp_path / "some.mtx.gz"
    assert elements_at(imported(path), "/matrix") == expected


def test_integers_of_matrix_market_are_exact(imported: Import, tmp_path: Path) -> None:
    (tmp_path / "a.mtx").write_text(
        f"%%MatrixMarket matrix coordinate integer general\n2 3 1\n2 3 {2**62 + 1}"
    )
    assert elements_at(imported(tmp_path / "a.mtx", "--path", "big"), "/big") == {(1, 2): 2**62 + 1}


@pytest.mark.parametrize("kind", ["u4", "u8"])
def test_unsigned_integers_of_matrix_market(imported: Import, tmp_path: Path, kind: str) -> None:
    largest = np.iinfo(kind).max
    matrix = scipy.sparse.coo_array(np.array([[0, largest, 1], [0, 0, 3]], kind))
    scipy.io.mmwrite(tmp_path / "a.mtx", matrix)
    assert elements_at(imported(tmp_path / "a.mtx"), "/matrix") == {
        (0, 1): largest,
        (0, 2): 1,
        (1, 2): 3,
    }


@pytest.mark.parametrize("kind", ["f8", "i8", "u8", "c16"])
@pytest.mark.parametrize("symmetry", ["general", "symmetric", "skew-symmetric", "hermitian"])
def test_matrix_market_arrays(
    imported: Import, tmp_path: Path, kind: str, symmetry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hsparse.hdf5.importer.matrix_market.TEXT_BYTES", 30)
    square = np.arange(1, 26).reshape(5, 5).astype(kind)
    if kind == "c16":
        square = square * (1 + 2j)
    other = square.T.conj() if symmetry == "hermitian" else square.T
    matrix = square[:3] if symmetry == "general" else square + other
    if symmetry == "skew-symmetric" and kind != "u8":
        matrix = square - other
    scipy.io.mmwrite(tmp_path / "a.mtx", matrix)
    expected = {place: value for place, value in np.ndenumerate(matrix) if place[0] != place[1] or value}
    assert elements_at(imported(tmp_path / "a.mtx"), "/matrix") == expected


HEAD = "%%MatrixMarket matrix coordinate real general\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no Matrix Market file"),
        ("%%MatrixMarket matrix odd real general\n1 1\n2\n", "the format odd"),
        ("%%MatrixMarket matrix array pattern general\n1 1\n2\n", "in the format array"),
        ("%%MatrixMarket matrix array real general\n1 1\n2\n3\n", "has 2 entries; its header says 1"),
        ("%%MatrixMarket matrix array real symmetric\n1 2\n2\n3\n", "1 rows and 2 columns"),
        ("%%MatrixMarket matrix coordinate real odd\n1 1 1\n1 1 1\n", "of symmetry odd"),
        (HEAD, "no line of rows"),
        (HEAD + "2 2\n", "no line of rows"),
        (HEAD + "2 2 2\n1 1 1\n", "has 1 entries; its header says 2"),
        (HEAD + "2 2 1\n1 1 1\n1 2 1\n", "has 2 entries; its header says 1"),
        (HEAD + "2 2 1\n1 3 1\n", "an index beyond 2 x 2"),
        (HEAD + "2 2 1\n0 1 1\n", "an index beyond 2 x 2"),
        (HEAD + "2 2 1\n1 1\n", "without 3 numbers"),
        (HEAD + "2 2 1\n1 1 x\n", "text in place of a number"),
        (HEAD + "2 2 2\n1 1 1\n1 1 2\n", "1 of 2 elements have the coordinates of another element"),
    ],
)
def test_a_damaged_matrix_market_file(refused: Refused, tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "a.mtx").write_text(text)
    assert words in refused(tmp_path / "a.mtx")


@pytest.mark.parametrize("form", ["array", "coordinate"])
def test_numbers_of_fortran_in_matrix_market(imported: Import, tmp_path: Path, form: str) -> None:
    places = {"array": ("", ""), "coordinate": ("1 1 ", "2 1 ")}[form]
    count = "" if form == "array" else " 2"
    lines = f"{places[0]}1.5D+02 -2d-1\n{places[1]}.25D0 1D2\n"
    text = f"%%MatrixMarket matrix {form} complex general\n2 1{count}\n{lines}"
    (tmp_path / "a.mtx").write_text(text)
    assert elements_at(imported(tmp_path / "a.mtx"), "/matrix") == {(0, 0): 150 - 0.2j, (1, 0): 0.25 + 100j}
    (tmp_path / "a.mtx").write_text(text.replace("complex", "real").replace(" -2d-1", "").replace(" 1D2", ""))
    assert elements_at(imported(tmp_path / "a.mtx", "--path", "b"), "/b") == {(0, 0): 150, (1, 0): 0.25}


def test_a_matrix_market_file_of_several_pieces(
    imported: Import, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hsparse.hdf5.importer.matrix_market.TEXT_BYTES", 200)
    matrix = random_matrix(5).tocoo()
    scipy.io.mmwrite(tmp_path / "a.mtx", matrix)
    assert elements_at(imported(tmp_path / "a.mtx"), "/matrix") == elements_of(
        scipy.io.mmread(tmp_path / "a.mtx", spmatrix=False)
    )


# --- npz ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["<f4", "<u1", "<i2", "?", "<c8", "<c16"])
def test_npz_of_scipy(imported: Import, tmp_path: Path, kind: str, dtype: str) -> None:
    matrix = random_matrix(6, dtype)
    matrix.eliminate_zeros()
    matrix = matrix.asformat(kind)
    scipy.sparse.save_npz(tmp_path / "a.npz", matrix)
    read = scipy.sparse.load_npz(tmp_path / "a.npz")
    assert elements_at(imported(tmp_path / "a.npz"), "/matrix") == elements_of(read)


def test_npz_of_pydata_with_coordinates(imported: Import, tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    flat = np.sort(rng.choice(5 * 6 * 7, 50, replace=False))
    coords, data = np.stack(np.unravel_index(flat, (5, 6, 7))), rng.random(50)
    np.savez(tmp_path / "a.npz", coords=coords, data=data, shape=(5, 6, 7), fill_value=np.float64(2.5))
    connection = imported(tmp_path / "a.npz")
    assert elements_at(connection, "/matrix") == dict(
        zip(map(tuple, coords.T.tolist()), data.tolist(), strict=True)
    )
    expected = np.full((5, 6, 7), 2.5)
    expected[tuple(coords)] = data
    dataset = SparseDataset(connection, connection.json("GET", "/datasets/", h5path="/matrix"))
    assert np.array_equal(dataset.read_dense(), expected)


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 2), (2, 1)])
def test_npz_of_pydata_compressed(imported: Import, tmp_path: Path, axes: tuple[int, ...]) -> None:
    shape = (5, 6, 7)
    dense = np.where(np.random.default_rng(8).random(shape) < 0.2, 1, 0) * np.arange(210.0).reshape(shape)
    axes = tuple(sorted(axes))
    others = tuple(axis for axis in range(3) if axis not in axes)
    lines = int(np.prod([shape[axis] for axis in axes]))
    matrix = scipy.sparse.csr_array(dense.transpose(axes + others).reshape(lines, -1))
    np.savez(
        tmp_path / "a.npz",
        data=matrix.data,
        indices=matrix.indices,
        indptr=matrix.indptr,
        compressed_axes=axes,
        shape=shape,
        fill_value=0.0,
    )
    found = elements_at(imported(tmp_path / "a.npz"), "/matrix")
    assert found == {tuple(place): dense[tuple(place)] for place in np.argwhere(dense).tolist()}


def test_an_npz_file_of_pickles_is_refused(refused: Refused, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", data=np.array([{}], object), shape=(1, 1), coords=np.zeros((2, 1), int))
    assert "no .npz file of plain arrays" in refused(tmp_path / "a.npz")


# --- parts ----------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 4), min_size=1, max_size=20), st.data())
def test_lines_of_compressed_elements(counts: list[int], data: st.DataObject) -> None:
    pointers = np.array([0, *np.cumsum(counts)])
    begin = data.draw(st.integers(0, sum(counts)))
    end = data.draw(st.integers(begin, sum(counts)))
    expected = np.repeat(np.arange(len(counts)), counts)[begin:end]
    assert row_of(pointers, begin, end).tolist() == expected.tolist()


@pytest.mark.parametrize("ending", ["h5ad", "npz"])
def test_the_user_chooses_the_chunks_of_matrices(imported: Import, tmp_path: Path, ending: str) -> None:
    matrix = random_matrix(8)
    file = tmp_path / f"cells.{ending}"
    if ending == "npz":
        scipy.sparse.save_npz(file, matrix)
    else:
        write_h5ad(file, matrix, "matrix")
    connection = imported(file, "--chunk", "16x1000")
    assert SparseDataset.open(connection, "/matrix").chunks == (16, 40)
    assert elements_at(connection, "/matrix") == elements_of(matrix)


@pytest.mark.parametrize("text", ["0x4", "4x", "axb", "", "-1x4"])
def test_chunks_that_are_none_are_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser, "import")
    with pytest.raises(SystemExit):
        parser.parse_args(["a.h5", "/home/a.h5", f"--chunk={text}"])
    assert "such as 4096x256" in capsys.readouterr().err


def test_elements_that_are_too_many_for_a_request_are_sent_in_halves(
    imported: Import, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hsparse.hdf5.importer.dense_upload.MAX_REQUEST_BYTES", 2000)
    sizes: list[int] = []
    send = RetryingClient.json

    def watched(self: RetryingClient, method: str, path: str, *args: Any, **params: Any) -> Any:
        if path.endswith("/value"):
            sizes.append(len(args[0]))
        return send(self, method, path, *args, **params)

    monkeypatch.setattr(RetryingClient, "json", watched)
    matrix = random_matrix(1)
    scipy.io.mmwrite(tmp_path / "x.mtx", matrix)
    connection = imported(tmp_path / "x.mtx")
    assert elements_at(connection, "/matrix") == elements_of(matrix)
    assert len(sizes) > 1
    assert max(sizes) <= 2000
