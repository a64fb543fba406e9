"""The demo's first part: imports an AnnData file with its CSR matrix as a sparse dataset, and checks it with scipy."""

from __future__ import annotations

from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from h5json.hdf5dtype import createDataType
from numpy.typing import NDArray
from scipy.sparse import csr_array

from demo.story import PointElements, StoredSize, Story
from hsparse.cli.main import parse_arguments
from hsparse.client.connection import Connection, Json
from hsparse.client.sparse_dataset import SparseDataset
from hsparse.clock import SystemClock

FILE = Path(__file__).parent / "data" / "pbmc68k_reduced.h5ad"
MATRIX = "/raw.X"
RIBOSOMAL = ("RPL", "RPS")


class Cells:
    """The matrix in scipy, `wanted`, and on the server, `dataset`; every change is applied to both."""

    def __init__(self, dataset: SparseDataset, wanted: csr_array, genes: list[str], story: Story) -> None:
        self.dataset = dataset
        self.wanted = wanted
        self.genes = genes
        self.story = story

    def question(self) -> None:
        """Query a slab and a gene."""
        rows = elements(self.wanted)[0][:, 0]
        slab = kept(self.wanted, (rows >= 100) & (rows < 200))
        select = f"[100:200,0:{len(self.genes)}]"
        self.story.say("\nQuestions about cells 100 to 199, answered over HTTP:")
        total = 100 * len(self.genes)
        self.story.same(
            f"{slab.nnz:,} of {total:,} elements are defined", self.dataset.count(select), slab.nnz
        )
        self.story.same_places("where they are", self.dataset.defined(select), elements(slab)[0])
        self.story.same_elements("their places and values at once", self.dataset.read(select), elements(slab))
        what = "a client that knows nothing of sparse data reads 0 in between"
        self.story.same(what, self.dataset.read_dense(select), self.wanted[100:200].toarray())
        self._question_gene("CST3")

    def _question_gene(self, name: str) -> None:
        gene = self.genes.index(name)
        columns = elements(self.wanted)[0][:, 1]
        column = kept(self.wanted, columns == gene)
        what = f"the {column.nnz} cells that express {name} (a marker of monocytes), and how much"
        self.story.same_elements(what, self.dataset.read(f"[:,{gene}]"), elements(column))

    def change(self) -> None:
        """Define an element with the value zero, then erase a family of genes."""
        self.story.say(
            "\nUndefined is not zero. A zero that was measured is an element like any other, until erased:"
        )
        row, gene = (int(index[0]) for index in np.nonzero(self.wanted.toarray() == 0))
        place, count = np.array([[row, gene]]), self.wanted.nnz
        self.dataset.write(place, np.zeros(1))
        what = f"cell {row}, gene {self.genes[gene]} written as 0: one element more is defined"
        self.story.same(what, self.dataset.count(), count + 1)
        self.story.same(
            "and it is there, as 0", self.dataset.read(f"[{row},{gene}]")[1], np.zeros(1, np.float32)
        )
        self.dataset.erase_points(place)
        self.story.same("erased: it is undefined again", self.dataset.count(), count)
        self._erase_genes([i for i, name in enumerate(self.genes) if name.startswith(RIBOSOMAL)])

    def _erase_genes(self, genes: list[int]) -> None:
        columns = elements(self.wanted)[0][:, 1]
        left = kept(self.wanted, ~np.isin(columns, genes))
        self.dataset.erase(f"[:,[{','.join(map(str, genes))}]]")
        what = (
            f"{len(genes)} ribosomal genes (RPL..., RPS...) erased: {self.wanted.nnz - left.nnz:,} elements are "
            f"gone, {left.nnz:,} are as before"
        )
        self.wanted = left
        self.story.same_elements(what, self.dataset.read(), elements(left))

    def check_again(self, connection: Connection) -> None:
        """Read all elements over another connection, and check them."""
        dataset = SparseDataset.open(connection, MATRIX)
        what = f"{MATRIX}: every element, {self.wanted.nnz:,}"
        self.story.same_elements(what, dataset.read(), elements(self.wanted))


def load_cells(connection: Connection, domain: str, story: Story) -> tuple[Cells, list[StoredSize]]:
    """Import the file into `domain` and check its whole content; the matrix becomes a sparse dataset."""
    with h5py.File(FILE) as file:
        matrix = read_csr(file[MATRIX])
        cells, genes = matrix.shape
        story.say(
            f"The file has the expression of {genes} genes in {cells} cells: {matrix.nnz:,} of {cells * genes:,} "
            "elements were seen, the others were not, which is not the same as zero. HDF5 cannot say that yet, so the "
            "file has three arrays (data, indices, indptr) that only those understand who know AnnData. "
            f"`hsparse import` makes one sparse dataset of them, {MATRIX}, {cells} x {genes}."
        )
        seconds = _import(connection.url, domain)
        story.right(f"hsparse import {FILE.name} {domain}, in {seconds:.1f} seconds")
        dataset = SparseDataset.open(connection, MATRIX)
        clock = SystemClock()
        started = clock.monotonic()
        found = dataset.read()
        read = clock.monotonic() - started
        story.same_elements(
            f"all {matrix.nnz:,} elements read back, places and values", found, elements(matrix)
        )
        _check_attributes(connection, f"/datasets/{dataset.id}", file[MATRIX], story)
        dense = matrix.dtype.itemsize * cells * genes
        stored = StoredSize(MATRIX, matrix.nnz, dataset.storage()[1], dense, None, read)
        names = [name.decode() for name in file["raw.var"]["index"]]
        return Cells(dataset, matrix, names, story), [stored, _check_rest(connection, file, story)]


def _import(url: str, domain: str) -> float:
    """Import the file as `hsparse import` does; return the seconds."""
    args = parse_arguments(["import", str(FILE), domain, "--endpoint", url, "--quiet"])
    clock = SystemClock()
    started = clock.monotonic()
    with redirect_stdout(StringIO()):
        args.run(args)
    return clock.monotonic() - started


def _check_rest(connection: Connection, file: h5py.File, story: Story) -> StoredSize:
    """Compare everything but the matrix with h5py's reads of the file; return its stored size."""
    points = nbytes = stored = datasets = 0
    others = [("/", file), *_objects(file)]
    for path, item in others:
        if isinstance(item, h5py.Group) and not _is_matrix(item):
            owner = f"/groups/{connection.json('GET', '/groups/', h5path=path)['id']}"
        else:
            record = connection.json("GET", "/datasets/", h5path=path)
            owner = f"/datasets/{record['id']}"
            values = _check_values(connection, record, item, story)
            stored += connection.json("GET", owner, verbose=1)["allocated_size"]
            points, nbytes, datasets = points + values.size, nbytes + values.nbytes, datasets + 1
        _check_attributes(connection, owner, item, story)
    story.right(
        f"everything else, {datasets} datasets (compounds, strings, booleans) in {len(others) - datasets - 1} "
        "groups, as h5py reads it"
    )
    return StoredSize("rest of the file", points, stored, nbytes, None)


def _is_matrix(item: h5py.Group | h5py.Dataset) -> bool:
    """Tell whether an object is a sparse matrix, which the import makes a dataset."""
    return "h5sparse_format" in item.attrs


def _objects(file: h5py.File) -> list[tuple[str, h5py.Group | h5py.Dataset]]:
    """Return the objects below the root with their paths, without the matrix and without members of matrices."""
    found: list[tuple[str, h5py.Group | h5py.Dataset]] = []

    def visit(name: str, item: h5py.Group | h5py.Dataset) -> None:
        if f"/{name}" != MATRIX and not _is_matrix(item.parent):
            found.append((f"/{name}", item))

    file.visititems(visit)
    return found


def _check_values(
    connection: Connection, record: Json, item: h5py.Group | h5py.Dataset, story: Story
) -> NDArray[Any]:
    """Compare the values of a dataset, or the defined values of a matrix; return them."""
    if isinstance(item, h5py.Group):
        matrix = read_csr(item)
        found = SparseDataset(connection, record).read()
        story.require_elements(f"The elements of {item.name}", found, elements(matrix))
        data: NDArray[Any] = matrix.data
        return data
    dtype = createDataType(record["type"])
    story.require(f"The type of {item.name}", np.array(dtype == item.dtype), np.array(True))
    values: NDArray[Any] = np.frombuffer(connection.binary("GET", f"/datasets/{record['id']}/value"), dtype)
    shape = record["shape"].get("dims", [])
    story.require(f"The shape of {item.name}", np.array(shape), np.array(item.shape))
    story.require(f"The values of {item.name}", values.reshape(shape), item[()])
    return values


def _check_attributes(
    connection: Connection, owner: str, item: h5py.Group | h5py.Dataset, story: Story
) -> None:
    """Compare the attributes of the object at `owner`, a path like `/groups/{id}`, with those of `item`."""
    for name, wanted in item.attrs.items():
        got = connection.json("GET", f"{owner}/attributes/{name}")["value"]
        wanted = wanted.decode() if isinstance(wanted, bytes) else wanted
        story.require(f"The attribute {name} of {item.name}", got, wanted)


def read_csr(group: h5py.Group) -> csr_array:
    """Return a matrix in AnnData's older form (h5sparse), with sorted indices."""
    parts = (group["data"][:], group["indices"][:], group["indptr"][:])
    matrix = csr_array(parts, shape=tuple(group.attrs["h5sparse_shape"].tolist()))
    matrix.sort_indices()
    return matrix


def elements(matrix: csr_array) -> PointElements:
    """Return the stored elements: (nnz, 2) places, row-major, and (nnz,) values."""
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    return np.stack((rows, matrix.indices), axis=1), matrix.data


def kept(matrix: csr_array, mask: NDArray[np.bool_]) -> csr_array:
    """Return the matrix with only the stored elements for which `mask: (nnz,)` is true."""
    places, values = elements(matrix)
    return csr_array((values[mask], tuple(places[mask].T)), shape=matrix.shape)
