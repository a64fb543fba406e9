"""The command `python -m benchmarks`: takes names of workloads, or one of `scaling`, `profile` and `walk`."""

from __future__ import annotations

import argparse
import asyncio
import json
import shlex
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import uvloop
from aiohttp import ClientError
from rich.console import Console
from rich.status import Status

from benchmarks import explorer, first_value, frames, machine, memory, small_objects, walk
from benchmarks.bench import Bench
from benchmarks.failure import Failed
from benchmarks.peers import cell_libraries, hsds, hsparse, tiled, tiledb
from benchmarks.report import OLDER, Report
from benchmarks.scaling import command as scaling
from benchmarks.scaling import profile
from benchmarks.table import NOTES, markdown
from benchmarks.trials.append import AppendTrial
from benchmarks.trials.cells import CellsTrial
from benchmarks.trials.dense import DenseTrial
from benchmarks.trials.files import FilesTrial
from benchmarks.trials.metadata import MetadataTrial
from benchmarks.trials.reduce import ReduceTrial
from benchmarks.trials.sparse import SparseTrial
from benchmarks.trials.stored import StoredTrial
from benchmarks.workloads.cells import cells
from benchmarks.workloads.dense import dense
from benchmarks.workloads.files import files
from benchmarks.workloads.lcls_points import lcls_points
from benchmarks.workloads.lcls_roi import lcls_roi
from benchmarks.workloads.metadata import metadata
from benchmarks.workloads.single_cell import single_cell
from benchmarks.workloads.uniform import uniform

PEERS = ("hsds", "tiledb", "cells", "tiled")
FOLDER = Path(__file__).resolve().parent.parent / ".bench"


async def run_lcls_points(bench: Bench) -> None:
    """Run the workload `lcls-points`: appended in parts, and written at once."""
    case = lcls_points(32 if bench.quick else 512)
    await AppendTrial(bench, case).run()
    await SparseTrial(bench, case).run()


async def run_lcls_roi(bench: Bench) -> None:
    """Run the workload `lcls-roi`."""
    await SparseTrial(bench, lcls_roi(16 if bench.quick else 128)).run()


async def run_uniform(bench: Bench) -> None:
    """Run the workload `uniform`."""
    await SparseTrial(bench, uniform(100_000, 10_000) if bench.quick else uniform()).run()


async def run_single_cell(bench: Bench) -> None:
    """Run the workload `single-cell`."""
    await SparseTrial(bench, single_cell(2_000, 2_000) if bench.quick else single_cell()).run()


async def run_reduce(bench: Bench) -> None:
    """Run the workload `reduce`."""
    await ReduceTrial(bench, single_cell(2_000, 2_000) if bench.quick else single_cell()).run()


async def run_dense(bench: Bench) -> None:
    """Run the workload `dense`."""
    await DenseTrial(bench, dense(1024) if bench.quick else dense()).run()


WORKLOADS: dict[str, Callable[[Bench], Awaitable[None]]] = {
    "lcls-points": run_lcls_points,
    "lcls-roi": run_lcls_roi,
    "uniform": run_uniform,
    "single-cell": run_single_cell,
    "reduce": run_reduce,
    "cells": lambda bench: CellsTrial(bench, cells(bench.quick)).run(),
    "rfc-table": lambda bench: StoredTrial(bench).run(),
    "dense": run_dense,
    "metadata": lambda bench: MetadataTrial(bench, metadata(bench.quick)).run(),
    "small-objects": small_objects.run,
    "frames": frames.run,
    "files": lambda bench: FilesTrial(bench, files(bench.quick)).run(),
    "memory": memory.run,
    "first-value": first_value.run,
    "explorer": explorer.run,
}


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse and check the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="hsparse against its peers and bounds."
    )
    parser.add_argument(
        "workloads", nargs="*", metavar="WORKLOAD", help=f"all, or some of: {', '.join(WORKLOADS)}"
    )
    parser.add_argument(
        "--quick", action="store_true", help="small sizes and one repeat: a smoke test, no figures"
    )
    parser.add_argument(
        "--peers",
        default=",".join(PEERS),
        help=f"some of {','.join(PEERS)}, comma-separated; '' for none. cells and tiled take part in one workload only",
    )
    parser.add_argument(
        "--against",
        default="",
        metavar="REVISION",
        help="an older revision of this checkout as a peer, except in cells, files, first-value and memory",
    )
    parser.add_argument("--no-hsparse", action="store_true", help="run only the peers")
    parser.add_argument(
        "--serve", default="", help="additional arguments of `hsparse serve`, as one word: '--dn 2'"
    )
    parser.add_argument("--repeats", type=int, help="turns of each side (3; 1 with --quick)")
    parser.add_argument("--out", type=Path, default=FOLDER / "last.json", help="where the JSON goes")
    options = parser.parse_args(argv)
    peers = [peer for peer in options.peers.split(",") if peer]
    for kind, given, known in (
        ("workload", options.workloads, WORKLOADS),
        ("peer", peers, PEERS),
    ):
        if unknown := sorted(set(given) - set(known)):
            parser.error(f"there is no {kind} {unknown[0]!r}; there are {', '.join(known)}")
    if options.repeats is not None and options.repeats < 1:
        parser.error("--repeats must be at least 1")
    if options.against:
        try:
            options.against = hsparse.commit(options.against)
        except Failed as error:
            parser.error(str(error))
        peers.append("older")
    options.workloads = options.workloads or list(WORKLOADS)
    if "cells" not in options.workloads:
        peers = [peer for peer in peers if peer != "cells"]  # two gigabytes to install
    if "frames" not in options.workloads:
        peers = [peer for peer in peers if peer != "tiled"]
    options.repeats = options.repeats or (1 if options.quick else 3)
    options.peers = frozenset({*peers, "bare"} | (set() if options.no_hsparse else {"hsparse"}))
    return options


def install(options: argparse.Namespace, tell: Callable[[str], None]) -> dict[str, str]:
    """Create the peers' environments; return the versions of hsparse and the peers' packages."""
    peers: frozenset[str] = options.peers
    versions = {"hsparse": hsparse.version()} if "hsparse" in peers else {}
    if "older" in peers:
        tell(f"installing hsparse of {options.against[:12]}")
        older = hsparse.older_environment(FOLDER, options.against)
        older.install()
        versions[OLDER] = f"{older.version('hsparse')} of {options.against[:12]}"
    for peer, environment, packages in (
        ("hsds", hsds.environment(FOLDER), ("hsds",)),
        ("tiledb", tiledb.environment(FOLDER), ("tiledb",)),
        ("cells", cell_libraries.environment(FOLDER), cell_libraries.VERSIONED),
        ("tiled", tiled.environment(FOLDER), ("tiled",)),
    ):
        if peer in peers:
            tell(f"installing {peer}")
            environment.install()
            versions |= {package: environment.version(package) for package in packages}
    return versions


async def run(options: argparse.Namespace, report: Report, tell: Callable[[str], None]) -> None:
    """Run the workloads one after another, and remove their data at the end.

    A workload that fails is reported, and the next one begins.
    """
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    serve = tuple(shlex.split(options.serve))
    for workload in options.workloads:
        with tempfile.TemporaryDirectory(prefix="run-", dir=FOLDER) as work:
            bench = Bench(
                FOLDER,
                Path(work),
                options.peers,
                options.repeats,
                options.quick,
                report,
                tell,
                serve,
                options.against,
            )
            try:
                await WORKLOADS[workload](bench)
            except* (Failed, ClientError) as group:
                reasons = dict.fromkeys(f"`{workload}` was not finished: {error}" for error in leaves(group))
                report.failures.extend(reasons)


def leaves(group: BaseExceptionGroup[Exception]) -> Iterator[BaseException]:
    """Yield the errors of nested exception groups."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from leaves(error)
        else:
            yield error


def write(report: Report, facts: dict[str, str], out: Path) -> str:
    """Write the report as JSON and as Markdown; return the Markdown."""
    text = markdown(report, facts)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"facts": facts, "notes": NOTES, **report.as_json()}, indent=1) + "\n")
    (FOLDER / "last.md").write_text(text)
    return text


def main() -> None:
    """Run the command line; write the report even if a workload fails."""
    if sys.argv[1:] == ["scaling"]:
        scaling.main()
        return
    if sys.argv[1:2] == ["walk"]:
        sys.exit(walk.main(sys.argv[2:]))
    if sys.argv[1:2] == ["profile"]:
        profile.main(sys.argv[2:])
        return
    options = arguments()
    FOLDER.mkdir(exist_ok=True)
    report = Report()
    console = Console(stderr=True)
    with Status("starting", console=console) as status:

        def tell(text: str) -> None:
            status.update(text)
            if not console.is_terminal:
                console.print(text, highlight=False)

        versions = install(options, tell)
        facts = machine.facts() | {
            "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
            "repeats": f"{options.repeats}{', quick: sizes too small for figures' if options.quick else ''}",
        }
        try:
            uvloop.run(run(options, report, tell))
        except (KeyboardInterrupt, asyncio.CancelledError):
            report.failures.append("The run was stopped before its end.")
        finally:
            text = write(report, facts, options.out)
            sys.stdout.write(text)
    if report.failures:
        sys.exit(1)


if __name__ == "__main__":
    main()
