"""`memory`: one answer of 2 GB from a server that may hold 512 MiB.

What is bounded is resident memory, which `ulimit -v` does not measure: it limits addresses, of which
an allocator reserves far more than it touches. A cgroup would need rights over the machine that a
benchmark should not ask for, and moving a process out of its own group undoes whatever was set there.
So the kernel's own high mark of each process, `VmHWM` in `/proc/PID/status`, is read while the server
works and the benchmark fails when the marks of all its processes together pass the limit. No peak is
missed between two readings, and the sum errs on the strict side: it counts mapped libraries, and
peaks of several processes as if they came at one time.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.bench import Bench
from benchmarks.failure import Failed
from benchmarks.peers import hsparse
from benchmarks.report import Metric
from benchmarks.rest import BINARY, Rest
from benchmarks.trials.check import WrongAnswer

LIMIT = 512 * 2**20
ROWS, COLUMNS = 65_536, 4_096  # 2 GiB of float64
BAND = 512


class TooMuchMemory(Failed):
    """The server held more than the limit."""


def high_marks(leader: int) -> dict[int, int]:
    """Return, by process id, the most bytes each process in the session of `leader` ever held."""
    marks = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            session = int((folder / "stat").read_text().rpartition(")")[2].split()[3])
            if session != leader:
                continue
            status = (folder / "status").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended while it was looked at
        lines = [line.split() for line in status.splitlines() if line.startswith("VmHWM:")]
        marks[int(folder.name)] = sum(int(words[1]) for words in lines) * 1024
    return marks


@dataclass(slots=True)
class Watch:
    """Reads a session's high marks; `marks` has the last one of every process, in bytes."""

    leader: int
    marks: dict[int, int] = field(default_factory=dict)
    stopped: bool = False

    @property
    def peak(self) -> int:
        return sum(self.marks.values())

    async def run(self) -> None:
        """Read every 50 ms until stopped, and once more; `TooMuchMemory` beyond the limit."""
        last = False
        while not last:
            last = self.stopped
            self.marks |= await asyncio.to_thread(high_marks, self.leader)
            if self.peak > LIMIT:
                raise TooMuchMemory(f"The server held {self.peak >> 20} MiB; the limit is {LIMIT >> 20} MiB.")
            await asyncio.sleep(0.05)


async def run(bench: Bench) -> None:
    """Write the dataset, read it in one request, and add the time and the peak."""
    if "hsparse" not in bench.peers:
        return
    rows = 4_096 if bench.quick else ROWS
    size = rows * COLUMNS * 8 / 2**20
    bench.tell("memory: starting hsparse")
    async with hsparse.serve(bench.work, bench.serve) as server, server.rest() as rest:
        watch = Watch(server.children[0].pid)
        async with asyncio.TaskGroup() as group:
            group.create_task(watch.run())
            bench.tell(f"memory: writing {size:.0f} MiB")
            dataset = await fill(rest, server.new_domain(), rows)
            bench.tell("memory: reading it in one request")
            seconds = await drain(rest, dataset, rows)
            watch.stopped = True
    name = f"answer of {size:.0f} MiB"
    bench.report.add(Metric("memory", f"{name}: most resident", "MiB", False), "hsparse", watch.peak / 2**20)
    bench.report.add(Metric("memory", f"{name}: rate", "MiB/s", True), "hsparse", size / seconds)


async def fill(rest: Rest, domain: str, rows: int) -> str:
    """Write `rows` rows in requests of 16 MiB; return the dataset's id."""
    await rest.domain(domain)
    layout = {"class": "H5D_CHUNKED", "dims": [BAND, 512]}
    dataset = await rest.dataset(
        {"type": "H5T_IEEE_F64LE", "shape": [rows, COLUMNS], "creationProperties": {"layout": layout}}
    )
    for start in range(0, rows, BAND):
        body = np.full((BAND, COLUMNS), float(start), dtype="<f8").tobytes()
        await rest.write(dataset, body, ((start, 0), (start + BAND, COLUMNS)))
    return dataset


async def drain(rest: Rest, dataset: str, rows: int) -> float:
    """Read all of the dataset in one request, checking each band as it passes; return the seconds."""
    began = time.perf_counter()
    band = bytearray()
    start = 0
    async for block in rest.stream(f"/datasets/{dataset}/value", BINARY):
        band += block
        while len(band) >= BAND * COLUMNS * 8:
            values = np.frombuffer(bytes(band[: BAND * COLUMNS * 8]), "<f8")
            if values[0] != start or values[-1] != start:
                raise WrongAnswer(
                    f"Rows {start} to {start + BAND} came back with other values than were written."
                )
            del band[: BAND * COLUMNS * 8]
            start += BAND
    if start != rows or band:
        raise WrongAnswer(f"The answer ended after {start} of {rows} rows.")
    return time.perf_counter() - began
