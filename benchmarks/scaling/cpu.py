"""CPU time of a service node and its data node, in one process over a store in memory, by operation and size.

A request is sent as prepared bytes over one connection, so that the client adds little to the measured time.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

from benchmarks.scaling.installation import Installation, Request
from benchmarks.scaling.operations import (
    CHUNK,
    OPERATIONS,
    Operation,
    dataset,
    renamed,
)
from hsparse.format.chunk_spec import chunk_key

SIZES = (64, 128, 256, 512)
BESIDE = (500, 1000, 2000, 4000)
MANY = (1_000, 10_000, 100_000, 1_000_000)
"""Numbers of chunks of a dataset, for requests that touch only a few chunks."""
ROUNDS = 5
MILLISECONDS = 1000.0


async def seconds_of(installation: Installation, requests: Sequence[bytes]) -> float:
    """Return the median CPU seconds of the requests."""
    found = []
    for request in requests:
        started = time.process_time()
        await installation.exchange(request)
        found.append(time.process_time() - started)
    return statistics.median(found)


async def operation_seconds(
    installation: Installation, operation: Operation, size: int, rounds: int
) -> float:
    """Return the CPU seconds of an operation on `size` objects, with a warm cache."""
    if operation.repeatable or not operation.touched:
        request = await operation.prepare(installation, size)
        made = [request if operation.repeatable else renamed(request) for _ in range(rounds + 1)]
        encoded = [installation.encoded(one) for one in made]
        await installation.exchange(encoded[0])
        return await seconds_of(installation, encoded[1:])
    prepared = [await operation.prepare(installation, size) for _ in range(rounds)]
    return await seconds_of(installation, [installation.encoded(one) for one in prepared])


async def cpu_rows(sizes: Sequence[int] = SIZES, rounds: int = ROUNDS) -> list[tuple[str, ...]]:
    """Return a row per operation: its name, its kind of objects, milliseconds at each size, microseconds per object."""
    rows = []
    for operation in OPERATIONS:
        if not operation.touched:
            continue
        async with Installation() as installation:
            found = [await operation_seconds(installation, operation, size, rounds) for size in sizes]
        more = (found[-1] - found[0]) / (sizes[-1] - sizes[0]) * 1e6
        rows.append((operation.name, operation.size, *map(_milliseconds, found), f"{more:.1f}"))
    return rows


async def untouched_rows(sizes: Sequence[int] = BESIDE, rounds: int = ROUNDS) -> list[tuple[str, ...]]:
    """Return a row per operation that leaves its objects untouched: name, objects, milliseconds, bytes put."""
    rows = []
    for operation in OPERATIONS:
        if operation.touched:
            continue
        found = []
        async with Installation() as installation:
            for size in sizes:
                found.append(_milliseconds(await operation_seconds(installation, operation, size, rounds)))
            request = await operation.prepare(installation, sizes[-1])
            installation.reset()
            await installation.ask(request)
            rows.append((operation.name, operation.size, *found, f"{installation.store.bytes_in:,}"))
    return rows


async def fill(installation: Installation, chunks: int) -> str:
    """Create a dataset with `chunks` chunks; all but the first are put into the store directly, not by the server."""
    id = await dataset(installation, 1)
    await installation.ask(Request("PUT", f"/datasets/{id}/shape", {"shape": [CHUNK * chunks]}))
    await installation.ask(
        Request("PUT", f"/datasets/{id}/value", bytes(4 * CHUNK), {"select": f"[0:{CHUNK}]"})
    )
    data = (await installation.memory.get(chunk_key(id, (0,)))).data
    for key in sorted(chunk_key(id, (number,)) for number in range(1, chunks)):
        await installation.memory.put(key, data)
    return id


FEW: dict[str, Callable[[str, int], Request]] = {
    "read of one chunk": lambda id, n: Request(
        "GET", f"/datasets/{id}/value", None, {"select": f"[0:{CHUNK}]"}
    ),
    "write of one chunk": lambda id, n: Request(
        "PUT", f"/datasets/{id}/value", bytes(4 * CHUNK), {"select": f"[0:{CHUNK}]"}
    ),
    "`GET` of the dataset": lambda id, n: Request("GET", f"/datasets/{id}"),
    "where one chunk is": lambda id, n: Request("GET", f"/datasets/{id}/chunks/0"),
    "list 100 chunks, the first": lambda id, n: Request(
        "GET", f"/datasets/{id}/chunks", None, {"limit": 100}
    ),
    "list 100 chunks after one in the middle": lambda id, n: Request(
        "GET", f"/datasets/{id}/chunks", None, {"limit": 100, "marker": str(n // 2)}
    ),
    "map of 100 chunks": lambda id, n: Request(
        "GET", f"/datasets/{id}/map", None, {"select": f"[0:{100 * CHUNK}]"}
    ),
    "number of chunks": lambda id, n: Request("GET", f"/datasets/{id}/chunks", None, {"count_only": 1}),
    "list 1,000 chunks": lambda id, n: Request("GET", f"/datasets/{id}/chunks", None, {"limit": 1000}),
}
"""Requests that touch few of a dataset's `n` chunks."""


async def many_chunks_rows(sizes: Sequence[int] = MANY, rounds: int = 3) -> list[tuple[str, ...]]:
    """Return a row per request in `FEW`: its name, and milliseconds and requests to the store at each size."""
    columns = []
    for size in sizes:
        async with Installation() as installation:
            id = await fill(installation, size)
            column = []
            for make in FEW.values():
                request = installation.encoded(make(id, size))
                await installation.exchange(request)
                installation.reset()
                await installation.exchange(request)
                requests = installation.requests.total()
                column.append(
                    f"{_milliseconds(await seconds_of(installation, [request] * rounds))} ({requests})"
                )
            columns.append(column)
    return [(text, *row) for text, row in zip(FEW, zip(*columns, strict=True), strict=True)]


async def floor() -> float:
    """Return the CPU seconds of the smallest request, including the client's."""
    async with Installation() as installation:
        request = installation.encoded(Request("GET", "/livez"))
        return await seconds_of(installation, [request] * 50)


def _milliseconds(seconds: float) -> str:
    return f"{seconds * MILLISECONDS:.2f}" if seconds < 0.1 else f"{seconds * MILLISECONDS:.0f}"
