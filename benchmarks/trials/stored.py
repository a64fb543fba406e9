"""The trial `rfc-table`: the stored bytes of one chunk."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks import arrow
from benchmarks.bench import Bench
from benchmarks.peers.server import Server
from benchmarks.peers.tiledb import Worker
from benchmarks.report import MeasuredMetric
from benchmarks.trials import layout
from benchmarks.workloads.case import SparseCase
from benchmarks.workloads.points import dense_rows
from benchmarks.workloads.rfc_table import PATTERNS, PERCENTS, rfc_table


@dataclass(frozen=True, slots=True)
class StoredTrial:
    """Writes each pattern and percentage of the table once on each side, because sizes do not vary between repeats."""

    bench: Bench

    async def run(self) -> None:
        """Take all samples."""
        self.bench.report.remark(
            "`rfc-table`: the encoded selection is the chunk object without the values, which are random bytes. Both "
            "sections have shuffle and gzip 6, as in the RFC's table. The HDF5 prototype needs 1,654,231 bytes for 10 "
            "% random points, 184,324 after gzip; the information limit is 61.5 kB."
        )
        percents = (PERCENTS[-1],) if self.bench.quick else PERCENTS
        cases = [rfc_table(pattern, percent) for pattern in PATTERNS for percent in percents]
        async with self.bench.sides("rfc-table", "hsparse", "older", "hsds", "tiledb") as sides:
            for case in cases:
                for server in sides.servers():
                    await self.server(server, case)
                if (worker := sides.tiledb) is not None:
                    await self.tiledb(worker, case)

    def add(self, side: str, name: str, value: float) -> None:
        """Add a sample to the report."""
        self.bench.report.add(MeasuredMetric("rfc-table", name, "bytes", higher=False), side, value)

    async def server(self, server: Server, case: SparseCase) -> None:
        """Write the chunk, wait until it is stored, and count its bytes."""
        async with server.rest() as rest:
            await rest.domain(server.new_domain())
            if server.is_hsparse:
                dataset = await rest.dataset(layout.sparse(case, codec=layout.GZIP))
                await rest.write_points(dataset, arrow.encode(case.points))
            else:
                dataset = await rest.dataset(layout.dense(case))
                await rest.write(dataset, dense_rows(case.points, case.extent, 0, case.extent[0]).tobytes())
                await rest.flush()
        size = server.stored(dataset)
        self.add(server.name, case.name, size)
        if server.is_hsparse:
            self.add(server.name, f"{case.name}: encoded selection", size - len(case.points))

    async def tiledb(self, worker: Worker, case: SparseCase) -> None:
        """Write the chunk and count the bytes in the array's directory."""
        self.add("TileDB", case.name, (await worker.write(case))["bytes"])
