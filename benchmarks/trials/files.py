"""The trial `files`: import, export, and reads of files over HTTP, against a plain copy and a static file."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import fsspec
import h5py
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.bench import Bench, Measurement, Sides
from benchmarks.child import run
from benchmarks.peers.server import Server
from benchmarks.report import MeasuredMetric
from benchmarks.rest import Rest
from benchmarks.trials.check import check_array
from benchmarks.workloads.files import FileCase

WORKLOAD = "files"
HDF5 = "application/x-hdf5"
PIECE = 2**20
REQUESTS = "h5py over fsspec opens it and reads extents"


@dataclass(frozen=True, slots=True)
class FilesTrial:
    """Measures each case in turn with a synced copy of the same file, and a static file of the same size."""

    bench: Bench
    cases: tuple[FileCase, ...]

    async def run(self) -> None:
        """Take all samples."""
        self.bench.report.remark(
            "`files`: MB are 10^6 bytes of the file; 'raw' counts the values before filters. Import and export are "
            "whole commands, with the start of Python. 'bare' is aiohttp's static file, beside 'read over HTTP'."
        )
        if "hsparse" not in self.bench.peers:
            return
        async with self.bench.sides(WORKLOAD, "hsparse", "bare") as sides:
            assert sides.hsparse is not None
            async with sides.hsparse.rest() as rest:
                await rest.domain(sides.hsparse.new_domain())  # also creates the folders of all others
                for case in self.cases:
                    await self.case(case, sides, sides.hsparse, rest)

    async def case(self, case: FileCase, sides: Sides, server: Server, rest: Rest) -> None:
        """Import a file, then export and read it in each layout; reimport exports in other layouts than `stock`."""
        self.bench.tell(f"files: writing {case.name}")
        source = self.path(f"{case.name}.h5")
        await asyncio.to_thread(case.make, source, case.size)
        os.sync()  # so that the kernel writes none of it during the first turn
        domain = await self.imports(case.name, source, case.size, server, rest)
        for layout in case.layouts:
            name = f"{case.name}, {layout}" if len(case.layouts) > 1 else case.name
            target = await self.exports(name, domain, layout, server)
            if sides.bare is not None:
                await self.reads(name, domain, layout, server, sides.bare, target)
            if layout == "stock":
                await self.requests(name, domain, server)
                await asyncio.to_thread(self.check, case.name, source, target)
            else:
                again = await self.imports(name, target, None, server, rest)
                await rest.json("DELETE", "/", domain=again)
            target.unlink()
        await rest.json("DELETE", "/", domain=domain)
        source.unlink()

    async def imports(self, name: str, source: Path, raw: int | None, server: Server, rest: Rest) -> str:
        """Import a file once per repeat, in turn with a plain copy; return the domain of the last import."""
        made: list[str] = []
        size = nbytes(source)

        async def ours() -> None:
            if made:
                await rest.json("DELETE", "/", domain=made.pop())
            made.append(server.new_domain())
            seconds = await self.command("import", source, made[-1], server)
            self.add_rate("hsparse", f"import, {name}", size, seconds)
            if raw is not None and raw > 1.1 * size:
                self.add_rate("hsparse", f"import, {name}, raw", raw, seconds)

        turns: dict[str, Measurement] = {
            "hsparse": ours,
            "copy": partial(self.copy, f"import, {name}", source),
        }
        await self.bench.in_turn(f"files: import, {name}", turns)
        return made[-1]

    async def exports(self, name: str, domain: str, layout: str, server: Server) -> Path:
        """Export a domain and return the file."""
        target = self.path("exported.h5")

        async def ours() -> None:
            seconds = await self.command("export", domain, target, server, "--force", "--layout", layout)
            self.add_rate("hsparse", f"export, {name}", nbytes(target), seconds)

        turns: dict[str, Measurement] = {
            "hsparse": ours,
            "copy": partial(self.copy, f"export, {name}", target),
        }
        await self.bench.in_turn(f"files: export, {name}", turns)
        return target

    async def reads(
        self, name: str, domain: str, layout: str, server: Server, bare: Server, target: Path
    ) -> None:
        """Read the domain's file and a static one with the same bytes, each in one request."""

        async def read(side: Server, path: str) -> None:
            async with side.rest() as rest:
                began, size = time.perf_counter(), 0
                async for block in rest.stream(path, HDF5):
                    size += len(block)
                seconds = time.perf_counter() - began
            self.add_rate(side.name, f"read over HTTP, {name}", size, seconds)

        turns: dict[str, Measurement] = {
            "hsparse": partial(read, server, f"{virtual(domain)}?layout={layout}"),
            "bare": partial(read, bare, f"/static/{target.name}"),
        }
        await self.bench.in_turn(f"files: read over HTTP, {name}", turns)

    async def requests(self, name: str, domain: str, server: Server) -> None:
        """Add the number of requests with which h5py over fsspec opens a domain's file."""
        async with server.rest() as rest:
            before = await requests_answered(rest, "/files")
            # In a separate process, because fsspec keeps its session and its threads.
            argv = [sys.executable, "-m", "benchmarks.trials.files", f"{server.base}{virtual(domain)}"]
            await run(argv, self.path("opened.log"))
            count = await requests_answered(rest, "/files") - before
        self.bench.report.add(
            MeasuredMetric(WORKLOAD, f"{REQUESTS}, {name}", "requests", higher=False), "hsparse", count
        )

    async def command(self, name: str, source: object, target: object, server: Server, *flags: str) -> float:
        """Run a command of hsparse and return its seconds."""
        command = Path(sys.executable).with_name("hsparse")
        argv: list[str | Path] = [command, name, str(source), str(target), "--endpoint", server.base, *flags]
        began = time.perf_counter()
        await run(argv, self.path(f"{name}.log"))
        return time.perf_counter() - began

    async def copy(self, name: str, source: Path) -> None:
        """Copy a file and sync the copy, which measures the limits of the machine's disk and memory."""
        target = self.path("copy")
        began = time.perf_counter()
        await asyncio.to_thread(copy_synced, source, target)
        self.add_rate("copy", name, nbytes(source), time.perf_counter() - began)
        target.unlink()

    def path(self, name: str) -> Path:
        """Return a path in the directory that the workload's servers share."""
        return self.bench.work / WORKLOAD / name.replace(" ", "-")

    def add_rate(self, side: str, name: str, nbytes: int, seconds: float) -> None:
        """Add a sample of a rate."""
        self.bench.report.add(
            MeasuredMetric(WORKLOAD, name, "MB/s", higher=True), side, nbytes / 1e6 / seconds
        )

    def check(self, name: str, source: Path, target: Path) -> None:
        """Compare some rows of the imported file with the exported file."""
        with h5py.File(source) as ours, h5py.File(target) as theirs:
            if isinstance(ours["X"], h5py.Dataset):
                rows = slice(0, None, max(1, len(ours["X"]) // 7))
                check_array(name, theirs["X"][rows], ours["X"][rows])
                return
            group = ours["X"]
            first, last = group["indptr"][-2:]
            check_array(name, theirs["X"][-1][group["indices"][first:last]], group["data"][first:last])


def copy_synced(source: Path, target: Path) -> None:
    """Copy a file; the copy is durable on return."""
    with source.open("rb") as read, target.open("wb") as written:
        shutil.copyfileobj(read, written, PIECE)
        written.flush()
        os.fsync(written.fileno())


def nbytes(path: Path) -> int:
    """Return a file's size."""
    return path.stat().st_size


def virtual(domain: str) -> str:
    """Return the URL path at which the server generates a domain's HDF5 file."""
    return f"/files{domain}.h5"


async def requests_answered(rest: Rest, below: str = "/") -> int:
    """Return the number of requests that a server has answered on routes beginning with `below`."""
    text = (await rest.send("GET", "/metrics", accept="*/*")).decode()
    return sum(
        int(sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "hsparse_requests_total" and sample.labels["route"].startswith(below)
    )


def open_remote(url: str) -> None:
    """Open a remote file as users do, and read the extent of every dataset."""

    def see(name: str, item: h5py.HLObject) -> None:
        if isinstance(item, h5py.Dataset):
            print(name, item.shape)

    with fsspec.open(url) as remote, h5py.File(remote) as file:
        file.visititems(see)


if __name__ == "__main__":
    open_remote(sys.argv[1])
