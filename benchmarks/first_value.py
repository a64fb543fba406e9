"""The workload `first-value`: time of a new interpreter until it has one value of a domain from a running server.

Each sample is a new process. Samples of hsparse alternate with samples of h5pyd, if it is installed, and of an
interpreter that does nothing. Bytecode exists before the first sample, as after an installation by pip.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

import hsparse as client
from benchmarks.bench import Bench, Measurement
from benchmarks.failure import Failed
from benchmarks.peers import hsparse
from benchmarks.report import OURS, MeasuredMetric

WORKLOAD = "first-value"
PROCESSES = 20
"""Number of processes of each side in a repeat."""
PLACE, VALUE = (123, 45), 3.0
USER, PASSWORD = "admin", "any"
TIMED = """
import json, sys, time
marks = [(time.perf_counter(), time.process_time())]
mark = lambda: marks.append((time.perf_counter(), time.process_time()))
import LIBRARY
mark()
found = READ
mark()
assert found == VALUE, found
print(json.dumps(marks))
"""
OPENED = {
    OURS: ("hsparse", "hsparse.open(sys.argv[1], user=sys.argv[4], password=sys.argv[5])['x'][PLACE]"),
    "h5pyd": (
        "h5pyd",
        "h5pyd.File(sys.argv[2], 'r', sys.argv[3], *sys.argv[4:])['y'][PLACE]",
    ),
}
"""By side: the library to import, and the expression that reads one value with it."""
REMARK = (
    "`first-value`: each sample is a new process, {processes} of them in a repeat; CPU is that of the process and of "
    "the kernel for it. Half of an import is numpy's. `bare` is `python -c pass`. hsparse reads one element of a "
    "sparse dataset, h5pyd of a dense one, both from the same server, which shares the cores."
)


async def run(bench: Bench) -> None:
    """Start a server, store two small datasets in it, and take all samples."""
    if OURS not in bench.peers:
        return
    count = 3 if bench.quick else PROCESSES
    bench.report.remark(REMARK.format(processes=count))
    async with hsparse.serve(bench.work, bench.serve) as server:
        domain = server.new_domain()
        async with server.rest() as rest:
            await rest.domain(domain)
        url = f"{server.base}{domain}"
        await asyncio.to_thread(fill, url)
        places = (url, domain, server.base, USER, PASSWORD)
        sides = [side for side, (library, _) in OPENED.items() if find_spec(library) is not None]
        turns: dict[str, Measurement] = {
            side: partial(_turn, partial(sample, side, places, bench.work), bench, side, count)
            for side in sides
        }
        turns["bare"] = partial(_turn, partial(bare, bench.work), bench, "bare", count)
        for side in sides:
            await asyncio.to_thread(sample, side, places, bench.work)  # writes the bytecode
        await bench.in_turn(WORKLOAD, turns)


def fill(url: str) -> None:
    """Store a sparse dataset `x` and a dense one `y` that have `VALUE` at `PLACE`."""
    file = client.open(url, user=USER, password=PASSWORD)
    assert isinstance(file, client.File)
    with file:
        file.create_sparse("x", (1000, 1000), "f4", (100, 100)).write([PLACE], [VALUE])
        values = np.zeros((1000, 100))
        values[PLACE] = VALUE
        file["y"] = values


def sample(side: str, places: tuple[str, ...], work: Path) -> dict[str, float]:
    """Run one process of a side; return its wall and CPU times in milliseconds, by metric."""
    library, read = OPENED[side]
    code = (
        TIMED.replace("LIBRARY", library)
        .replace("READ", read)
        .replace("VALUE", str(VALUE))
        .replace("PLACE", str(PLACE))
    )
    out, wall, cpu = _process(code, places, work)
    begun, imported, ended = json.loads(out)
    found = {"the process": (wall, cpu)}
    for what, first, last in (("import", begun, imported), ("first value after the import", imported, ended)):
        found[what] = (last[0] - first[0], last[1] - first[1])
    return _milliseconds(found)


def bare(work: Path) -> dict[str, float]:
    """Run an interpreter that does nothing; return its wall and CPU times in milliseconds, by metric."""
    _, wall, cpu = _process("pass", (), work)
    return _milliseconds({"the process": (wall, cpu)})


async def _turn(take: Callable[[], dict[str, float]], bench: Bench, side: str, count: int) -> None:
    for _ in range(count):
        for name, value in (await asyncio.to_thread(take)).items():
            bench.report.add(MeasuredMetric(WORKLOAD, name, "ms", False), side, value)


def _milliseconds(found: dict[str, tuple[float, float]]) -> dict[str, float]:
    pairs = (((f"{what}, wall", wall), (f"{what}, CPU", cpu)) for what, (wall, cpu) in found.items())
    return {name: seconds * 1000 for name, seconds in chain.from_iterable(pairs)}


def _process(code: str, arguments: tuple[str, ...], work: Path) -> tuple[str, float, float]:
    """Run code in a new interpreter; return what it printed, and its wall and CPU time in seconds."""
    environment: dict[str, Any] = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    began = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True, env=environment, cwd=work
    ) as process:
        assert process.stdout is not None
        out = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise Failed(f"A process of `{WORKLOAD}` ended with {process.returncode}.")
    return out, time.perf_counter() - began, usage.ru_utime + usage.ru_stime
