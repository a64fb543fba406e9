"""TileDB: sparse arrays embedded in a separate process, without a network."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.child import ChildFailed
from benchmarks.environment import Environment
from benchmarks.workloads.case import Box, SparseCase

VERSION = "0.36.*"


def environment(bench: Path) -> Environment:
    """Return TileDB's environment."""
    return Environment(bench / "tiledb", (f"tiledb=={VERSION}", "numpy"))


@dataclass(slots=True)
class Worker:
    """A TileDB process; its arrays and its input columns are in `work`."""

    process: asyncio.subprocess.Process
    work: Path
    log: Path

    async def write(self, case: SparseCase, rows: int = 0) -> dict[str, Any]:
        """Write the case in one call, or `rows` rows per call; return seconds, times of the calls, and bytes."""
        job = {"op": "write", "array": str(self._array(case)), "rows": rows, "columns": self._columns(case)}
        return await self._do(job | {"extent": case.extent, "chunk": case.chunk})

    async def read(self, case: SparseCase, boxes: Sequence[Box] = ()) -> dict[str, Any]:
        """Read boxes, or everything; return times, counts and totals, one per box."""
        return await self._do({"op": "read", "array": str(self._array(case)), "boxes": list(boxes)})

    def _array(self, case: SparseCase) -> Path:
        return self.work / f"{case.name}.tdb"

    def _columns(self, case: SparseCase) -> list[str]:
        """Save the coordinates and values of a case as `.npy` files unless they exist; return the paths."""
        paths = [self.work / f"{case.name}.{i}.npy" for i in range(len(case.extent) + 1)]
        for path, column in zip(paths, [*case.points.coords, case.points.values], strict=True):
            if not path.exists():
                np.save(path, column)
        return [str(path) for path in paths]

    async def _do(self, job: dict[str, Any]) -> dict[str, Any]:
        if self.process.stdin is None or self.process.stdout is None:
            raise RuntimeError("The TileDB worker was started without pipes.")
        self.process.stdin.write(json.dumps(job).encode() + b"\n")
        await self.process.stdin.drain()
        line = await self.process.stdout.readline()
        if not line:
            raise ChildFailed(f"The TileDB worker ended: {self.log.read_text(errors='replace')[-2000:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer


@asynccontextmanager
async def embed(bench: Path, work: Path) -> AsyncIterator[Worker]:
    """Run a worker during the context."""
    folder = work / "tiledb"
    folder.mkdir(parents=True)
    log = work / "tiledb.log"
    with log.open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            environment(bench).python,
            "-P",  # otherwise this folder would hide the tiledb package
            Path(__file__).with_name("tiledb_worker.py"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            limit=2**24,
            start_new_session=True,
        )
    try:
        yield Worker(process, folder, log)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
