"""Worker with embedded TileDB, run in TileDB's own environment and controlled by JSON lines on standard input.

The worker imports nothing of this project, because its environment does not have it. Times are measured here, around
TileDB's calls only.
"""

from __future__ import annotations

import itertools
import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import tiledb  # type: ignore[import-not-found]


def schema(extent: list[int], chunk: list[int], dtype: str) -> tiledb.ArraySchema:
    """Return the schema of a sparse array with uint32 dimensions, whose tiles have the shape `chunk`."""
    coordinate = tiledb.FilterList(
        [tiledb.DoubleDeltaFilter(), tiledb.BitWidthReductionFilter(), tiledb.ZstdFilter(level=3)]
    )
    dims = [
        tiledb.Dim(
            name=f"dim_{i}",
            domain=(0, size - 1),
            tile=min(tile, size),
            dtype=np.uint32,
            filters=coordinate,
        )
        for i, (size, tile) in enumerate(zip(extent, chunk, strict=True))
    ]
    shuffle = [tiledb.ByteShuffleFilter()] if np.dtype(dtype).itemsize > 1 else []
    value = tiledb.Attr(
        name="value", dtype=dtype, filters=tiledb.FilterList([*shuffle, tiledb.ZstdFilter(level=3)])
    )
    return tiledb.ArraySchema(
        domain=tiledb.Domain(*dims),
        attrs=[value],
        sparse=True,
        capacity=100_000,
        cell_order="row-major",
        tile_order="row-major",
        allows_duplicates=False,
    )


def load(job: dict[str, Any]) -> list[np.ndarray]:
    """Load the coordinate columns, and the values as the last column, from the job's files."""
    return [np.load(path) for path in job["columns"]]


def write(job: dict[str, Any]) -> dict[str, Any]:
    """Create the array and write all points in one call, or in calls of `job["rows"]` rows each if that is not 0."""
    *coords, values = load(job)
    coords = [column.astype(np.uint32) for column in coords]
    shutil.rmtree(job["array"], ignore_errors=True)
    tiledb.Array.create(job["array"], schema(job["extent"], job["chunk"], values.dtype.name))
    edges = [0, len(values)]
    if job["rows"]:
        starts = np.arange(0, job["extent"][0] + job["rows"], job["rows"])
        edges = np.searchsorted(coords[0], starts).tolist()
    pieces = [
        (tuple(column[a:b] for column in coords), values[a:b]) for a, b in itertools.pairwise(edges) if b > a
    ]
    times = []
    began = time.perf_counter()
    for place, piece in pieces:
        start = time.perf_counter()
        with tiledb.open(job["array"], "w") as array:
            array[place] = piece
        times.append(time.perf_counter() - start)
    seconds = time.perf_counter() - began
    size = sum(path.stat().st_size for path in Path(job["array"]).rglob("*") if path.is_file())
    return {"seconds": seconds, "times": times, "bytes": size}


def read(job: dict[str, Any]) -> dict[str, Any]:
    """Read each of `job["boxes"]` (start, stop), or everything without boxes; the array is opened once."""
    times, counts, totals = [], [], []
    with tiledb.open(job["array"]) as array:
        if not job["boxes"]:
            start = time.perf_counter()
            found = array[:]
            times.append(time.perf_counter() - start)
            counts.append(len(found["value"]))
            totals.append(float(found["value"].sum(dtype=np.float64)))
        for low, high in job["boxes"]:
            start = time.perf_counter()
            found = array[tuple(slice(a, b) for a, b in zip(low, high, strict=True))]
            times.append(time.perf_counter() - start)
            counts.append(len(found["value"]))
            totals.append(float(found["value"].sum(dtype=np.float64)))
    return {"times": times, "counts": counts, "totals": totals}


def main() -> None:
    """Answer each line of standard input with one line."""
    jobs = {"write": write, "read": read}
    for line in sys.stdin:
        job = json.loads(line)
        print(json.dumps(jobs[job["op"]](job)), flush=True)


if __name__ == "__main__":
    main()
