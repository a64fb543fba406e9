"""`python -m benchmarks profile [NAME ...]`: CPU time of hot paths by part of the code; takes a minute.

A server in this process answers each request several times, over a store in memory and with a warm cache, under
cProfile, which makes small functions look up to twice as slow as they are. Built-in functions count for their callers.
The profile covers the event loop; the CPU time of other threads is a part of its own.
"""

from __future__ import annotations

import asyncio
import cProfile
import pstats
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from benchmarks.scaling.command import table
from benchmarks.scaling.installation import BINARY, Installation, Request
from benchmarks.scaling.operations import ATTRIBUTE, INTEGER, dataset
from hsparse.concurrency.collector import collect_seldom

Prepare: TypeAlias = Callable[[Installation, int], Awaitable[list[Request]]]
"""A function that creates the objects that requests need, and returns as many requests of one kind as asked."""

PARTS = {
    "client": ("/benchmarks/", "/asyncio/streams.py"),
    "HTTP": (
        "/aiohttp/",
        "/multidict/",
        "/yarl/",
        "/hsparse/sn/http/",
        "/hsparse/sn/app.py",
        "/hsparse/sn/metrics.py",
    ),
    "event loop": ("/asyncio/", "/selectors.py"),
    "service node": ("/hsparse/sn/",),
    "data node": ("/hsparse/dn/",),
    "bytes, model": ("/hsparse/format/", "/hsparse/model/", "/numpy/"),
    "wire, queues": ("/hsparse/wire/", "/hsparse/concurrency/"),
    "store": ("/hsparse/storage/", "/tests/testing/"),
}
"""Parts of the code, each with text that the paths of its files contain; a file belongs to the first match."""
OTHER, THREADS = "other", "threads"
TITLES = ("hot path", "CPU ms", *list(PARTS)[1:], OTHER, THREADS)
COUNT = 100
"""Number of requests in a profile."""
ELEMENTS, CHUNKS = 1 << 14, 32
"""Numbers of elements of a chunk, and of chunks of a dataset."""
ARROW = "application/vnd.apache.arrow.stream"
FLAGS = ["H5D_SPARSE_DATA"]


async def made(installation: Installation, shape: Sequence[int], **layout: Any) -> str:
    """Create an extensible dataset; return its path."""
    body = {"type": INTEGER, "shape": list(shape), "maxdims": [0] * len(shape)}
    layout = {"dims": [1, ELEMENTS], **layout}
    found = await installation.ask(
        Request("POST", "/datasets", body | {"creationProperties": {"layout": layout}})
    )
    return f"/datasets/{found['id']}"


async def sparse(installation: Installation) -> str:
    """Create a sparse dataset with a tenth of its elements defined; return its path."""
    path = await made(installation, (CHUNKS, ELEMENTS), **{"class": "H5D_STRUCT_CHUNK", "flags": FLAGS})
    values = np.random.default_rng(0).integers(0, 10, CHUNKS * ELEMENTS, "<i4") == 1
    await installation.ask(Request("PUT", f"{path}/value", values.astype("<i4").tobytes(), {"drop_fill": 1}))
    return path


async def append(installation: Installation, count: int) -> list[Request]:
    path = await made(installation, (0, ELEMENTS), **{"class": "H5D_STRUCT_CHUNK", "flags": FLAGS})
    body = {"points": [[0, n] for n in range(0, ELEMENTS, 32)], "value": [1] * (ELEMENTS // 32)}
    return [Request("PUT", f"{path}/value", body, {"append": 1, "append_dim": 0})] * count


async def write(installation: Installation, count: int) -> list[Request]:
    path = await made(installation, (CHUNKS, ELEMENTS), **{"class": "H5D_CHUNKED"})
    return [Request("PUT", f"{path}/value", bytes(4 * CHUNKS * ELEMENTS))] * count


async def read(installation: Installation, count: int) -> list[Request]:
    [writing] = await write(installation, 1)
    await installation.ask(writing)
    return [Request("GET", writing.path, accept=BINARY)] * count


async def read_sparse(installation: Installation, count: int) -> list[Request]:
    return [Request("GET", f"{await sparse(installation)}/value", params={"sparse": 1}, accept=ARROW)] * count


async def box(installation: Installation, count: int) -> list[Request]:
    params = {"sparse": 1, "select": "[3:5,100:200]"}
    return [Request("GET", f"{await sparse(installation)}/value", params=params, accept=ARROW)] * count


async def reduce(installation: Installation, count: int) -> list[Request]:
    params = {"op": "mean,var", "axis": 0, "undefined": "fill"}
    return [Request("GET", f"{await sparse(installation)}/reduce", params=params, accept=BINARY)] * count


async def get(installation: Installation, count: int) -> list[Request]:
    return [Request("GET", await made(installation, (1, ELEMENTS)))] * count


async def put(installation: Installation, count: int) -> list[Request]:
    path = await made(installation, (1, ELEMENTS))
    return [Request("PUT", f"{path}/attributes/a{number}", ATTRIBUTE) for number in range(count)]


def _links(root: str, first: int, count: int) -> list[dict[str, Any]]:
    return [{"link": {"id": root, "name": f"g{first + number}"}} for number in range(count)]


async def create(installation: Installation, count: int) -> list[Request]:
    root = (await installation.ask(Request("GET", "/")))["root"]
    return [Request("POST", "/groups", one) for one in _links(root, 0, count)]


async def create_many(installation: Installation, count: int) -> list[Request]:
    root = (await installation.ask(Request("GET", "/")))["root"]
    return [Request("POST", "/groups", _links(root, 100 * number, 100)) for number in range(count)]


async def delete(installation: Installation, count: int) -> list[Request]:
    return [Request("DELETE", f"/datasets/{await dataset(installation, CHUNKS)}") for _ in range(count)]


async def chunk_map(installation: Installation, count: int) -> list[Request]:
    return [Request("GET", f"{await sparse(installation)}/map")] * count


HOT_PATHS: dict[str, Prepare] = {
    "append of a frame": append,
    "write": write,
    "read": read,
    "read of sparse elements": read_sparse,
    "read of a box": box,
    "reduce": reduce,
    "GET of a dataset": get,
    "PUT of an attribute": put,
    "POST of a group with its link": create,
    "POST of 100 groups": create_many,
    "DELETE of a dataset": delete,
    "map": chunk_map,
}


async def measured(prepare: Prepare, count: int = COUNT) -> tuple[float, dict[str, float]]:
    """Return the CPU milliseconds of a request without profiling, and the percentage of each part of the code."""
    async with Installation() as installation:
        requests = [installation.encoded(one) for one in await prepare(installation, 2 * count)]
        profile, started = cProfile.Profile(time.thread_time), time.process_time()
        for one in requests[:count]:
            await installation.exchange(one)
        took = time.process_time() - started
        before = time.process_time() - time.thread_time()
        profile.enable()
        for one in requests[count:]:
            await installation.exchange(one)
        profile.disable()
        threads = time.process_time() - time.thread_time() - before
    found = parts_of(profile)
    del found["client"]
    found[THREADS] += max(0.0, threads)
    total = sum(found.values())
    return 1e3 * took / count, {part: 100 * seconds / total for part, seconds in found.items()}


def parts_of(profile: cProfile.Profile) -> dict[str, float]:
    """Return the seconds in each part of the code."""
    found = dict.fromkeys((*PARTS, OTHER, THREADS), 0.0)
    stats: dict[Any, Any] = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    for (file, _, _), (_, _, own, _, callers) in stats.items():
        if file == "~":
            for (caller, _, _), (_, _, seconds, _) in callers.items():
                found[part_of(caller)] += seconds
        else:
            found[part_of(file)] += own
    return found


def part_of(file: str) -> str:
    """Return the part of the code that a file belongs to."""
    return next((part for part, names in PARTS.items() if any(name in file for name in names)), OTHER)


def main(names: Sequence[str]) -> None:
    """Print the table of the named hot paths, by default of all."""
    collect_seldom(time.monotonic)  # as servers do
    rows = []
    for name in names or HOT_PATHS:
        milliseconds, parts = asyncio.run(measured(HOT_PATHS[name]))
        rows.append((name, f"{milliseconds:.2f}", *(f"{parts[part]:.0f}" for part in TITLES[2:])))
    sys.stdout.write(table(TITLES, rows))
