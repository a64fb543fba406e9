"""The trial of a sparse workload: writes it, reads it whole and by boxes, and counts its stored bytes."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import hsparse
from benchmarks import arrow
from benchmarks.bench import Bench, Measurement
from benchmarks.load import drive
from benchmarks.peers.server import Server
from benchmarks.peers.tiledb import Worker
from benchmarks.report import MeasuredMetric
from benchmarks.rest import Rest
from benchmarks.trials import layout
from benchmarks.trials.check import check_array, check_points
from benchmarks.workloads.case import Box, SparseCase
from benchmarks.workloads.points import PointData, dense_rows

IN_FLIGHT = 4
READS = {"read all": False, "read all, direct": True}
"""Whether the Python client reads directly from the store, by the name of the row."""


@dataclass(frozen=True, slots=True)
class SparseTrial:
    """One case, measured on every side."""

    bench: Bench
    case: SparseCase

    async def run(self) -> None:
        """Take all samples."""
        case, wanted = self.case, ["hsparse", "older", "tiledb"]
        if case.dense_chunk is None:
            size = np.prod(case.extent, dtype=float) * case.dtype.itemsize / 2**30
            self.bench.report.remark(
                f"`{case.name}` is not run on HSDS: its points touch every chunk of a dense {size:.0f} GiB."
            )
        else:
            wanted.append("hsds")
        async with self.bench.sides(case.name, *wanted) as sides:
            turns: dict[str, Measurement] = {
                server.name: partial(self.hsparse if server.is_hsparse else self.hsds, server)
                for server in sides.servers()
            }
            if (worker := sides.tiledb) is not None:
                turns["TileDB"] = partial(self.tiledb, worker)
            await self.bench.in_turn(case.name, turns)

    def add(self, side: str, name: str, unit: str, value: float, *, higher: bool = False) -> None:
        """Add a sample to the report."""
        self.bench.report.add(MeasuredMetric(self.case.name, name, unit, higher), side, value)

    def add_write(self, side: str, seconds: float) -> None:
        self.add(side, "write", "million points/s", len(self.case.points) / seconds / 1e6, higher=True)

    def add_stored(self, side: str, size: int) -> None:
        self.add(side, "stored", "bytes/point", size / len(self.case.points))

    async def hsparse(self, server: Server) -> None:
        """Write blocks of points, a few concurrently; read all points at once, and boxes one after another."""
        case = self.case
        starts = range(0, case.extent[0], case.block)
        bodies = [arrow.encode(case.points.rows(start, start + case.block)) for start in starts]
        async with server.rest() as rest:
            domain = server.new_domain()
            await rest.domain(domain)
            dataset = await rest.dataset(layout.sparse(case))
            write = await drive(lambda i: rest.write_points(dataset, bodies[i]), len(bodies), IN_FLIGHT)
            self.add_write(server.name, write.seconds)
            self.add_stored(server.name, server.stored(dataset))
            await self.read_all(server, rest, domain, dataset)
            boxes = await drive(lambda i: rest.read_points(dataset, case.boxes[i]), len(case.boxes))
            self.add(server.name, "box, p50", "ms", boxes.percentile(50))
            for box in case.boxes[:2]:
                found = await rest.read_points(dataset, box)
                check_points(server.name, len(found), found.total(), case.points.inside(*box))

    async def read_all(self, server: Server, rest: Rest, domain: str, dataset: str) -> None:
        """Read all points with the Python client, from the server and directly from its store."""
        await rest.json("PUT", f"/groups/{rest.root}/links/points", {"id": dataset})
        for name, direct in READS.items():
            seconds, found = await asyncio.to_thread(read_by_client, server, domain, direct)
            self.add(server.name, name, "s", seconds)
            check_points(server.name, len(found), found.total(), self.case.points)

    async def hsds(self, server: Server) -> None:
        """Write and read the dense dataset in bands of whole rows; building the bands is not timed."""
        case, seconds = self.case, 0.0
        async with server.rest() as rest:
            await rest.domain(server.new_domain())
            dataset = await rest.dataset(layout.dense(case))
            for box in self.bands():
                body = dense_rows(case.points, case.extent, box[0][0], box[1][0]).tobytes()
                began = time.perf_counter()
                await rest.write(dataset, body, box)
                seconds += time.perf_counter() - began
            self.add_write("HSDS", seconds)
            began = time.perf_counter()
            await rest.flush()
            self.add_write("HSDS flushed", seconds + time.perf_counter() - began)
            self.add_stored("HSDS", server.stored(dataset))
            began = time.perf_counter()
            for box in self.bands():
                await rest.read(dataset, box, case.dtype)
            self.add("HSDS", "read all", "s", time.perf_counter() - began)
            boxes = await drive(lambda i: rest.read(dataset, case.boxes[i], case.dtype), len(case.boxes))
            self.add("HSDS", "box, p50", "ms", boxes.percentile(50))
            box = self.bands()[0]
            expected = dense_rows(case.points, case.extent, box[0][0], box[1][0])
            check_array("HSDS", await rest.read(dataset, box, case.dtype), expected)

    async def tiledb(self, worker: Worker) -> None:
        """Write and read all points in one call each, and read boxes one after another."""
        case = self.case
        written = await worker.write(case)
        self.add_write("TileDB", written["seconds"])
        self.add_stored("TileDB", written["bytes"])
        whole = await worker.read(case)
        for name in READS:
            self.add("TileDB", name, "s", whole["times"][0])
        check_points("TileDB", whole["counts"][0], whole["totals"][0], case.points)
        boxes = await worker.read(case, case.boxes)
        self.add("TileDB", "box, p50", "ms", float(np.median(boxes["times"])) * 1e3)
        check_points("TileDB", boxes["counts"][0], boxes["totals"][0], case.points.inside(*case.boxes[0]))

    def bands(self) -> list[Box]:
        """Return the boxes of the dense dataset's requests."""
        rows, *rest = self.case.extent
        starts = range(0, rows, self.case.dense_rows)
        return [
            ((start, *(0 for _ in rest)), (min(rows, start + self.case.dense_rows), *rest))
            for start in starts
        ]


def read_by_client(server: Server, domain: str, direct: bool) -> tuple[float, PointData]:
    """Read the dataset `points` of a domain with the Python client; return the seconds and the points."""
    user, password = server.auth or (None, None)
    opened: Any = hsparse.open(server.base + domain, user=user, password=password, direct=direct)
    with opened as file:
        dataset = file["points"]
        began = time.perf_counter()
        table = dataset.to_arrow(progress=False)
        seconds = time.perf_counter() - began
    *coords, values = (column.to_numpy() for column in table.columns)
    return seconds, PointData(tuple(coords), values)
