"""The demo's first part: cells and genes, a CSR matrix as a sparse dataset, checked against scipy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from hsparse.cli.demo_copy import attributes_of, check_attributes, check_copy, copy_file, objects
from hsparse.cli.demo_report import Stored
from hsparse.cli.demo_story import Story
from hsparse.client.connection import Connection
from hsparse.client.sparse_dataset import SparseDataset
from hsparse.clock import SystemClock

FILE = Path(__file__).parent / "data" / "pbmc68k_reduced.h5ad"
MATRIX = "/raw.X"
CHUNK = (128, 256)
FILTERS = (
    {"class": "H5Z_FILTER_SHUFFLE", "id": 2},
    {"class": "H5Z_FILTER_DEFLATE", "id": 1, "level": 5},
)
RIBOSOMAL = ("RPL", "RPS")


class Cells:
    """The matrix as scipy has it, `wanted`, and as the server has it, `dataset`: what is done, is done to both."""

    def __init__(self, dataset: SparseDataset, wanted: csr_array, genes: list[str], story: Story) -> None:
        self.dataset = dataset
        self.wanted = wanted
        self.genes = genes
        self.story = story

    def question(self) -> None:
        """Ask about a slab and about a gene."""
        rows, _ = coordinates(self.wanted)
        slab = kept(self.wanted, (rows >= 100) & (rows < 200))
        select = f"[100:200,0:{len(self.genes)}]"
        self.story.say("\nQuestions about cells 100 to 199, answered over HTTP:")
        total = 100 * len(self.genes)
        self.story.same(
            f"{slab.nnz:,} of {total:,} elements are defined", self.dataset.count(select), slab.nnz
        )
        places = self.dataset.defined(select)
        ones = np.ones(len(places), np.int8)
        same_matrix(self.story, "where they are", places, ones, slab.astype(bool).astype(np.int8))
        same_matrix(self.story, "their places and values at once", *self.dataset.read(select), slab)
        what = "a client that knows nothing of sparse data reads 0 in between"
        self.story.same(what, self.dataset.read_dense(select), self.wanted[100:200].toarray())
        self._question_gene("CST3")

    def _question_gene(self, name: str) -> None:
        gene = self.genes.index(name)
        _, columns = coordinates(self.wanted)
        column = kept(self.wanted, columns == gene)
        what = f"the {column.nnz} cells that express {name} (a marker of monocytes), and how much"
        same_matrix(self.story, what, *self.dataset.read(f"[:,{gene}]"), column)

    def change(self) -> None:
        """Define an element as zero, then erase a family of genes."""
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
        _, columns = coordinates(self.wanted)
        left = kept(self.wanted, ~np.isin(columns, genes))
        self.dataset.erase(f"[:,[{','.join(map(str, genes))}]]")
        what = (
            f"{len(genes)} ribosomal genes (RPL..., RPS...) erased: {self.wanted.nnz - left.nnz:,} elements are "
            f"gone, {left.nnz:,} are as before"
        )
        self.wanted = left
        same_matrix(self.story, what, *self.dataset.read(), left)

    def check_again(self, connection: Connection) -> None:
        """Read all over another connection."""
        dataset = SparseDataset.open(connection, MATRIX)
        same_matrix(self.story, f"{MATRIX}: every element, {self.wanted.nnz:,}", *dataset.read(), self.wanted)


def load_cells(connection: Connection, file: h5py.File, story: Story) -> tuple[Cells, list[Stored]]:
    """Load the matrix as a sparse dataset and everything else in the file as it is; check both."""
    matrix = read_csr(file[MATRIX])
    cells, genes = matrix.shape
    story.say(
        f"The file has the expression of {genes} genes in {cells} cells: {matrix.nnz:,} of {cells * genes:,} elements "
        "were seen, the others were not, which is not the same as zero. HDF5 cannot say that yet, so the file has "
        "three arrays (data, indices, indptr) that only those understand who know AnnData. Here it is one sparse "
        f"dataset, {MATRIX}, {cells} x {genes}."
    )
    clock = SystemClock()
    attributes = attributes_of(file[MATRIX])
    dataset = SparseDataset.create(
        connection, MATRIX, matrix.shape, matrix.dtype, CHUNK, filters=FILTERS, attributes=attributes
    )
    coords = np.stack(coordinates(matrix), axis=1)
    started = clock.monotonic()
    dataset.write(coords, matrix.data)
    written = clock.monotonic()
    found = dataset.read()
    read = clock.monotonic()
    same_matrix(story, f"all {matrix.nnz:,} elements read back, places and values", *found, matrix)
    check_attributes(connection, f"/datasets/{dataset.id}", file[MATRIX], story)
    dense = matrix.dtype.itemsize * cells * genes
    stored = Stored(MATRIX, matrix.nnz, dataset.storage()[1], dense, written - started, read - written)
    names = [name.decode() for name in file["raw.var"]["index"]]
    return Cells(dataset, matrix, names, story), [stored, _load_rest(connection, file, story)]


def _load_rest(connection: Connection, file: h5py.File, story: Story) -> Stored:
    with story.progress() as progress:
        task = progress.add_task("everything else in the file", total=len(objects(file, MATRIX)))
        copied = copy_file(connection, file, MATRIX, lambda: progress.advance(task))
    nbytes = check_copy(connection, file, copied, story)
    story.right(
        f"everything else, {len(copied.datasets)} datasets (compounds, strings, booleans) in {len(copied.groups)} "
        "groups, as h5py reads it"
    )
    return Stored("rest of the file", copied.elements, nbytes, copied.nbytes, copied.seconds)


def read_csr(group: h5py.Group) -> csr_array:
    """Return a matrix of AnnData's older form (h5sparse), its indices sorted."""
    parts = (group["data"][:], group["indices"][:], group["indptr"][:])
    matrix = csr_array(parts, shape=tuple(group.attrs["h5sparse_shape"].tolist()))
    matrix.sort_indices()
    return matrix


def coordinates(matrix: csr_array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows and columns of the stored elements, (nnz,) each, row-major."""
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    return rows, matrix.indices.astype(np.int64)


def kept(matrix: csr_array, mask: NDArray[np.bool_]) -> csr_array:
    """Return the matrix with only those stored elements that `mask: (nnz,)` is true for."""
    rows, columns = coordinates(matrix)
    return csr_array((matrix.data[mask], (rows[mask], columns[mask])), shape=matrix.shape)


def same_matrix(
    story: Story, what: str, coords: NDArray[np.uint64], values: NDArray[Any], wanted: csr_array
) -> None:
    """Check that elements, as the server gives them, are those that scipy has stored, zeros included."""
    got = csr_array((values, coords.T.astype(np.int64)), shape=wanted.shape)
    story.require(f"{what}: how many", len(values), wanted.nnz)
    story.require(f"{what}: elements a row", got.indptr, wanted.indptr)
    story.require(f"{what}: columns", got.indices, wanted.indices)
    story.same(what, got.data, wanted.data)
