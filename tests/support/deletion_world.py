"""Domains in a store in memory that nodes create, link, move, delete and sweep, and what must hold afterwards.

Nodes go the ways of the handlers, without HTTP. All objects in the store that are older than a day may be swept.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from copy import deepcopy
from functools import partial
from typing import Any, cast

import numpy as np
from aiohttp import web

from hsparse.dn.service import DataService
from hsparse.dn.sweep import Finding, Sweep
from hsparse.format.chunk_spec import ChunkSpec, chunk_key
from hsparse.format.plan.chunk_plan import ChunkSelection
from hsparse.format.selections.points import Orthogonal
from hsparse.model.acl import Principal
from hsparse.model.ids import check_id, domain_prefix, new_id, storage_key, tree_of_key
from hsparse.model.stripes import Stripes
from hsparse.sn.domains.domain_creation import create_domain
from hsparse.sn.domains.domain_deletion import DomainDeletions
from hsparse.sn.objects.create import remove
from hsparse.sn.policies.access import AccessPolicy
from hsparse.sn.request import Domain, Request
from hsparse.sn.route import Route
from hsparse.storage.object_store import ObjectStore
from hsparse.wire.chunk_message import WriteChunks
from hsparse.wire.record_message import CreateObject
from tests.support.rest_client import named_service
from tests.testing.faulty_store import CHANGES, CrashingStore, CrashPoint
from tests.testing.manual_clock import ManualClock
from tests.testing.memory_store import MemoryStore
from tests.testing.store_wrapper import METHODS

ADMIN = Principal("admin", admin=True)
DAY = 86400.0
ITEM = {"class": "H5T_INTEGER", "base": "H5T_STD_I32LE"}
CHUNKS = 3


class Node:
    """A service node with a data node of its own over `store`."""

    def __init__(self, store: ObjectStore, clock: ManualClock) -> None:
        self.store = store
        self._clock = clock
        self.data = DataService(store, clock)
        self._service = named_service(self.data, clock, ADMIN)
        self.owners = self._service.owners

    async def die(self) -> None:
        """End the deletions behind answers, which a dead store holds up: what is left to the collector ends anyhow."""
        left = set(self._service.component(DomainDeletions)._running)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)

    async def close(self) -> None:
        await self.data.close()

    async def create(self, path: str, **body: Any) -> str:
        """Create a domain, or a folder; return its root, empty for a folder."""
        request = Request(cast(web.BaseRequest, None), self._service, cast(Route, None), {})
        request.principal, request.domain_path, request.access = ADMIN, path, AccessPolicy()
        record = await create_domain(request, body)
        return str(record.get("root", ""))

    async def fill(self, root: str, dataset: str = "") -> str:
        """Create a dataset and write its chunks; return its id."""
        id = dataset or new_id("datasets", root, self._clock)
        await self.owners.apply(CreateObject(id, {"id": id, "root": root, "attributes": {}}))
        await self.write(id)
        return id

    async def write(self, dataset: str, stripes: Stripes | None = None) -> None:
        """Write all chunks of a dataset."""
        spec = ChunkSpec(dataset, ITEM, (4,), False, b"", ((),), stripes=stripes)
        parts = tuple(ChunkSelection((number,), Orthogonal.all((4,)), True) for number in range(CHUNKS))
        await self.data.send(WriteChunks(spec, parts, (np.arange(4, dtype="<i4"),) * CHUNKS))

    async def delete(self, path: str, *, keep_root: bool = False) -> None:
        """Delete a domain."""
        domain = Domain(path, await self.owners.record(path))
        await self._service.component(DomainDeletions).remove(domain, keep_root=keep_root, wait=60.0)

    async def move(self, path: str, target: str) -> None:
        """Give the objects of a domain a second name, then take the first."""
        await self.create(target, linked_domain=path)
        await self.delete(path, keep_root=True)

    async def remove(self, dataset: str) -> None:
        """Delete a dataset."""
        await remove(self.owners, dataset)

    async def sweep(self, **options: Any) -> list[Finding]:
        """Sweep the store as `hsparse sweep` does."""
        return await Sweep(self.store, self._clock, **options).run()

    async def resume(self) -> None:
        """Resume interrupted deletions as a data node does from time to time."""
        await self.data.deletions.resume_all()


class World:
    """A store, by default in memory; `datasets` are those of each root that nobody asked to delete.

    Another store has the times of this machine, so the clock begins with them.
    """

    def __init__(self, store: ObjectStore | None = None) -> None:
        self.clock = ManualClock() if store is None else ManualClock(time.time())
        self.store: ObjectStore = MemoryStore(clock=self.clock, page_size=5)
        if store is not None:
            self.store = CrashingStore(store)  # which nodes leave open when they are closed
        self.others: list[MemoryStore] = []
        """Stores in which datasets have chunks, too."""
        self.datasets: dict[str, set[str]] = {}
        self.root_c = ""
        self.nodes: list[Node] = []

    def node(self, store: ObjectStore | None = None) -> Node:
        """Return a new node, over a wrapper of the store if one is given."""
        self.nodes.append(Node(store or self.store, self.clock))
        return self.nodes[-1]

    async def close(self) -> None:
        """Close all nodes."""
        while self.nodes:
            await self.nodes.pop().close()

    async def make(self, path: str) -> tuple[str, str]:
        """Create a domain with a dataset; return the ids of its root and its dataset."""
        node = self.node()
        root = await node.create(path)
        dataset = await node.fill(root)
        self.datasets[root] = {dataset}
        await node.close()
        return root, dataset

    def pass_days(self, days: float = 2.0) -> None:
        self.clock.time += days * DAY

    async def keys(self) -> set[str]:
        """Return all keys."""
        return {entry.key async for page in self.store.list("") for entry in page.entries}

    async def domains(self) -> dict[str, str]:
        """Return the roots of all domains by path, without those that are marked as dangling."""
        found = {}
        for key in await self.keys():
            if key.endswith("/.domain.json"):
                record = json.loads((await self.store.get(key)).data)
                if "root" in record and "deleted" not in record:
                    found["/" + key.removesuffix("/.domain.json")] = record["root"]
        return found

    async def is_whole(self, root: str) -> bool:
        """Say whether the root group, and all that nobody asked to delete, is there."""
        keys = await self.keys()
        expected = {storage_key(root)}
        for dataset in self.datasets.get(root, ()):
            expected |= {storage_key(dataset), *(chunk_key(dataset, (n,)) for n in range(CHUNKS))}
        return expected <= keys

    async def is_gone(self, root: str) -> bool:
        """Say whether nothing is left of a domain's objects."""
        return not any(key.startswith(domain_prefix(root)) for key in await self.keys())

    async def settle(self) -> None:
        """Sweep, two days later, until there is nothing more to find; then check that nothing is left over."""
        node = self.node()
        for _ in range(2):
            self.pass_days()
            await node.sweep()
        assert await node.sweep() == []
        await node.close()
        roots = set((await self.domains()).values())
        keys = await self.keys()
        for key in keys:
            if key.endswith("/.domain.json"):
                continue
            place = tree_of_key(key)
            assert place is not None, f"{key} is left"
            root, dataset = place
            assert root in roots, f"{key} has no domain"
            assert check_id(root) == root
            assert storage_key(root) in keys, f"{key} has no root group"
            assert dataset is None or storage_key(dataset) in keys, f"{key} has no dataset"
        for root in roots:
            assert storage_key(root) in keys, f"{root} is gone, and a domain has it"


async def run_to_the_crash(world: World, point: CrashPoint, act: Callable[[Node], Awaitable[object]]) -> bool:
    """Run `act` on a node that dies at the crash point; return whether it got there."""
    store = CrashingStore(world.store)
    node = world.node(store)
    store.arm(point)
    acting = asyncio.ensure_future(act(node))
    died = asyncio.create_task(store.died.wait())
    await asyncio.wait({acting, died}, return_when=asyncio.FIRST_COMPLETED)
    died.cancel()
    if acting.done():
        await acting
        await node.close()
    acting.cancel()
    await asyncio.wait([acting])
    await node.die()
    await store.settle()
    return store._crash_point is None


async def crash_everywhere(
    act: Callable[[World, Node], Awaitable[object]],
    check: Callable[[World], Awaitable[None]],
    prepare: Callable[[World], Awaitable[object]],
) -> int:
    """Let a node die before each call of the store during `act`, and after each change; return the number of calls."""
    prepared = World()
    await prepare(prepared)
    await prepared.close()
    calls = {False: 0, True: 0}
    for applied, methods in ((False, METHODS), (True, CHANGES)):
        reached = True
        while reached:
            world = deepcopy(prepared)
            point = CrashPoint(calls[applied], applied, fatal=True, methods=methods)
            reached = await run_to_the_crash(world, point, partial(act, world))
            await check(world)
            calls[applied] += reached
    return calls[False]
