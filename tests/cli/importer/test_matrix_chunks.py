"""Compressed matrices come as finished chunks: each once, as the server would encode it."""

from __future__ import annotations

import json
from collections.abc import Callable
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
from hsparse.errors import HsparseError, TooLarge
from hsparse.format.selections.points import Points
from hsparse.format.selections.selection_encoding import encode_offsets
from hsparse.format.structured.region import encode_region
from hsparse.hdf5.importer.matrix_chunks import encode_places, order_of
from tests.cli.importer.conftest import Import
from tests.cli.importer.test_command import Stopped, stop_after
from tests.cli.importer.test_sparse_matrix import elements_at, elements_of, random_matrix
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


def write(path: Path, matrix: Any, indices: str = "<i4", values: str | None = None, **options: Any) -> Path:
    """Write a compressed matrix as AnnData does."""
    with h5py.File(path, "w") as file:
        group = file.create_group("X")
        group.attrs["encoding-type"], group.attrs["shape"] = f"{matrix.format}_matrix", matrix.shape
        for name, data in (
            ("data", matrix.data.astype(values or matrix.dtype)),
            ("indices", matrix.indices.astype(indices)),
            ("indptr", matrix.indptr),
        ):
            group.create_dataset(name, data=data, **(options if len(data) else {}))
    return path


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
    path = write(tmp_path / "x.h5ad", matrix, indices, dtype, chunks=(17,), compression="gzip")
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
    connection = imported(write(tmp_path / "x.h5ad", matrix), *flags)
    assert elements_at(connection, "/X") == elements_of(matrix)
    counts = [json.loads(line).get("elements", 0) for line in capsys.readouterr().out.splitlines()]
    assert max(counts) == matrix.nnz


@pytest.mark.parametrize("kind", ["csr", "csc"])
def test_two_elements_at_a_place_are_refused(
    imported: Import, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    matrix = random_matrix(3).asformat(kind)
    line = int(np.flatnonzero(np.diff(matrix.indptr) > 2)[0])
    matrix.indices[matrix.indptr[line] + 2] = matrix.indices[matrix.indptr[line]]
    connection = imported(write(tmp_path / "x.h5ad", matrix), status=2)
    assert "/X: 1 of " in (said := capsys.readouterr().err)
    assert "sum_duplicates" in said
    with pytest.raises(HsparseError):
        connection.json("GET", "/")


@pytest.mark.parametrize("kind", ["csr", "csc"])
def test_a_matrix_without_elements(imported: Import, tmp_path: Path, kind: str) -> None:
    matrix = scipy.sparse.random_array((30, 20), density=0, format=kind)
    connection = imported(write(tmp_path / "x.h5ad", matrix))
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
        write(path, matrix)
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
    path, domain = write(tmp_path / "x.h5ad", matrix), "/home/admin/other-number.h5"
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
    connection = imported(write(tmp_path / "x.h5ad", matrix))
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
