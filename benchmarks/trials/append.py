"""The append trial: hsparse appends frames by one request; on HSDS a second request writes after the extent is grown.

Over S3, only hsparse is measured.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial

import numpy as np

from benchmarks import arrow
from benchmarks.bench import Bench, Measurement
from benchmarks.load import drive
from benchmarks.peers.server import Server
from benchmarks.peers.slow_s3 import SlowS3, serve_from_s3
from benchmarks.peers.slow_s3_server import DELAY
from benchmarks.peers.tiledb import Worker
from benchmarks.report import OURS, MeasuredMetric
from benchmarks.rest import Rest
from benchmarks.trials import layout
from benchmarks.trials.check import check_array, check_points
from benchmarks.workloads.case import SparseCase
from benchmarks.workloads.points import dense_rows


@dataclass(frozen=True, slots=True)
class Manner:
    """The number of frames per request, and the number of concurrent clients."""

    frames: int
    clients: int
    on_s3: bool = False

    @property
    def name(self) -> str:
        clients = f"{self.clients} client{'s' * (self.clients > 1)}"
        place = f", S3 of {DELAY * 1000:.0f} ms" if self.on_s3 else ""
        return f"append {self.frames} a request, {clients}{place}"


MANNERS = (Manner(1, 1), Manner(1, 16), Manner(16, 1))
ON_S3 = (Manner(1, 16, on_s3=True),)


@dataclass(frozen=True, slots=True)
class AppendTrial:
    """The workload `lcls-points`, appended frame by frame."""

    bench: Bench
    case: SparseCase

    async def run(self) -> None:
        """Take all samples."""
        self.bench.report.remark(
            "Appended frames go to HSDS as dense frames, by hyperslab, its faster way, after a request that grows the "
            "dataset."
        )
        async with self.bench.sides(
            f"{self.case.name}-append", "hsparse", "older", "hsds", "tiledb"
        ) as sides:
            for manner in MANNERS:
                turns: dict[str, Measurement] = {
                    server.name: partial(self.server, server, manner) for server in sides.servers()
                }
                if (worker := sides.tiledb) is not None and manner.clients == 1:
                    turns["TileDB"] = partial(self.tiledb, worker, manner)
                await self.bench.in_turn(f"{self.case.name}, {manner.name}", turns)
        if "hsparse" in self.bench.peers:
            self.bench.tell(f"{self.case.name}: starting an S3 server")
            work = self.bench.work / f"{self.case.name}-s3"
            work.mkdir()
            async with serve_from_s3(work, self.bench.serve) as store:
                for manner in ON_S3:
                    await self.alone(manner, partial(self.server, store.hsparse, manner, store))

    async def alone(self, manner: Manner, measurement: Measurement) -> None:
        """Take samples of hsparse only, in a manner that no other side supports."""
        await self.bench.in_turn(f"{self.case.name}, {manner.name}", {OURS: measurement})

    def add(self, side: str, manner: Manner, seconds: float, latencies: list[float]) -> None:
        """Add a sample of the rate, and of the 99th percentile of the latencies."""
        rate = MeasuredMetric(self.case.name, manner.name, "frames/s", higher=True)
        self.bench.report.add(rate, side, self.case.extent[0] / seconds)
        if side != "HSDS flushed":
            slow = MeasuredMetric(self.case.name, f"{manner.name}, p99", "ms", higher=False)
            self.bench.report.add(slow, side, float(np.percentile(latencies, 99)) * 1e3)

    async def server(self, server: Server, manner: Manner, store: SlowS3 | None = None) -> None:
        """Append every frame; the bodies of all requests are encoded before the clock starts."""
        case, latencies = self.case, []
        bodies = self.bodies(server, manner)
        async with server.rest() as rest:
            await rest.domain(server.new_domain())
            dataset = await rest.dataset((layout.sparse if server.is_hsparse else layout.dense)(case, rows=0))

            async def append(number: int) -> None:
                began = time.perf_counter()
                if server.is_hsparse:
                    await rest.append_points(dataset, bodies[number], manner.frames)
                else:
                    await self.extend_and_write(rest, dataset, bodies, manner)
                latencies.append(time.perf_counter() - began)

            puts, start = 0 if store is None else await store.puts(), time.perf_counter()
            load = await drive(append, len(bodies), manner.clients)
            self.add(server.name, manner, load.seconds, latencies)
            if store is not None:
                rate = MeasuredMetric(case.name, f"{manner.name}, puts", "puts/s", higher=False)
                seconds = time.perf_counter() - start
                self.bench.report.add(rate, server.name, (await store.puts() - puts) / seconds)
            if not server.durable:
                began = time.perf_counter()
                await rest.flush()
                self.add("HSDS flushed", manner, load.seconds + time.perf_counter() - began, latencies)
            await self.check(server, rest, dataset)

    async def extend_and_write(self, rest: Rest, dataset: str, bodies: list[bytes], manner: Manner) -> None:
        """Grow the extent by the frames of one request, and write the body for the new part."""
        first = await rest.extend(dataset, manner.frames)
        box = (first, 0, 0), (first + manner.frames, *self.case.extent[1:])
        await rest.write(dataset, bodies[first // manner.frames], box)

    def bodies(self, server: Server, manner: Manner) -> list[bytes]:
        """Return the bodies of the writes, by the number of the request."""
        case, starts = self.case, range(0, self.case.extent[0], manner.frames)
        if server.is_hsparse:
            frames = [(start, case.points.rows(start, start + manner.frames)) for start in starts]
            return [arrow.encode(points.from_row(start)) for start, points in frames]
        return [
            dense_rows(case.points, case.extent, start, start + manner.frames).tobytes() for start in starts
        ]

    async def check(self, server: Server, rest: Rest, dataset: str) -> None:
        """Compare the stored data with the frames: all of them if that is cheap, otherwise the first 16."""
        case = self.case
        if server.is_hsparse:
            found = await rest.read_points(dataset)
            check_points(server.name, len(found), found.total(), case.points)
            return
        stop = min(16, case.extent[0])
        found_rows = await rest.read(dataset, ((0, 0, 0), (stop, *case.extent[1:])), case.dtype)
        check_array(server.name, found_rows, dense_rows(case.points, case.extent, 0, stop))

    async def tiledb(self, worker: Worker, manner: Manner) -> None:
        """Append with TileDB, which writes a fragment per call."""
        written = await worker.write(self.case, manner.frames)
        self.add("TileDB", manner, written["seconds"], written["times"])
