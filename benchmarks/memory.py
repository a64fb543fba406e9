"""The workload `memory`: one response of 2 GB from a server limited to 512 MiB, including a cache of 128 MiB.

The limit is on resident memory. `ulimit -v` cannot enforce it, because it limits the address space, and an allocator
reserves far more addresses than it uses. A cgroup would need rights over the machine that a benchmark should not
require, and would take the processes out of limits that are already set.

The benchmark therefore resets the kernel's high-water mark of each process (`VmHWM` in `/proc/PID/status`) before the
read, and fails if the marks of all the server's processes add up to more than the limit. The kernel misses no peak. The
sum is an upper bound: it counts shared libraries in each process, and peaks of different times.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from benchmarks.bench import Bench
from benchmarks.failure import Failed
from benchmarks.peers import hsparse
from benchmarks.report import MeasuredMetric
from benchmarks.rest import BINARY, Rest
from benchmarks.trials.check import WrongAnswer

LIMIT = 512 * 2**20
ROWS, COLUMNS = 65_536, 4_096  # 2 GiB of float64
BAND = 512


class TooMuchMemory(Failed):
    """The server used more memory than the limit."""


def high_marks(leader: int) -> dict[int, int]:
    """Return the peak resident bytes of each process in the session of `leader`, by process id."""
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
            continue  # the process has ended meanwhile
        lines = [line.split() for line in status.splitlines() if line.startswith("VmHWM:")]
        marks[int(folder.name)] = sum(int(words[1]) for words in lines) * 1024
    return marks


def forget_marks(leader: int) -> None:
    """Reset the high-water mark of each process in the session of `leader` to its current memory."""
    for pid in high_marks(leader):
        (Path("/proc") / str(pid) / "clear_refs").write_text("5")  # proc(5): resets VmHWM


async def run(bench: Bench) -> None:
    """Write the dataset and read it in one request; raise `TooMuchMemory` if the read exceeds the limit."""
    if "hsparse" not in bench.peers:
        return
    rows = 4_096 if bench.quick else ROWS
    size = rows * COLUMNS * 8 / 2**20
    bench.tell("memory: starting hsparse")
    async with (
        hsparse.serve(bench.work, (*bench.serve, "--cache-size", "128MiB")) as server,
        server.rest() as rest,
    ):
        leader = server.children[0].pid
        bench.tell(f"memory: writing {size:.0f} MiB")
        dataset = await fill(rest, server.new_domain(), rows)
        writing = sum(high_marks(leader).values())
        forget_marks(leader)
        bench.tell("memory: reading it in one request")
        seconds = await drain(rest, dataset, rows)
        reading = sum(high_marks(leader).values())
    for name, peak in (("written", writing), ("read in one answer", reading)):
        metric = MeasuredMetric("memory", f"{size:.0f} MiB {name}: most resident", "MiB", higher=False)
        bench.report.add(metric, "hsparse", peak / 2**20)
    rate = MeasuredMetric("memory", f"{size:.0f} MiB read in one answer: rate", "MiB/s", higher=True)
    bench.report.add(rate, "hsparse", size / seconds)
    if reading > LIMIT:
        raise TooMuchMemory(f"The server held {reading >> 20} MiB; the limit is {LIMIT >> 20} MiB.")


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
    """Read the whole dataset in one request and check each band as it arrives; return the seconds."""
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
