"""The demo's first part: cells and genes, a CSR matrix as a sparse dataset, checked against scipy."""

from __future__ import annotations

from contextlib import contextmanager
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array

from hsparse.cli.demo_copy import attributes_of, check_attributes, check_copy, copy_file, objects
from hsparse.cli.demo_report import Stored
from hsparse.cli.demo_story import Story, ordered
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
SLAB = "[100:200,0:765]"


class Cells:
    """The file, its matrix as scipy has it (`matrix`), and as the server has it (`dataset`)."""

    def __init__(self, connection: Connection, story: Story, file: h5py.File) -> None:
        self._connection = connection
        self._story = story
        self._file = file
        self.matrix = read_csr(file[MATRIX])
        self._dataset: SparseDataset | None = None

    @property
    def dataset(self) -> SparseDataset:
        """The matrix on the server, once it is loaded."""
        assert self._dataset is not None
        return self._dataset

    def load(self) -> list[Stored]:
        """Load the matrix as a sparse dataset, and everything else in the file as it is."""
        story, elements = self._story, self.matrix.tocoo()
        rows, columns = self.matrix.shape
        story.say(
            f"The file has the expression of {columns} genes in {rows} cells. Of {rows * columns:,} elements "
            f"{elements.nnz:,} were measured;\nthe rest was not seen, which is not the same as zero. HDF5 could not "
            "say that: the file has three arrays\n(data, indices, indptr) that only AnnData understands. Here it is "
            f"one dataset of {rows} x {columns}, {MATRIX}."
        )
        clock = SystemClock()
        self._dataset = SparseDataset.create(
            self._connection,
            MATRIX,
            self.matrix.shape,
            self.matrix.dtype,
            CHUNK,
            filters=FILTERS,
            attributes=attributes_of(self._file[MATRIX]),
        )
        started = clock.monotonic()
        self.dataset.write(np.stack(elements.coords, axis=1), elements.data)
        written = clock.monotonic()
        coords, values = self.dataset.read()
        read = clock.monotonic()
        story.same(f"all {elements.nnz:,} elements read back, places and values, as scipy has them", *self._pair(coords, values))
        nbytes = self.dataset.storage()[1]
        dense = self.matrix.dtype.itemsize * rows * columns
        return [Stored(MATRIX, elements.nnz, nbytes, dense, written - started, read - written), self._load_rest()]

    def _load_rest(self) -> Stored:
        story = self._story
        with story.progress() as progress:
            task = progress.add_task("copying everything else", total=len(objects(self._file, MATRIX)))
            copied = copy_file(self._connection, self._file, MATRIX, lambda: progress.advance(task))
        stored = check_copy(self._connection, self._file, copied, story)
        check_attributes(self._connection, f"/datasets/{self.dataset.id}", self._file[MATRIX], story)
        story.right(
            f"everything else in the file, {len(copied.datasets)} datasets (compounds, strings, booleans) and "
            f"{len(copied.groups)} groups, as h5py reads it"
        )
        return Stored("everything else in the file", copied.elements, stored, copied.nbytes, copied.seconds)

    def question(self) -> None:
        """Ask about a slab and a gene, and check the answers."""
        dataset, story, slab = self.dataset, self._story, self.matrix[100:200]
        story.say("\nQuestions about cells 100 to 199, answered over HTTP:")
        story.same(f"H5Dget_defined: {slab.nnz:,} of {slab.shape[0] * slab.shape[1]:,} elements are there", dataset.count(SLAB), slab.nnz)
        coords, values = dataset.read(SLAB)
        places, _ = ordered(dataset.defined(SLAB), np.zeros(slab.nnz))
        wanted_places, wanted = elements_of(slab, 100)
        story.same("these places, and no others", places, wanted_places)
        story.same("the values at them", ordered(coords, values)[1], wanted)
        story.same("a client that knows nothing of this reads them dense, with 0 where nothing is", dataset.read_dense(SLAB), slab.toarray())
        self._question_gene()

    def _question_gene(self) -> None:
        gene = int(np.argmax(self.matrix.getnnz(axis=0) * (self.matrix.getnnz(axis=0) < 350)))
        name = self._file["raw.var"]["index"][gene].decode()
        column = self.matrix[:, [gene]]
        coords, values = self.dataset.read(f"[:,{gene}]")
        what = f"the {column.nnz} cells that express {name}, and how much"
        self._story.same(what, *self._pair(coords, values, column, gene))
