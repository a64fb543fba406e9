"""The trial `reduce`: mean and variance of a matrix's columns, by the server, and by a client that reads the matrix."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks import arrow
from benchmarks.bench import Bench
from benchmarks.peers.server import Server
from benchmarks.report import MeasuredMetric
from benchmarks.rest import BINARY, Rest
from benchmarks.trials import layout
from benchmarks.trials.check import WrongAnswer
from benchmarks.workloads.case import SparseCase
from benchmarks.workloads.points import PointData

WORKLOAD = "reduce"
LINK = 125e6
"""Bytes per second of a link of 1 Gbit/s."""
WHAT = "mean and variance a column"
REMARK = (
    "`reduce`: the matrix of `single-cell`, undefined elements as zeros; chunks are cached. `read and reduced` reads "
    "all as Arrow, for `numpy.bincount`. At 1 Gbit/s: with the time that the answer's bytes take on such a link."
)


@dataclass(frozen=True, slots=True)
class ReduceTrial:
    """Reduces one matrix by the server and by a client, in turn."""

    bench: Bench
    case: SparseCase

    async def run(self) -> None:
        """Write the matrix once and take all samples."""
        self.bench.report.remark(REMARK)
        async with self.bench.sides(WORKLOAD, "hsparse") as sides:
            server = sides.hsparse
            if server is None:
                return
            async with server.rest() as rest:
                await rest.domain(server.new_domain())
                dataset = await rest.dataset(layout.sparse(self.case))
                for start in range(0, self.case.extent[0], self.case.block):
                    points = self.case.points.rows(start, start + self.case.block)
                    await rest.write_points(dataset, arrow.encode(points))
                await self.reduced(server, rest, dataset, counts=False)  # loads the chunks
                for _ in range(self.bench.repeats):
                    await self.reduced(server, rest, dataset)
                    await self.read(server, rest, dataset)

    async def reduced(self, server: Server, rest: Rest, dataset: str, *, counts: bool = True) -> None:
        """Let the server reduce the matrix, and check the result."""
        params = {"op": "mean,var", "axis": "0", "undefined": "fill"}
        began = time.perf_counter()
        data = await rest.send("GET", f"/datasets/{dataset}/reduce", params=params, accept=BINARY)
        seconds = time.perf_counter() - began
        found = np.frombuffer(data, "<f8").reshape(2, -1)
        self.check(found)
        if counts:
            self.add(server, "by the server", seconds, len(data))

    async def read(self, server: Server, rest: Rest, dataset: str) -> None:
        """Read the whole matrix and reduce it in the client."""
        params = {"sparse": "1"}
        began = time.perf_counter()
        data = await rest.send("GET", f"/datasets/{dataset}/value", params=params, accept=arrow.MEDIA_TYPE)
        found = moments(arrow.decode(data), self.case.extent)
        seconds = time.perf_counter() - began
        self.check(found)
        self.add(server, "read and reduced", seconds, len(data))

    def check(self, found: NDArray[np.float64]) -> None:
        """Raise `WrongAnswer` unless the result matches the written points."""
        if not np.allclose(found, moments(self.case.points, self.case.extent), rtol=1e-9):
            raise WrongAnswer("hsparse returned other means and variances than the points have.")

    def add(self, server: Server, way: str, seconds: float, nbytes: int) -> None:
        """Add the samples of one answer."""
        for name, unit, value in (
            (f"{WHAT}, {way}", "s", seconds),
            (f"{WHAT}, {way}, at 1 Gbit/s", "s", seconds + nbytes / LINK),
            (f"bytes sent, {way}", "MB", nbytes / 1e6),
        ):
            self.bench.report.add(MeasuredMetric(WORKLOAD, name, unit, higher=False), server.name, value)


def moments(points: PointData, extent: tuple[int, ...]) -> NDArray[np.float64]:
    """Return mean and variance of each column, (2, columns) float64; undefined elements count as zeros."""
    rows, columns = extent
    column, values = points.coords[1], points.values.astype(np.float64)
    mean = np.bincount(column.astype(np.intp), values, columns) / rows
    away = (values - mean[column]) ** 2
    count = np.bincount(column.astype(np.intp), minlength=columns)
    squares = np.bincount(column.astype(np.intp), away, columns) + (rows - count) * mean**2
    return np.stack((mean, squares / rows))
