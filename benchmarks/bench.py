"""The settings of a benchmark run: its folders, the peers that take part, and the number of repeats."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers import bare, hsds, hsparse, tiledb
from benchmarks.peers.server import Server
from benchmarks.peers.tiledb import Worker
from benchmarks.report import Report

Measurement = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Sides:
    """The running sides (hsparse and its peers) of a workload; a side that does not take part is None."""

    hsparse: Server | None
    older: Server | None
    hsds: Server | None
    bare: Server | None
    tiledb: Worker | None

    def servers(self) -> list[Server]:
        """Return the servers that store data, without the bare handler."""
        return [server for server in (self.hsparse, self.older, self.hsds) if server is not None]


@dataclass(frozen=True, slots=True)
class Bench:
    """The settings of a run; `folder` holds the peers' environments, `work` the data of this run only."""

    folder: Path
    work: Path
    peers: frozenset[str]
    repeats: int
    quick: bool
    report: Report
    tell: Callable[[str], None]
    serve: tuple[str, ...] = ()
    """Additional arguments of `hsparse serve`."""
    against: str = ""
    """The commit of the older hsparse, if it is a peer."""

    @asynccontextmanager
    async def sides(self, workload: str, *wanted: str) -> AsyncIterator[Sides]:
        """Start the `wanted` sides that take part in the run, and stop them at the end."""
        work = self.work / workload
        work.mkdir(parents=True)
        taking = [side for side in wanted if side in self.peers]
        async with AsyncExitStack() as stack:
            self.tell(f"{workload}: starting {', '.join(taking)}")
            sides = Sides(
                await stack.enter_async_context(hsparse.serve(work, self.serve))
                if "hsparse" in taking
                else None,
                await stack.enter_async_context(
                    hsparse.serve_older(self.folder, self.against, work, self.serve)
                )
                if "older" in taking
                else None,
                await stack.enter_async_context(hsds.serve(self.folder, work)) if "hsds" in taking else None,
                await stack.enter_async_context(bare.serve(work)) if "bare" in taking else None,
                await stack.enter_async_context(tiledb.embed(self.folder, work))
                if "tiledb" in taking
                else None,
            )
            yield sides
        for server in sides.servers():
            if refused := sum(session.refused for session in server.sessions):
                self.report.remark(
                    f"{server.name} answered 5xx {refused} times in `{workload}`; the requests were sent "
                    "again after a pause, as stock clients do, and the pauses count."
                )

    async def in_turn(self, what: str, turns: dict[str, Measurement]) -> None:
        """Call all measurements in `turns`, by side, `repeats` times, starting with another side each time.

        The kernel's dirty pages are written to disk before the next side begins.
        """
        names = list(turns)
        for repeat in range(self.repeats):
            for index in range(len(names)):
                name = names[(repeat + index) % len(names)]
                self.tell(f"{what}: {name}, repeat {repeat + 1} of {self.repeats}")
                await turns[name]()
                os.sync()
