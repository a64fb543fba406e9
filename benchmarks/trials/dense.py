"""The trial `dense`: a dense dataset, written and read by large, small, unaligned and scattered requests."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from benchmarks.bench import Bench, Measurement
from benchmarks.load import Load, drive
from benchmarks.peers.server import Server
from benchmarks.report import MeasuredMetric
from benchmarks.rest import BINARY, Rest
from benchmarks.trials.check import check_array
from benchmarks.workloads.case import Box
from benchmarks.workloads.dense import CHUNK, DenseCase

F64 = np.dtype("<f8")
MANY = "1 000 000 points read, p50"
"""A metric of hsparse only, with an absolute bound as its aim."""


@dataclass(frozen=True, slots=True)
class DenseTrial:
    """Measures the dense case on the servers and the bare handler; one client sends one request at a time."""

    bench: Bench
    case: DenseCase

    async def run(self) -> None:
        """Take all samples."""
        async with self.bench.sides("dense", "hsparse", "older", "hsds", "bare") as sides:
            turns: dict[str, Measurement] = {
                server.name: partial(self.server, server) for server in sides.servers()
            }
            if (bound := sides.bare) is not None:
                turns["bare"] = partial(self.bare, bound)
            await self.bench.in_turn("dense", turns)

    def requests(self) -> dict[str, tuple[Box, ...]]:
        """Return the boxes of a whole write or read, by the size of a request."""
        return {"16 MiB requests": self.case.bands(), "2 MiB requests": self.case.chunks()}

    def add(self, side: str, name: str, unit: str, value: float) -> None:
        """Add a sample to the report."""
        self.bench.report.add(MeasuredMetric("dense", name, unit, higher=unit == "MiB/s"), side, value)

    def add_rate(self, side: str, name: str, seconds: float) -> None:
        self.add(side, name, "MiB/s", self.case.values.nbytes / 2**20 / seconds)

    async def server(self, server: Server) -> None:
        """Write and read a new dataset for each size of request, then small pieces of the last dataset."""
        layout = {"class": "H5D_CHUNKED", "dims": list(CHUNK)}
        shape = {"type": "H5T_IEEE_F64LE", "shape": list(self.case.extent)}
        async with server.rest() as rest:
            await rest.domain(server.new_domain())
            for name, boxes in self.requests().items():
                dataset = await rest.dataset(shape | {"creationProperties": {"layout": layout}})
                await self.write(server, rest, dataset, name, boxes)
                read = await self.read(rest, dataset, boxes)
                self.add_rate(server.name, f"read, {name}", read.seconds)
                check_array(server.name, await rest.read(dataset, boxes[-1], F64), self.piece(boxes[-1]))
            slabs = self.case.hyperslabs()
            load = await self.read(rest, dataset, slabs)
            self.add(server.name, "1 MiB hyperslab read, p50", "ms", load.percentile(50))
            check_array(server.name, await rest.read(dataset, slabs[0], F64), self.piece(slabs[0]))
            await self.points(server.name, rest, dataset)
            if server.is_hsparse:
                await self.many_points(server.name, rest, dataset)

    async def write(self, server: Server, rest: Rest, dataset: str, name: str, boxes: Sequence[Box]) -> None:
        """Write every box, one after another."""
        bodies = [self.piece(box).tobytes() for box in boxes]
        load = await drive(lambda i: rest.write(dataset, bodies[i], boxes[i]), len(boxes))
        self.add_rate(server.name, f"write, {name}", load.seconds)
        if not server.durable:
            began = time.perf_counter()
            await rest.flush()
            self.add_rate("HSDS flushed", f"write, {name}", load.seconds + time.perf_counter() - began)

    async def read(self, rest: Rest, dataset: str, boxes: Sequence[Box]) -> Load:
        """Read every box, one after another."""
        return await drive(lambda i: rest.read(dataset, boxes[i], F64), len(boxes))

    async def points(self, side: str, rest: Rest, dataset: str) -> None:
        """Read lists of 10 000 points; coordinates and values are binary."""
        lists = self.case.coordinates()
        bodies = [coords.tobytes() for coords in lists]

        async def read(i: int) -> bytes:
            return await self.ask_points(rest, dataset, bodies[i])

        load = await drive(read, len(bodies))
        self.add(side, "10 000 points read, p50", "ms", load.percentile(50))
        check_array(side, np.frombuffer(await read(0), F64), self.case.values[tuple(lists[0].T)])

    async def many_points(self, side: str, rest: Rest, dataset: str) -> None:
        """Read a million points in one request; coordinates and values are binary."""
        coords = self.case.scattered()
        body = coords.tobytes()
        load = await drive(lambda _: self.ask_points(rest, dataset, body), 5)
        self.add(side, MANY, "ms", load.percentile(50))
        read = await self.ask_points(rest, dataset, body)
        check_array(side, np.frombuffer(read, F64), self.case.values[tuple(coords.T)])

    async def ask_points(self, rest: Rest, dataset: str, body: bytes) -> bytes:
        """Send coordinates; return the values at them."""
        return await rest.send("POST", f"/datasets/{dataset}/value", body, content=BINARY, accept=BINARY)

    async def bare(self, server: Server) -> None:
        """Send and receive the same numbers of bytes, with the bare handler."""
        async with server.rest() as rest:
            for name, boxes in self.requests().items():
                body = self.piece(boxes[0]).tobytes()
                self.add_rate(
                    "bare", f"write, {name}", (await self.same(rest, len(boxes), "PUT", body)).seconds
                )
                read = await self.same(rest, len(boxes), "GET", None, len(body))
                self.add_rate("bare", f"read, {name}", read.seconds)
            slab = await self.same(rest, 50, "GET", None, 2**20)
            self.add("bare", "1 MiB hyperslab read, p50", "ms", slab.percentile(50))
            coords = self.case.coordinates(1)[0]
            points = await self.same(rest, 10, "POST", coords.tobytes(), len(coords) * F64.itemsize)
            self.add("bare", "10 000 points read, p50", "ms", points.percentile(50))

    async def same(self, rest: Rest, count: int, method: str, body: bytes | None, size: int = 0) -> Load:
        """Send the same request `count` times; each answer has `size` bytes."""
        send = partial(rest.send, method, "/value", body, params={"bytes": str(size)}, content=BINARY)
        return await drive(lambda _: send(accept=BINARY), count)

    def piece(self, box: Box) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
        """Return the values of a box."""
        (top, left), (bottom, right) = box
        return self.case.values[top:bottom, left:right]
