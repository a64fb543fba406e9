"""The trial `cells`: typical reads of a single-cell matrix, by hsparse in three ways and by other libraries."""

from __future__ import annotations

import asyncio
import math
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.bench import Bench, Measurement
from benchmarks.child import run
from benchmarks.peers import hsparse
from benchmarks.peers.cell_libraries import LIBRARIES, Library, environment, prepare, take_turn
from benchmarks.report import OURS, MeasuredMetric
from benchmarks.trials.check import WrongAnswer
from benchmarks.workloads.cells import CHOSEN_TYPE, CellsCase, Truth, make

WORKLOAD = "cells"
WAYS = ("over HTTP", "direct", "embedded")
"""The ways in which hsparse reads: from a server as if on another machine, from its directory, without a server."""
DOMAIN, TRAINING = "/home/bench/cells.h5ad", "/home/bench/training.h5ad"
"""Domains of the file, imported with default chunks and with chunks of whole rows."""
ROWS_A_CHUNK = 64
SECONDS, ALL = 10.0, 90.0
"""Seconds after which no batch is begun, for readers of one batch at a time and for readers that read ahead."""
REMARKS = (
    "`cells`: {elements:,} elements of {cells:,} cells x {genes:,} genes, float32 counts. Every turn is a new "
    "process, with files in the page cache and libraries imported. Each read but the batches comes after another one "
    "of its kind.",
    "`cells`, random batches: all rows once, of AnnData as many as begin within {seconds:.0f} s, as CSR. hsparse: "
    "`hsparse.Batches` over an import by `--chunk 64x100000`; the other rows are of a default import. AnnData: "
    "`data[rows]`. TileDB-SOMA: `tiledbsoma_ml.ExperimentDataset`. scDataset: `BlockShuffling(16)`, 4 batches a "
    "fetch. The entropy is that of the 100 stretches from which a batch's rows come, compared with random rows. "
    "Memory is the most that the reading process held.",
    "`cells`: `AnnData h5ad` is uncompressed, the default of `write_h5ad`: reading it is copying. `AnnData zarr` is "
    "format 3. TileDB-SOMA reads columns and everything as tables. The predicate is a cell type and a least number of "
    "genes.",
    "`cells`, over HTTP: the loopback interface; both processes share the cores.",
    "`cells`, where hsparse loses: it stores a fifth of the plain h5ad's bytes and decodes them, 12 ns of a core for "
    "an element. Cells chosen by a predicate are in all chunks; of 20 genes' chunks 1 element in 66 is asked for.",
)


@dataclass(frozen=True, slots=True)
class CellsTrial:
    """Measures one case with hsparse, in each of `WAYS`, and with every library."""

    bench: Bench
    case: CellsCase

    async def run(self) -> None:
        """Create missing files and imports, and take all samples."""
        folder = self.bench.folder / self.case.name
        self.bench.tell("cells: making the matrix")
        truth = await asyncio.to_thread(make, self.case, folder)
        for remark in REMARKS:
            self.bench.report.remark(
                remark.format(
                    elements=truth.elements, cells=self.case.cells, genes=self.case.genes, seconds=SECONDS
                )
            )
        turns: dict[str, Measurement] = {}
        if "hsparse" in self.bench.peers:
            await self.imported(folder, truth)
            turns |= {f"hsparse {way}": partial(self.hsparse, way, folder, truth) for way in WAYS}
        if "cells" in self.bench.peers:
            python = environment(self.bench.folder).python
            for library in LIBRARIES:
                self.bench.tell(f"cells: making {library.form}")
                await prepare(library, python, folder)
                self.add_stored(library.side, folder / library.form, truth)
                turns[library.side] = partial(self.library, library, folder, truth)
        await self.bench.in_turn(WORKLOAD, turns)

    async def imported(self, folder: Path, truth: Truth) -> None:
        """Import the file into the store that all turns of hsparse read."""
        self.bench.tell("cells: importing")
        async with hsparse.serve(self.bench.work, self.bench.serve) as server:
            async with server.rest() as rest:
                await rest.domain(server.new_domain())  # also creates the folder
            for domain, flags, what in (
                (DOMAIN, (), ""),
                (TRAINING, ("--chunk", f"{ROWS_A_CHUNK}x{self.case.genes}"), ", for training"),
            ):
                before = stored(self.store)
                command = Path(sys.executable).with_name("hsparse")
                argv: list[str | Path] = [command, "import", folder / "cells.h5ad", domain, *flags]
                began = time.perf_counter()
                await run([*argv, "--endpoint", server.base], self.bench.work / "import.log")
                self.add(OURS, f"import{what}", "s", time.perf_counter() - began)
                size = stored(self.store) - before
                self.add(OURS, f"stored{what}", "bytes/element", size / truth.elements)

    async def hsparse(self, way: str, folder: Path, truth: Truth) -> None:
        """Measure one of `WAYS`; the embedded way opens the directory without a server."""
        job = self.job(folder, truth) | {"reader": "hsparse", "files": [str(self.store)]}
        log = self.bench.work / "turn.log"
        if way == "embedded":
            answers = await take_turn(Path(sys.executable), job | place(str(self.store)), log)
        else:
            direct = str(self.store) if way == "direct" else None
            host = hsparse.HERE if way == "direct" else hsparse.ELSEWHERE
            async with hsparse.serve(self.bench.work, self.bench.serve, host=host) as server:
                answers = await take_turn(Path(sys.executable), job | place(server.base, direct=direct), log)
        self.check(f"hsparse {way}", answers, truth)
        self.add_answers(OURS, answers, (way,))

    async def library(self, library: Library, folder: Path, truth: Truth) -> None:
        """Measure a library; its samples are added to the rows of all three `WAYS`, to compare it with each."""
        form = str(folder / library.form)
        job = self.job(folder, truth) | {"reader": library.reader, "path": form, "files": [form]}
        job |= {} if library.reads_ahead else {"seconds": SECONDS}
        python = environment(self.bench.folder).python
        answers = await take_turn(python, job, self.bench.work / "turn.log")
        self.check(library.side, answers, truth)
        self.add_answers(library.side, answers, WAYS)

    def job(self, folder: Path, truth: Truth) -> dict[str, Any]:
        """Return the keys of a job that are the same for all sides; see `benchmarks.peers.cells.turn`."""
        return {
            "size": self.case.batch,
            "seed": 1,
            "seconds": ALL,
            "n_genes": str(folder / "n_genes.npy"),
            "genes": truth.genes,
            "cell_type": CHOSEN_TYPE,
            "above": truth.above,
        }

    def check(self, side: str, answers: dict[str, Any], truth: Truth) -> None:
        """Raise `WrongAnswer` unless a turn read the content of the file."""
        batches = answers["batches"]
        if not batches["right"] or batches["distinct"] != batches["cells"]:
            raise WrongAnswer(f"{side} returned other rows than its batches' numbers say, or some twice.")
        expected = {
            "genes": (self.case.cells, len(truth.genes), truth.gene_elements, truth.gene_total),
            "chosen": (truth.chosen, self.case.genes, truth.chosen_elements, truth.chosen_total),
            "everything": (self.case.cells, self.case.genes, truth.elements, truth.total),
        }
        for name in expected.keys() & answers.keys():
            found = answers[name]
            *numbers, total = expected[name]
            if [*found["shape"], found["elements"]] != numbers or not math.isclose(found["total"], total):
                raise WrongAnswer(f"{side} returned {found} for {name}; {expected[name]} is right.")

    def add_answers(self, side: str, answers: dict[str, Any], ways: tuple[str, ...]) -> None:
        """Add the samples of one measurement to the rows of the given `ways`."""
        batches, size = answers["batches"], f"{self.case.batch:,}"
        rate = batches["cells"] / batches["seconds"]
        for way in ways:
            self.add(side, f"random batches of {size} rows, {way}", "cells/s", rate, higher=True)
            self.add(side, f"entropy of a batch, {way}", "of random", batches["entropy"], higher=True)
            self.add(side, f"memory of the batches, {way}", "MiB", batches["memory"] / 2**20)
            for name, what in (
                ("genes", f"{self.case.whole_genes} whole genes"),
                ("everything", "everything into a CSR"),
                ("chosen", "1 % of the cells by a predicate"),
            ):
                if name in answers:
                    self.add(side, f"{what}, {way}", "s", answers[name]["seconds"])

    def add_stored(self, side: str, form: Path, truth: Truth) -> None:
        """Add a sample of the bytes per element of `form`, a library's file or directory of the matrix."""
        self.add(side, "stored", "bytes/element", stored(form) / truth.elements)

    def add(self, side: str, name: str, unit: str, value: float, *, higher: bool = False) -> None:
        """Add a sample to the report."""
        self.bench.report.add(MeasuredMetric(WORKLOAD, name, unit, higher), side, value)

    @property
    def store(self) -> Path:
        """The directory of hsparse's store."""
        return self.bench.work / OURS


def place(base: str, **options: object) -> dict[str, Any]:
    """Return the arguments of hsparse's reader: both domains, at a URL or below a directory, and options of `open`."""
    return {"path": f"{base}{DOMAIN}", "options": {"training": f"{base}{TRAINING}", **options}}


def stored(form: Path) -> int:
    """Return the size in bytes of a file, or of all files of a directory; a server may change them meanwhile."""
    size = 0
    for path in [form] if form.is_file() else form.rglob("*"):
        with suppress(FileNotFoundError):
            size += path.stat().st_size if path.is_file() else 0
    return size
