"""The workload `frames`: a stack of 60 detector images in an HDF5 file, served in place (see tiled's issue 907).

It compares `hsparse serve --files`, Tiled's server over the same directory, and h5py on the file itself.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import h5py
import numpy as np

from benchmarks.bench import Bench, Measurement
from benchmarks.failure import Failed
from benchmarks.peers import hsparse, tiled
from benchmarks.report import OURS, MeasuredMetric
from benchmarks.trials.check import WrongAnswer

WORKLOAD = "frames"
SHAPE = (60, 1065, 1030)
PATH = "entry1/instrument/detector00/frames"
FILE = "scan"
REMARK = (
    "`frames`: {count} images of 1065 x 1030 uint16, a gzip chunk each, which no side imports. Each sample is a "
    "process with the side's own client: after opening, the median of five single frames, then all. 'h5py' is the "
    "file itself, without a server. The servers' caches are as the turns before left them."
)


async def run(bench: Bench) -> None:
    """Write the file, start the servers over its directory, and take all samples."""
    count = 8 if bench.quick else SHAPE[0]
    folder = bench.work / WORKLOAD / "images"
    folder.mkdir(parents=True)
    await asyncio.to_thread(_write, folder / f"{FILE}.h5", count)
    bench.report.remark(REMARK.format(count=count))
    async with AsyncExitStack() as stack:
        sides = {"h5py": (Path(sys.executable), str(folder / f"{FILE}.h5"), PATH)}
        if OURS in bench.peers:
            arguments = (*bench.serve, "--files", f"images={folder}")
            ours = await stack.enter_async_context(hsparse.serve(bench.work, arguments))
            sides[OURS] = (Path(sys.executable), f"{ours.base}/images/{FILE}.h5", PATH)
        if "tiled" in bench.peers:
            theirs = await stack.enter_async_context(tiled.serve(bench.folder, bench.work, folder))
            python = tiled.environment(bench.folder).python
            sides["Tiled"] = (python, f"{theirs.base}/api/v1", f"{FILE}/{PATH}")
        sums: set[int] = set()
        turns: dict[str, Measurement] = {
            side: partial(_turn, bench, side, count, sums, *place) for side, place in sides.items()
        }
        await bench.in_turn(WORKLOAD, turns)


async def _turn(
    bench: Bench, side: str, count: int, sums: set[int], python: Path, place: str, path: str
) -> None:
    frames = [7 * i % count for i in range(5)]
    job = json.dumps({"side": side, "place": place, "path": path, "frames": frames})
    found = await asyncio.to_thread(_process, python, job, bench.work)
    sums.add(int(found["sum"]))
    if len(sums) > 1:
        raise WrongAnswer(f"{side} read other frames than the side before it.")
    metrics = {"one frame": ("ms", found["frame"] * 1000), f"all {count} frames": ("s", found["all"])}
    for name, (unit, value) in metrics.items():
        bench.report.add(MeasuredMetric(WORKLOAD, name, unit, higher=False), side, value)


def _process(python: Path, job: str, work: Path) -> dict[str, float]:
    environment = {**os.environ, "PYTHONPATH": str(hsparse.PROJECT)}
    argv: list[str | Path] = [python, "-P", "-m", "benchmarks.peers.frames_reader", job]
    done = subprocess.run(argv, capture_output=True, text=True, env=environment, cwd=work)
    if done.returncode:
        raise Failed(f"A process of `{WORKLOAD}` ended with {done.returncode}: {done.stderr[-2000:]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _write(path: Path, count: int) -> None:
    """Write images with about three photons per pixel."""
    rng = np.random.default_rng(907)
    with h5py.File(path, "w") as file:
        made = file.create_dataset(
            PATH, (count, *SHAPE[1:]), "<u2", chunks=(1, *SHAPE[1:]), compression="gzip"
        )
        for frame in range(count):
            made[frame] = rng.poisson(3, SHAPE[1:])
