"""The workload `small-objects`: upload of a file with many small groups (see h5pyd's issue 258).

It measures h5pyd's `hsload` to HSDS and to hsparse, and `hsparse import`.
"""

from __future__ import annotations

import asyncio
import sys
import time
from functools import partial
from pathlib import Path

import h5py
import numpy as np

from benchmarks.bench import Bench, Measurement
from benchmarks.child import run as run_child
from benchmarks.peers.server import Server
from benchmarks.report import MeasuredMetric
from benchmarks.trials.check import WrongAnswer
from benchmarks.trials.files import requests_answered

WORKLOAD = "small-objects"
GROUPS = 1_000
VALUES = 25_000
ATTRIBUTES = 3
BY_HSLOAD, BY_ITS_OWN = "upload by hsload", "upload by its own command"
REMARK = (
    "`small-objects`: {groups} groups, each with {attributes} attributes and a dataset of {values} float64 with one. "
    "Each sample is a whole command, with the start of Python: h5pyd's `hsload`; HSDS's own is the same, ours "
    "`hsparse import`. HSDS answers before its writes are stored, hsparse "
    "after; of 5 attributes a group, HSDS refuses the body that hsload sends (413)."
)


async def run(bench: Bench) -> None:
    """Write the file, and upload it by each command to each server."""
    groups, values = (50, 1_000) if bench.quick else (GROUPS, VALUES)
    bench.report.remark(REMARK.format(groups=groups, attributes=ATTRIBUTES, values=values))
    async with bench.sides(WORKLOAD, "hsparse", "hsds") as sides:
        source = bench.work / WORKLOAD / "small.h5"
        await asyncio.to_thread(_write, source, groups, values)
        turns: dict[str, Measurement] = {}
        for server in sides.servers():
            async with server.rest() as rest:
                await rest.domain(server.new_domain())  # also creates the folder of the other domains
            user, password = server.auth or ("admin", "admin")
            load = ("hsload", "-e", server.base, "-u", user, "-p", password, str(source))
            names = (BY_HSLOAD, BY_ITS_OWN) if server is sides.hsds else (BY_HSLOAD,)
            turns[f"hsload to {server.name}"] = partial(_upload, bench, server, names, groups, load)
        if (ours := sides.hsparse) is not None:
            command = ("hsparse", "import", "--endpoint", ours.base, str(source))
            turns["hsparse import"] = partial(_upload, bench, ours, (BY_ITS_OWN,), groups, command)
        await bench.in_turn(WORKLOAD, turns)


async def _upload(
    bench: Bench, server: Server, names: tuple[str, ...], groups: int, command: tuple[str, ...]
) -> None:
    """Upload the file once, add samples to the metrics `names`, and check that all groups exist."""
    domain = server.new_domain()
    async with server.rest() as rest:
        before = await requests_answered(rest) if server.is_hsparse else 0
        began = time.perf_counter()
        argv: list[str | Path] = [Path(sys.executable).with_name(command[0]), *command[1:], domain]
        await run_child(argv, bench.work / WORKLOAD / "upload.log")
        seconds = time.perf_counter() - began
        for name in names:
            bench.report.add(MeasuredMetric(WORKLOAD, name, "s", higher=False), server.name, seconds)
            if server.is_hsparse:
                metric = MeasuredMetric(WORKLOAD, f"requests of {name}", "requests", higher=False)
                bench.report.add(metric, server.name, await requests_answered(rest) - before - 1)
        found = await rest.json("GET", "/", domain=domain)
        links = await rest.json("GET", f"/groups/{found['root']}/links", domain=domain)
        if len(links["links"]) != groups:
            raise WrongAnswer(f"{server.name} has {len(links['links'])} of {groups} groups.")
        await rest.json("DELETE", "/", domain=domain)


def _write(path: Path, groups: int, values: int) -> None:
    """Write a file of groups with random values."""
    rng = np.random.default_rng(258)
    with h5py.File(path, "w") as file:
        for number in range(groups):
            group = file.create_group(f"shot{number:05}")
            for attribute in range(ATTRIBUTES):
                group.attrs[f"a{attribute}"] = rng.normal()
            group["signal"] = rng.normal(size=values)
            group["signal"].attrs["units"] = "V"
