"""The libraries of the workload `cells`: TileDB-SOMA, AnnData and scDataset, in an environment of their own.

A turn is a process, so that its memory is its own and nothing of the last turn is left in it.
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
    """A library as a side; `form` is the file or directory that its reader opens, made once of `cells.h5ad`."""

    side: str
    reader: str
    form: str


LIBRARIES = (
    Library("TileDB-SOMA", "soma", "cells.soma"),
    Library("AnnData h5ad", "h5ad", "cells.h5ad"),
    Library("AnnData h5ad gzip", "gzip", "cells.gzip.h5ad"),
    Library("AnnData zarr", "zarr", "cells.zarr"),
    Library("scDataset", "scdataset", "cells.h5ad"),
)


def environment(bench: Path) -> Environment:
    """Return the libraries' environment; torch is what two of them import."""
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
    """Make a library's form of `folder/cells.h5ad`, unless it is there."""
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
    """Run one turn in a process of `python` and return its answers; `ChildFailed` with the end of its log."""
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
