"""Duration of requests over a directory, with many objects in one group and many chunks of one dataset.

One client sends one request at a time to a server in this process. The time is wall-clock time, unlike in the other
tables, because disks matter here.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.failure import Failed
from benchmarks.rest import Rest, encode
from hsparse.cli.embedded_server import embedded_server
from hsparse.config import load_settings
from hsparse.model.ids import domain_prefix

OBJECTS = (1_000, 10_000, 50_000)
CHUNKS = (1_000, 10_000, 100_000)
TITLES = (
    ("objects in one group", *(f"{size:,}" for size in OBJECTS)),
    ("chunks of one dataset", *(f"{size:,}" for size in CHUNKS)),
)
OBJECTS_A_REQUEST, CHUNKS_A_REQUEST = 500, 5_000
CHUNK = 8
"""Number of elements of a chunk."""
ROUNDS = 5
LONGEST = 600
"""Maximum seconds to wait until all objects of a deleted domain are gone."""
SPARSE = {
    "type": "H5T_STD_I32LE",
    "creationProperties": {
        "layout": {"class": "H5D_STRUCT_CHUNK", "dims": [CHUNK], "flags": ["H5D_SPARSE_DATA"]}
    },
}


class Times(dict[str, float]):
    """Measured seconds by name, in order."""

    @contextmanager
    def of(self, name: str, count: int = 1) -> Iterator[None]:
        """Record the seconds that the context takes, divided by `count`, the number of repetitions in it."""
        began = time.perf_counter()
        yield
        self[name] = (time.perf_counter() - began) / count


async def fill_group(rest: Rest, store: Path, count: int) -> Times:
    """Create `count` groups in the root group, read them, and delete the domain; return the times."""
    times, root = Times(), rest.root
    with times.of("create them, 500 a request"):
        for first in range(0, count, OBJECTS_A_REQUEST):
            names = range(first, min(count, first + OBJECTS_A_REQUEST))
            links = [{"link": {"id": root, "name": f"g{number}"}} for number in names]
            await rest.send("POST", "/groups", encode(links))
    with times.of("add an attribute to the group", ROUNDS):
        for number in range(ROUNDS):
            body = {"type": "H5T_STD_I64LE", "value": 7}
            await rest.send("PUT", f"/groups/{root}/attributes/a{number}", encode(body))
    with times.of("add a link to the group", ROUNDS):
        for number in range(ROUNDS):
            await rest.send("PUT", f"/groups/{root}/links/again{number}", encode({"id": root}))
    with times.of("the domain by `getobjs`"):
        found = await rest.json("GET", "/", getobjs="T", include_attrs="T", include_links="T")
    if len(found["domain_objs"]) != count + 1:
        raise Failed(f"The domain has {len(found['domain_objs'])} objects, not {count + 1}.")
    with times.of("delete the domain: the answer"):
        await rest.send("DELETE", "/")
    with times.of("delete the domain: all objects are gone"):
        end = time.monotonic() + LONGEST
        while any(files for _, _, files in os.walk(store / domain_prefix(root))):
            if time.monotonic() > end:
                raise Failed(f"The objects of a deleted domain were not gone after {LONGEST} s.")
            await asyncio.sleep(0.05)
    return times


async def fill_dataset(rest: Rest, store: Path, count: int) -> Times:
    """Write `count` chunks of a sparse dataset, and count and map them; return the times."""
    times = Times()
    id = await rest.dataset(SPARSE | {"shape": [CHUNK * count]})
    with times.of("write them, 5,000 a request"):
        for first in range(0, count, CHUNKS_A_REQUEST):
            chunks = min(CHUNKS_A_REQUEST, count - first)
            box = (CHUNK * first,), (CHUNK * (first + chunks),)
            await rest.write(id, bytes(4 * CHUNK * chunks), box)
    with times.of("count chunks"):
        await rest.send("GET", f"/datasets/{id}/chunks", params={"count_only": "1"})
    for name in ("count defined elements, the first time", "count them again"):
        with times.of(name):
            found = await rest.json("GET", f"/datasets/{id}/defined", count_only="1")
        if found["count"] != CHUNK * count:
            raise Failed(f"The dataset has {found['count']} defined elements, not {CHUNK * count}.")
    with times.of("map"):
        await rest.send("GET", f"/datasets/{id}/map")
    return times


async def rows(
    fill: Callable[[Rest, Path, int], Awaitable[Times]], sizes: Sequence[int]
) -> list[tuple[str, ...]]:
    """Return a row per request of `fill`: its name, and the time at each size."""
    columns: list[Times] = []
    for size in sizes:
        with (
            tempfile.TemporaryDirectory() as store,
            embedded_server(load_settings(root=Path(store), port=0)) as url,
        ):
            async with Rest("hsparse", url) as rest:
                await rest.domain("/growth.h5")
                columns.append(await fill(rest, Path(store), size))
    return [(name, *(_time(column[name]) for column in columns)) for name in columns[0]]


async def object_rows(sizes: Sequence[int] = OBJECTS) -> list[tuple[str, ...]]:
    """Return the rows about objects in one group."""
    return await rows(fill_group, sizes)


async def chunk_rows(sizes: Sequence[int] = CHUNKS) -> list[tuple[str, ...]]:
    """Return the rows about chunks of one dataset."""
    return await rows(fill_dataset, sizes)


def _time(seconds: float) -> str:
    return f"{1000 * seconds:.1f} ms" if seconds < 0.1 else f"{seconds:.2f} s"
