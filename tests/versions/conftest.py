"""A server whose domains have snapshots, over a store whose requests are counted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

from hsparse.clock import SystemClock
from hsparse.dn.data_settings import DataSettings
from hsparse.dn.membership.ownership import SOLE
from hsparse.dn.service import DataService, NodeResources
from hsparse.model.acl import Principal
from hsparse.sn.service_settings import ServiceSettings
from hsparse.versions.wrapping import with_versions
from tests.support.rest_client import BINARY, Reply, RestClient
from tests.support.restartable_node import Doubtful
from tests.testing.memory_store import MemoryStore
from tests.testing.store_wrapper import CountingStore

DENSE = {"class": "H5D_CHUNKED", "dims": [10]}
SPARSE = {"class": "H5D_STRUCT_CHUNK", "dims": [10], "flags": ["H5D_SPARSE_DATA"]}
DOMAIN = "/home/admin/past"


class Versioned:
    """Service nodes over data nodes with snapshots, and a store that counts.

    Of two data nodes each one owns all objects by one of the service nodes. With `shares` a node has other buckets.
    """

    def __init__(self, nodes: int = 1, *, shares: bool = False) -> None:
        self.memory = MemoryStore(page_size=7)
        self.store = CountingStore(self.memory)
        self.count = nodes
        self.shares = shares
        self.data = DataSettings()
        self.settings = ServiceSettings(min_chunk_size=1, single_user=None)
        self.nodes: list[DataService] = []
        self.doors: list[RestClient] = []

    async def open(self) -> None:
        clock = SystemClock()
        for _ in range(self.count):
            sole = SOLE if self.count == 1 else Doubtful()
            self.versioned, ownership = with_versions(self.store, sole, clock)
            resources = NodeResources.of(self.data)
            if self.shares:
                resources = resources.of_bucket("main")
            self.nodes.append(DataService(self.versioned, clock, ownership=ownership, resources=resources))
        users = (Principal("admin", admin=True), Principal("ann"), Principal("ben"))
        for number in range(self.count):
            nodes = [*self.nodes[number:], *self.nodes[:number]]
            by_id = {f"dn-{place}": node for place, node in enumerate(nodes)}
            self.doors.append(await RestClient(by_id, clock, *users, settings=self.settings).open())
            self.doors[-1].domain = DOMAIN

    @property
    def rest(self) -> RestClient:
        return self.doors[0]

    async def close(self) -> None:
        for door in self.doors:
            await door.close()
        for node in self.nodes:
            await node.close()
        self.doors, self.nodes = [], []

    async def restart(self) -> None:
        """Start again, with empty caches."""
        await self.close()
        await self.open()

    async def done(self, method: str, path: str, body: Any = None, **options: Any) -> Reply:
        """Send a request that succeeds."""
        reply = await options.pop("door", self.rest)(method, path, body, **options)
        assert reply.status in (200, 201, 204), (method, path, reply.status, reply.body)
        return reply

    async def create(
        self, name: str, size: int, layout: dict[str, Any], lower: int | None = None, **options: Any
    ) -> str:
        """Create a dataset of 32-bit integers that grows, below a lower bound too, and link it; return its id."""
        root = (await self.done("GET", "/", **options))["root"]
        body = {
            "type": "H5T_STD_I32LE",
            "shape": [size],
            "maxdims": [0],
            "creationProperties": {"layout": layout},
            "link": {"id": root, "name": name},
        }
        if lower is not None:
            body |= {"lower": lower, "minlower": "H5S_UNLIMITED"}
        return str((await self.done("POST", "/datasets", body, **options))["id"])

    async def filled(self, size: int, layout: dict[str, Any] = DENSE) -> str:
        """Create the dataset `kept`, whose elements count from 0; return its id."""
        id = await self.create("kept", size, layout)
        await self.write(id, 0, range(size))
        return id

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
async def past(request: pytest.FixtureRequest) -> AsyncIterator[Versioned]:
    """A server with an empty domain; the parameter says whether it has other buckets."""
    server = Versioned(shares=getattr(request, "param", False))
    await server.open()
    await server.done("PUT", "/")
    yield server
    await server.close()
