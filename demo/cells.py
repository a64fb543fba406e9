"""The demo's first part: cells and genes, a CSR matrix as a sparse dataset, checked against scipy."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from demo.story import Elements, Stored, Story
from hsparse.cli.demo_copy import attributes_of, check_attributes, check_copy, copy_file, objects
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
        """Read all over another connection."""
        dataset = SparseDataset.open(connection, MATRIX)
        what = f"{MATRIX}: every element, {self.wanted.nnz:,}"
        self.story.same_elements(what, dataset.read(), elements(self.wanted))


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
    sent = elements(matrix)
    started = clock.monotonic()
    dataset.write(*sent)
    written = clock.monotonic()
    found = dataset.read()
    read = clock.monotonic()
    story.same_elements(f"all {matrix.nnz:,} elements read back, places and values", found, sent)
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


def elements(matrix: csr_array) -> Elements:
    """Return the stored elements: (nnz, 2) places, row-major, and (nnz,) values."""
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    return np.stack((rows, matrix.indices), axis=1), matrix.data


def kept(matrix: csr_array, mask: NDArray[np.bool_]) -> csr_array:
    """Return the matrix with only those stored elements that `mask: (nnz,)` is true for."""
    places, values = elements(matrix)
    return csr_array((values[mask], tuple(places[mask].T)), shape=matrix.shape)
