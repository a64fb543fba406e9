"""The libraries of the workload `cells`: TileDB-SOMA, AnnData and scDataset, in an environment of their own.

A turn is one measurement of one library. It is a new process, so that its memory contains nothing of the last turn.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.child import ChildFailed
from benchmarks.environment import Environment
from benchmarks.peers.hsparse import PROJECT

Json = dict[str, Any]
VERSIONED = ("tiledbsoma", "tiledbsoma_ml", "anndata", "zarr", "scdataset", "torch")
"""The packages whose versions a report names."""


@dataclass(frozen=True, slots=True)
class Library:
    """A library as a side; `form` is the file or directory that its reader opens, converted once from `cells.h5ad`.

    `reads_ahead` tells whether the library reads a batch together with later ones. Its rate then needs all batches.
    """

    side: str
    reader: str
    form: str
    reads_ahead: bool = False


LIBRARIES = (
    Library("TileDB-SOMA", "soma", "cells.soma", reads_ahead=True),
    Library("AnnData h5ad", "h5ad", "cells.h5ad"),
    Library("AnnData h5ad gzip", "gzip", "cells.gzip.h5ad"),
    Library("AnnData zarr", "zarr", "cells.zarr"),
    Library("scDataset", "scdataset", "cells.h5ad", reads_ahead=True),
)


def environment(bench: Path) -> Environment:
    """Return the libraries' environment; it has torch because two libraries import it."""
    packages = (
        "tiledbsoma==2.3.0",
        "tiledbsoma_ml==0.1.0",
        "scdataset==0.3.0",
        "anndata==0.12.19",
        "torch==2.13.0",
        "dask",
        "xarray",
        "zarrs==0.2.3",
    )
    return Environment(bench / "cells", packages)


async def prepare(library: Library, python: Path, folder: Path) -> None:
    """Convert `folder/cells.h5ad` to the file or directory that a library reads, unless it exists."""
    target = folder / library.form
    if target.exists():
        return
    partial = folder / f"partial-{library.form}"
    if partial.is_dir():
        shutil.rmtree(partial)
    partial.unlink(missing_ok=True)
    job = {"reader": library.reader, "prepare": str(folder / "cells.h5ad"), "path": str(partial)}
    await take_turn(python, job, folder / "prepare.log")
    partial.rename(target)


async def take_turn(python: Path, job: Json, log: Path) -> Json:
    """Run one turn in a process of `python` and return its answers; raise `ChildFailed` if the process fails."""
    with log.open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            python,
            "-m",
            "benchmarks.peers.cells.turn",
            json.dumps(job),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            cwd=PROJECT,
            env={**os.environ, "PYTHONPATH": str(PROJECT), "PYTHONWARNINGS": "ignore"},
            start_new_session=True,
        )
        try:
            out, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    if process.returncode:
        raise ChildFailed(f"A turn of {job['reader']} ended with {process.returncode}: {_tail(log)}")
    answer: Json = json.loads(out.splitlines()[-1])
    return answer


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:]
