"""Measured: how long requests over a directory take with many objects in one group, and many chunks of one dataset.

One client, one request at a time, a server in this process. Wall-clock time, unlike the other tables: disks count here.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from benchmarks.failure import Failed
from hsparse.cli.embedded_server import embedded_server
from hsparse.config import load_settings

OBJECTS = (1_000, 10_000, 50_000)
CHUNKS = (1_000, 10_000, 100_000)
TITLES = (
    ("objects in one group", *(f"{size:,}" for size in OBJECTS)),
    ("chunks of one dataset", *(f"{size:,}" for size in CHUNKS)),
)
OBJECTS_A_REQUEST, CHUNKS_A_REQUEST = 500, 5_000
CHUNK = 8
"""Elements of a chunk."""
ROUNDS = 5
LONGEST = 600
"""Seconds for an answer, and for all objects of a deleted domain to go."""
BINARY = "application/octet-stream"
SPARSE = {
    "type": "H5T_STD_I32LE",
    "creationProperties": {
        "layout": {"class": "H5D_STRUCT_CHUNK", "dims": [CHUNK], "flags": ["H5D_SPARSE_DATA"]}
    },
}


@dataclass(slots=True)
class Domain:
    """A new domain of a server over a directory."""

    http: HTTPConnection
    store: Path
    name: str
    root: str = ""
    times: dict[str, float] = field(default_factory=dict)
    """Seconds by what they were measured of, in order."""

    def ask(self, method: str, path: str, body: object = None, **params: object) -> bytes:
        """Return the answer to a request."""
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        kind = BINARY if isinstance(body, bytes) else "application/json"
        target = f"{path}?{urlencode({'domain': self.name, **params})}"
        self.http.request(method, target, data, {"Content-Type": kind})
        answer = self.http.getresponse()
        found = answer.read()
        if answer.status >= 300:
            raise Failed(f"{method} {path} answered {answer.status}: {found[:500]!r}")
        return found

    def json(self, method: str, path: str, body: object = None, **params: object) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.ask(method, path, body, **params))
        return found

    @contextmanager
    def timed(self, name: str, count: int = 1) -> Iterator[None]:
        """Note the seconds that the context takes, divided by what it does so many times."""
        began = time.perf_counter()
        yield
        self.times[name] = (time.perf_counter() - began) / count

    def is_stored(self) -> bool:
        """Return whether an object or chunk of the domain is in the store."""
        _, first, second, *_ = self.root.split("-")
        return any(files for _, _, files in os.walk(self.store / "db" / f"{first}-{second}"))


def fill_group(domain: Domain, count: int) -> None:
    """Create so many groups in the root group, look at them, and delete the domain."""
    with domain.timed("create them, 500 a request"):
        for first in range(0, count, OBJECTS_A_REQUEST):
            names = range(first, min(count, first + OBJECTS_A_REQUEST))
            links = [{"link": {"id": domain.root, "name": f"g{number}"}} for number in names]
            domain.ask("POST", "/groups", links)
    with domain.timed("add an attribute to the group", ROUNDS):
        for number in range(ROUNDS):
            body = {"type": "H5T_STD_I64LE", "value": 7}
            domain.ask("PUT", f"/groups/{domain.root}/attributes/a{number}", body)
    with domain.timed("add a link to the group", ROUNDS):
        for number in range(ROUNDS):
            domain.ask("PUT", f"/groups/{domain.root}/links/again{number}", {"id": domain.root})
    with domain.timed("the domain by `getobjs`"):
        found = domain.json("GET", "/", getobjs="T", include_attrs="T", include_links="T")["domain_objs"]
    if len(found) != count + 1:
        raise Failed(f"The domain has {len(found)} objects, not {count + 1}.")
    with domain.timed("delete the domain: the answer"):
        domain.ask("DELETE", "/")
    with domain.timed("delete the domain: all objects are gone"):
        end = time.monotonic() + LONGEST
        while domain.is_stored() and time.monotonic() < end:
            time.sleep(0.05)


def fill_dataset(domain: Domain, count: int) -> None:
    """Write so many chunks of a sparse dataset, and count and map them."""
    id = domain.json("POST", "/datasets", SPARSE | {"shape": [CHUNK * count]})["id"]
    with domain.timed("write them, 5,000 a request"):
        for first in range(0, count, CHUNKS_A_REQUEST):
            chunks = min(CHUNKS_A_REQUEST, count - first)
            select = f"[{CHUNK * first}:{CHUNK * (first + chunks)}]"
            domain.ask("PUT", f"/datasets/{id}/value", bytes(4 * CHUNK * chunks), select=select)
    with domain.timed("count chunks"):
        domain.ask("GET", f"/datasets/{id}/chunks", count_only=1)
    for name in ("count defined elements, the first time", "count them again"):
        with domain.timed(name):
            found = domain.json("GET", f"/datasets/{id}/defined", count_only=1)["count"]
        if found != CHUNK * count:
            raise Failed(f"The dataset has {found} defined elements, not {CHUNK * count}.")
    with domain.timed("map"):
        domain.ask("GET", f"/datasets/{id}/map")


def rows(fill: Callable[[Domain, int], None], sizes: Sequence[int]) -> list[tuple[str, ...]]:
    """Return, for each request of `fill`, its name, and the time at each size."""
    columns: list[dict[str, float]] = []
    for size in sizes:
        with (
            tempfile.TemporaryDirectory() as store,
            embedded_server(load_settings(root=Path(store), port=0)) as url,
        ):
            parts = urlsplit(url)
            domain = Domain(HTTPConnection(parts.netloc, timeout=LONGEST), Path(store), "/growth.h5")
            domain.ask("PUT", "/")
            domain.root = domain.json("GET", "/")["root"]
            fill(domain, size)
            domain.http.close()
            columns.append(domain.times)
    return [(name, *(_time(column[name]) for column in columns)) for name in columns[0]]


def object_rows(sizes: Sequence[int] = OBJECTS) -> list[tuple[str, ...]]:
    """Return the rows about objects in one group."""
    return rows(fill_group, sizes)


def chunk_rows(sizes: Sequence[int] = CHUNKS) -> list[tuple[str, ...]]:
    """Return the rows about chunks of one dataset."""
    return rows(fill_dataset, sizes)


def _time(seconds: float) -> str:
    return f"{1000 * seconds:.1f} ms" if seconds < 0.1 else f"{seconds:.2f} s"
