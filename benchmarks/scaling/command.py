"""`python -m benchmarks scaling`: prints the tables of docs/scaling.md; takes minutes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Iterator, Sequence

from benchmarks.scaling import cluster, counts, cpu, growth

TITLES_OF_REQUESTS = ("operation", "`n`", "requests to the store, cold", "warm")


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [titles, ["---"] * len(titles), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def tables() -> Iterator[tuple[str, str]]:
    """Yield the title of each table, and the table."""
    yield "Requests to the store", table(TITLES_OF_REQUESTS, asyncio.run(counts.request_rows()))
    nodes = [f"{one} data nodes" for one in counts.NODES]
    yield (
        "Messages to data nodes, about 16 things",
        table(("operation", *nodes), asyncio.run(counts.message_rows())),
    )
    yield (
        "CPU, milliseconds",
        table(("operation", "about", *map(str, cpu.SIZES), "µs for one more"), asyncio.run(cpu.cpu_rows())),
    )
    yield (
        "CPU beside many things, milliseconds",
        table(("operation", "beside", *map(str, cpu.BESIDE), "bytes put"), asyncio.run(cpu.untouched_rows())),
    )
    yield (
        "CPU beside many chunks, milliseconds (requests to the store)",
        table(("request", *(f"{size:,}" for size in cpu.MANY)), asyncio.run(cpu.many_chunks_rows())),
    )
    yield (
        "Objects in one group, over a directory",
        table(growth.TITLES[0], asyncio.run(growth.object_rows())),
    )
    yield (
        "Chunks of one dataset, over a directory",
        table(growth.TITLES[1], asyncio.run(growth.chunk_rows())),
    )
    yield (
        "A data node more, and an idle cluster",
        table(
            ("data nodes", "store requests a second, idle", "to join", "messages to join", "seconds"),
            cluster.join_rows(),
        ),
    )
    yield (
        "Requests a second",
        table(
            ("data nodes", "reads", "writes", "reads of 4 datasets", "writes of 4"), cluster.throughput_rows()
        ),
    )


def main() -> None:
    """Print each table as soon as it is complete."""
    for title, text in tables():
        sys.stdout.write(f"### {title}\n\n{text}\n")
        sys.stdout.flush()
