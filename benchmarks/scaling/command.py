"""`python -m benchmarks scaling`: prints the tables of docs/scaling.md. Minutes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Sequence

from benchmarks.scaling import cluster, counts, cpu

TITLES_OF_REQUESTS = ("operation", "`n`", "requests to the store, cold", "warm")


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [titles, ["---"] * len(titles), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def main() -> None:
    """Print the tables, each as soon as it is there."""
    for title, text in (
        ("Requests to the store", lambda: table(TITLES_OF_REQUESTS, asyncio.run(counts.request_rows()))),
        (
            "Messages to data nodes, about 16 things",
            lambda: table(
                ("operation", *(f"{nodes} data nodes" for nodes in counts.NODES)),
                asyncio.run(counts.message_rows()),
            ),
        ),
        (
            "CPU, milliseconds",
            lambda: table(
                ("operation", "about", *map(str, cpu.SIZES), "µs for one more"), asyncio.run(cpu.cpu_rows())
            ),
        ),
        (
            "CPU beside many things, milliseconds",
            lambda: table(
                ("operation", "beside", *map(str, cpu.BESIDE), "bytes put"),
                asyncio.run(cpu.untouched_rows()),
            ),
        ),
        (
            "CPU beside many chunks, milliseconds (requests to the store)",
            lambda: table(
                ("request", *(f"{size:,}" for size in cpu.MANY)), asyncio.run(cpu.many_chunks_rows())
            ),
        ),
        (
            "A data node more, and an idle cluster",
            lambda: table(
                ("data nodes", "store requests a second, idle", "to join", "messages to join", "seconds"),
                cluster.join_rows(),
            ),
        ),
        (
            "Requests a second",
            lambda: table(
                ("data nodes", "reads", "writes", "reads of 4 datasets", "writes of 4"),
                cluster.throughput_rows(),
            ),
        ),
    ):
        sys.stdout.write(f"### {title}\n\n{text()}\n")
        sys.stdout.flush()
