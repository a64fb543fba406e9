"""A single-cell matrix read as analyses and training read it: hsparse in three ways against the libraries."""

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
"""How hsparse reads: from a server as from one of another machine, from its directory, and without a server."""
DOMAIN, TRAINING = "/home/bench/cells.h5ad", "/home/bench/training.h5ad"
"""The file as it is imported by default, and with chunks of whole rows."""
ROWS_A_CHUNK = 64
SECONDS, ALL = 10.0, 90.0
"""After which no further batch is begun, of readers of one batch after the other and of those that read ahead."""
REMARKS = (
    "`cells`: {elements:,} elements of {cells:,} cells x {genes:,} genes, float32 counts; gene frequencies and library "
    "sizes are log-normal. Every turn is a new process; the page cache has all files when its clock starts, and "
    "libraries, scipy among them, are imported and files opened. Each read but the batches comes after another one of "
    "its kind, so first use does not count.",
    "`cells`, random batches: all rows once, of AnnData as many batches as begin within {seconds:.0f} s; each comes as "
    "a CSR with the cells' numbers. hsparse: `hsparse.Batches` over a second import by `--chunk 64x100000`, as the "
    "page on imports says for training; the other rows are of a default import. AnnData: random rows, `data[rows]`. "
    "TileDB-SOMA: `tiledbsoma_ml.ExperimentDataset` with its defaults (chunks of 64 rows, 65,536 rows at a time). "
    "scDataset: `BlockShuffling(16)` over the plain h5ad, 4 batches a fetch. The entropy says how random: that of the "
    "100 stretches of consecutive rows from which a batch's rows come, as a part of that of rows drawn at random. "
    "Memory is the most that the reading process ever held, libraries included; over HTTP the server's is not in it.",
    "`cells`: `AnnData h5ad` is what `write_h5ad` writes by default, without compression: reading it is copying from "
    "the page cache. `AnnData h5ad gzip` is the same file compressed, as most published ones are. `AnnData zarr` is "
    "format 3 with the codecs of zarrs. TileDB-SOMA reads columns and everything as tables, which is faster than its "
    "`to_anndata`. The predicate is a cell type and a least number of genes.",
    "`cells`, over HTTP: as `hsparse.open(url)` reads from a server of another machine. If a read takes much of its "
    "chunks, the server sends these as they are stored and the client decodes them; else the server sends the values. "
    "The network is the loopback interface, and both processes share the cores.",
    "`cells`, where hsparse loses: reading a plain h5ad is copying 480 MB, or the rows that were chosen. hsparse "
    "stores a fifth of the bytes and decodes them: about 12 ns of a core for an element, 0.7 s for all, more than half "
    "of it in inflating. Cells chosen by a predicate are in all of its chunks, so all of these are decoded for 1 % of "
    "the rows.",
    "`cells`, where hsparse is ahead by less than its aim: 20 genes are in 140 of the default import's chunks, which "
    "have 16,384 cells and 66 genes, so 66 elements are decoded for each that is asked for: 0.08 s of a core when read "
    "directly, of which 40 % is inflating and, since a chunk has only 30,000 elements, a quarter calls of Python. Over "
    "HTTP the server shares the two cores. AnnData copies the whole plain h5ad for them, and chooses the columns.",
)


@dataclass(frozen=True, slots=True)
class CellsTrial:
    """One case against every library."""

    bench: Bench
    case: CellsCase

    async def run(self) -> None:
        """Make what is not there yet and take all samples."""
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
                await rest.domain(server.new_domain())  # and with it the folder
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
        """Take the turn of one way; the embedded one has the directory for itself."""
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
        """Take a library's turn; its figures stand in the rows of all three ways."""
        form = str(folder / library.form)
        job = self.job(folder, truth) | {"reader": library.reader, "path": form, "files": [form]}
        job |= {} if library.reads_ahead else {"seconds": SECONDS}
        python = environment(self.bench.folder).python
        answers = await take_turn(python, job, self.bench.work / "turn.log")
        self.check(library.side, answers, truth)
        self.add_answers(library.side, answers, WAYS)

    def job(self, folder: Path, truth: Truth) -> dict[str, Any]:
        """Return what all turns are told."""
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
        """Raise `WrongAnswer` unless a turn read what the file has."""
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
        """Add a turn's samples to the rows of some ways."""
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
        """Add the bytes that a form of the matrix and its tables takes."""
        self.add(side, "stored", "bytes/element", stored(form) / truth.elements)

    def add(self, side: str, name: str, unit: str, value: float, *, higher: bool = False) -> None:
        """Add a sample."""
        self.bench.report.add(MeasuredMetric(WORKLOAD, name, unit, higher), side, value)

    @property
    def store(self) -> Path:
        """The directory of hsparse's store."""
        return self.bench.work / OURS


def place(base: str, **options: object) -> dict[str, Any]:
    """Return what a reader of hsparse is told: both domains at a URL or below a directory, and how to open them."""
    return {"path": f"{base}{DOMAIN}", "options": {"training": f"{base}{TRAINING}", **options}}


def stored(form: Path) -> int:
    """Return the bytes of a file, or of all files of a directory, which a server may be changing."""
    size = 0
    for path in [form] if form.is_file() else form.rglob("*"):
        with suppress(FileNotFoundError):
            size += path.stat().st_size if path.is_file() else 0
    return size
