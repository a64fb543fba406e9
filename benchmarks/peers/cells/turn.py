"""One turn of one library in the workload `cells`: `python -m benchmarks.peers.cells.turn JOB`.

JOB is JSON: `reader` (a name in `READERS`), `path` (opened by the reader with `options`), `files` (read once before, so
that the page cache has them), `size`, `seed`, `seconds` (after which no batch is begun), `n_genes` (a file), `genes`,
`cell_type` and `above`. Times and answers go to standard output as one line of JSON. With `prepare` instead of `size`
and the later keys, the file `prepare` is converted to the reader's own form.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

READERS = {
    "hsparse": ("hsparse_reader", "HsparseReader"),
    "soma": ("soma_reader", "SomaReader"),
    "h5ad": ("anndata_reader", "H5adReader"),
    "gzip": ("anndata_reader", "GzipReader"),
    "zarr": ("anndata_reader", "ZarrReader"),
    "scdataset": ("scdataset_reader", "ScDatasetReader"),
}
STRETCHES = 100
"""Number of stretches of consecutive rows into which the matrix is divided, to measure how random a batch is."""
PIECE = 1 << 22
Json = dict[str, Any]


def warm(path: Path) -> None:
    """Read a file, or all files of a directory."""
    for one in [path] if path.is_file() else sorted(path.rglob("*")):
        if one.is_file():
            with one.open("rb", buffering=0) as file:
                while file.read(PIECE):
                    pass


def high_mark() -> int:
    """Return the peak resident memory of this process in bytes."""
    status = Path("/proc/self/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


def entropy(rows: NDArray[Any], count: int) -> float:
    """Return the entropy in bits of the distribution of a batch's rows over the stretches of `count` rows."""
    share = np.bincount(rows * STRETCHES // count) / len(rows)
    share = share[share > 0]
    return float(-(share * np.log2(share)).sum())


def shuffle_quality(batches: list[NDArray[Any]], count: int) -> float:
    """Return the total entropy of batches, relative to that of batches of the same sizes drawn at random."""
    rng = np.random.default_rng(0)
    drawn = [entropy(rng.choice(count, len(rows), replace=False), count) for rows in batches]
    return sum(entropy(rows, count) for rows in batches) / sum(drawn)


def read_batches(reader: Any, job: Json) -> Json:
    """Read all rows once, or the batches that begin in time; return the time, memory, correctness and randomness."""
    seen: list[tuple[NDArray[Any], NDArray[Any]]] = []
    began = time.perf_counter()
    batches: Iterator[tuple[NDArray[Any], Any]] = reader.batches(job["size"], job["seed"])
    for rows, counts in batches:
        seen.append((rows, np.diff(counts.indptr)))
        if time.perf_counter() - began > job["seconds"]:
            break
    seconds = time.perf_counter() - began
    memory = high_mark()
    n_genes = np.load(job["n_genes"])
    rows = np.concatenate([rows for rows, _ in seen])
    full = [rows for rows, _ in seen if len(rows) == job["size"]]
    return {
        "seconds": seconds,
        "cells": len(rows),
        "memory": memory,
        "right": bool(all((n_genes[rows] == found).all() for rows, found in seen)),
        "distinct": len(np.unique(rows)),
        "entropy": shuffle_quality(full, len(n_genes)),
    }


def timed(read: Callable[[], Any]) -> Json:
    """Return the seconds of a read, and the number and the sum of its elements."""
    began = time.perf_counter()
    found = read()
    seconds = time.perf_counter() - began
    return {
        "seconds": seconds,
        "shape": list(found.shape),
        "elements": int(found.nnz),
        "total": float(found.data.sum(dtype=np.float64)),
    }


def turn(job: Json) -> Json:
    """Run a job: convert a file, or take all measurements that the reader supports and return them."""
    module, name = READERS[job["reader"]]
    kind = getattr(importlib.import_module(f"benchmarks.peers.cells.{module}"), name)
    if "prepare" in job:
        kind.prepare(job["prepare"], job["path"])
        return {}
    for path in job["files"]:
        warm(Path(path))
    reader = kind(job["path"], **job.get("options", {}))
    answers = {"batches": read_batches(reader, job)}
    if reader.genes is not None:
        reader.genes([0])  # preparations of the first read are not counted
        answers["genes"] = timed(lambda: reader.genes(job["genes"]))
        reader.chosen(job["cell_type"], job["above"])
        answers["chosen"] = timed(lambda: reader.chosen(job["cell_type"], job["above"]))
        answers["everything"] = timed(reader.everything)
    return answers


if __name__ == "__main__":
    print(json.dumps(turn(json.loads(sys.argv[1]))))
