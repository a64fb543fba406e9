"""A server whose domains have snapshots, over a store whose requests are counted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

from hsparse.clock import SystemClock
from hsparse.dn.membership.ownership import SOLE
from hsparse.dn.service import DataService
from hsparse.model.acl import Principal
from hsparse.sn.service_settings import ServiceSettings
from hsparse.testing.memory_store import MemoryStore
from hsparse.testing.store_wrapper import CountingStore
from hsparse.versions.wrapping import with_versions
from tests.support.rest_client import BINARY, Reply, RestClient

DENSE = {"class": "H5D_CHUNKED", "dims": [10]}
SPARSE = {"class": "H5D_STRUCT_CHUNK", "dims": [10], "flags": ["H5D_SPARSE_DATA"]}
DOMAIN = "/home/admin/past"


class Versioned:
    """A service node, a data node with snapshots, and a store that counts."""

    def __init__(self) -> None:
        self.memory = MemoryStore(page_size=7)
        self.store = CountingStore(self.memory)

    async def open(self) -> None:
        clock = SystemClock()
        self.versioned, ownership = with_versions(self.store, SOLE, clock)
        self.node = DataService(self.versioned, clock, ownership=ownership)
        users = (Principal("admin", admin=True), Principal("ann"), Principal("ben"))
        settings = ServiceSettings(min_chunk_size=1, single_user=None)
        self.rest = RestClient(self.node, clock, *users, settings=settings)
        await self.rest.open()
        self.rest.domain = DOMAIN

    async def close(self) -> None:
        await self.rest.close()
        await self.node.close()

    async def restart(self) -> None:
        """Start again, with empty caches."""
        await self.close()
        await self.open()

    async def done(self, method: str, path: str, body: Any = None, **options: Any) -> Reply:
        """Send a request that succeeds."""
        reply = await self.rest(method, path, body, **options)
        assert reply.status in (200, 201, 204), (method, path, reply.status, reply.body)
        return reply

    async def create(self, name: str, size: int, layout: dict[str, Any], **options: Any) -> str:
        """Create a dataset of 32-bit integers that grows, and link it; return its id."""
        root = (await self.done("GET", "/", **options))["root"]
        body = {
            "type": "H5T_STD_I32LE",
            "shape": [size],
            "maxdims": [0],
            "creationProperties": {"layout": layout},
            "link": {"id": root, "name": name},
        }
        return str((await self.done("POST", "/datasets", body, **options))["id"])

    async def write(self, id: str, start: int, values: Any, **options: Any) -> None:
        data = np.asarray(values, dtype="<i4")
        select = f"[{start}:{start + len(data)}]"
        await self.done("PUT", f"/datasets/{id}/value", data.tobytes(), select=select, **options)

    async def read(self, id: str, **options: Any) -> list[int]:
        reply = await self.done("GET", f"/datasets/{id}/value", accept=BINARY, **options)
        return list(np.frombuffer(reply.body, "<i4"))

    async def links(self, **options: Any) -> dict[str, str]:
        """Return the ids of what is linked from the root group."""
        root = (await self.done("GET", "/", **options))["root"]
        links = (await self.done("GET", f"/groups/{root}/links", **options))["links"]
        return {link["title"]: link["id"] for link in links}

    async def snapshot(self, message: str = "", **options: Any) -> int:
        return int((await self.done("POST", "/snapshots", {"message": message}, **options))["snapshot"])

    async def keys(self) -> list[str]:
        """Return all keys of the store below `db/`."""
        return [entry.key async for page in self.memory.list("db/") for entry in page.entries]


@pytest.fixture
async def past() -> AsyncIterator[Versioned]:
    """A server with an empty domain."""
    server = Versioned()
    await server.open()
    await server.done("PUT", "/")
    yield server
    await server.close()
