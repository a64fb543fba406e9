"""A client with a domain over a real data node, paged so small that every answer of size is streamed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np

from hsparse.clock import SystemClock
from hsparse.dn.service import DataService
from hsparse.model.acl import Principal
from hsparse.sn.service_settings import ServiceSettings
from hsparse.sn.values.media.arrow import ArrowWriter
from hsparse.storage.object_store import ObjectStore
from tests.sn.dataset_kinds import sparse as sparse
from tests.support.rest_client import Reply, RestClient, answered
from tests.testing.memory_store import MemoryStore

SETTINGS = ServiceSettings(page_size=4096, max_request_size=200_000, min_chunk_size=1024, max_chunk_size=4096)
ARROW = {"Content-Type": "application/vnd.apache.arrow.stream"}
BINARY = "application/octet-stream"


@asynccontextmanager
async def value_client(
    store: ObjectStore | None = None, settings: ServiceSettings = SETTINGS, nodes: int = 1
) -> AsyncIterator[RestClient]:
    clock = SystemClock()
    store = store or MemoryStore()
    services = {f"dn-{n:03d}": DataService(store, clock, id=f"dn-{n:03d}") for n in range(1, nodes + 1)}
    admin = Principal("admin", admin=True)
    async with RestClient({**services}, clock, admin, settings=settings) as client:
        client.domain = "/home/admin/values.h5"
        assert (await client("PUT", "/", {})).status == 201
        yield client


async def create(client: RestClient, shape: Any, kind: Any, **properties: Any) -> str:
    """Create a dataset; its limits, lower bounds and creation properties by keyword; return its path."""
    body = {"type": kind, "shape": shape}
    body |= {key: properties.pop(key, None) for key in ("maxdims", "lower", "minlower")}
    body = {key: value for key, value in body.items() if value is not None} | {
        "creationProperties": properties
    }
    made = await client("POST", "/datasets", body)
    assert made.status == 201, made.body
    return f"/datasets/{made['id']}"


async def read(client: RestClient, path: str, dtype: Any, shape: tuple[int, ...], **query: Any) -> np.ndarray:
    """Read values in binary."""
    reply = await client("GET", f"{path}/value", accept=BINARY, **query)
    assert reply.status == 200, reply.body
    return np.frombuffer(reply.body, dtype).reshape(shape)


async def put(client: RestClient, path: str, body: Any, **query: Any) -> Reply:
    """Write values."""
    return await answered(client("PUT", f"{path}/value", body, **query))


async def json_of(client: RestClient, path: str, **query: Any) -> Any:
    """Read values in JSON."""
    return (await answered(client("GET", f"{path}/value", **query)))["value"]


async def defined_count(client: RestClient, path: str, **query: Any) -> Any:
    """Return how many elements are defined."""
    return (await answered(client("GET", f"{path}/defined", count_only=1, **query)))["count"]


def arrow(coords: Any, values: Any, dtype: Any = float) -> bytes:
    """Return elements as an Arrow stream."""
    coords = np.array(coords).reshape(len(values), -1)
    writer = ArrowWriter((2**20,) * coords.shape[1], np.dtype(dtype))
    return writer.batch(list(coords.T), np.array(values, dtype)) + writer.end()
