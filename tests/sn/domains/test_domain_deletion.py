"""Domains whose objects were deleted by another name, and new names of what is gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, TypeVar

import pytest

from hsparse.dn.service import DataService
from hsparse.dn.sweep import MIN_AGE, Sweep
from hsparse.model.acl import Principal
from hsparse.model.ids import deletion_key, tree_prefix
from hsparse.sn.domains import domain_deletion
from hsparse.wire.message import DataNode, Message
from hsparse.wire.record_message import (
    BeginDeletion,
    ChangeObjects,
    DeleteObject,
    DeleteTree,
    PutRecord,
    ReadObjects,
)
from tests.sn.conftest import DOMAIN
from tests.support.rest_client import RestClient
from tests.testing.manual_clock import ManualClock
from tests.testing.memory_store import MemoryStore

R = TypeVar("R")
LINK = "/home/test_user1/link.h5"


async def mark(node: DataNode, path: str) -> None:
    """Mark a domain as a sweep does."""
    [outcome] = await node.send(ReadObjects((path,)))
    [outcome] = await node.send(ChangeObjects((PutRecord(path, {**outcome.unwrap(), "deleted": 1.0}),)))
    outcome.unwrap()


async def test_a_marked_domain_is_gone_until_it_is_deleted(
    rest: RestClient, node: DataNode, root: str
) -> None:
    assert (await rest("PUT", "/", {"linked_domain": DOMAIN}, domain=LINK)).status == 201
    await mark(node, LINK)
    for path in ("/", f"/groups/{root}", "/acls", "/datasets"):
        assert (await rest("GET", path, domain=LINK)).status == 410
    assert (await rest("PUT", "/", {"linked_domain": LINK}, domain=LINK + "2")).status == 410
    assert (await rest("PUT", "/", {}, domain=LINK)).status == 409
    assert (await rest("DELETE", "/", domain=LINK)).status == 200
    assert (await rest("GET", f"/groups/{root}")).status == 200, "objects with this root are another domain's"
    assert (await rest("PUT", "/", {}, domain=LINK)).status == 201


async def test_a_new_name_for_objects_that_are_gone_is_refused(
    rest: RestClient, node: DataNode, root: str
) -> None:
    [outcome] = await node.send(ChangeObjects((DeleteObject(root),)))
    outcome.unwrap()
    reply = await rest("PUT", "/", {"linked_domain": DOMAIN}, domain=LINK)
    assert reply.status == 409
    assert (await rest("GET", "/", domain=LINK)).status == 410


async def test_a_domain_without_its_root_group_can_be_deleted(
    rest: RestClient, node: DataNode, root: str
) -> None:
    await node.send(ChangeObjects((DeleteObject(root),)))
    assert (await rest("DELETE", "/")).status == 200
    assert (await rest("GET", "/")).status == 410


class Gated:
    """A data node that does not answer messages of a kind, the deletions of trees, while the gate is closed.

    One that is lost does not carry them out; they are sent again, to another one.
    """

    kind: type[Message[Any]] = DeleteTree
    is_lost = False

    def __init__(self, store: MemoryStore, clock: ManualClock) -> None:
        self.service = DataService(store, clock)
        self.reached, self.gate = asyncio.Event(), asyncio.Event()

    async def send(self, message: Message[R]) -> R:
        if isinstance(message, self.kind):
            self.reached.set()
            await self.gate.wait()
            if self.is_lost:
                message = message.as_repeated()
        return await self.service.send(message)

    async def close(self) -> None:
        await self.service.close()


@pytest.fixture
async def gated() -> AsyncIterator[tuple[RestClient, Gated, MemoryStore]]:
    """A client of a server with a domain, its gated data node, and the store."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    node = Gated(store, clock)
    client = await RestClient(node, clock, Principal("test_user1")).open()
    client.domain = DOMAIN
    assert (await client("PUT", "/", {})).status == 201
    yield client, node, store
    await client.close()
    await node.close()


async def keys(store: MemoryStore, prefix: str) -> list[str]:
    return [entry.key async for page in store.list(prefix) for entry in page.entries]


async def test_the_answer_does_not_wait_for_the_objects(gated: tuple[RestClient, Gated, MemoryStore]) -> None:
    client, node, store = gated
    root = (await client("GET", "/"))["root"]
    assert (await client("DELETE", "/")).status == 200
    assert (await client("GET", "/")).status == 410
    assert await keys(store, tree_prefix(root)) != []
    assert (await client("PUT", "/", {"root_id": root})).status == 409, "the note keeps the root"
    again = (await client("PUT", "/", {}))["root"]
    node.gate.set()
    assert (await client("DELETE", "/", wait=60)).status == 200
    await client.service.component(domain_deletion.DomainDeletions).close()
    assert await keys(store, tree_prefix(root)) == await keys(store, tree_prefix(again)) == []


async def test_a_deletion_leaves_a_domain_that_was_created_meanwhile(
    gated: tuple[RestClient, Gated, MemoryStore],
) -> None:
    """It was begun when another one was at the path, whose record it has read."""
    client, node, store = gated
    root = (await client("GET", "/"))["root"]
    node.kind = BeginDeletion
    late = asyncio.ensure_future(client("DELETE", "/"))
    await node.reached.wait()
    node.kind = DeleteTree
    assert (await client("DELETE", "/", keep_root=1)).status == 200
    client.service.clock.time += 1.0  # type: ignore[attr-defined]
    new = (await client("PUT", "/", {}))["root"]
    node.gate.set()
    assert (await late).status == 404
    assert (await client("GET", "/"))["root"] == new
    assert await keys(store, deletion_key(root)) == []
    assert await keys(store, tree_prefix(root)) != []


@pytest.mark.parametrize("is_created_again", [False, True])
async def test_objects_that_were_moved_stay_though_a_deletion_was_sent_again(
    gated: tuple[RestClient, Gated, MemoryStore], is_created_again: bool
) -> None:
    """The data node dies before it carries out the deletion; the next one finds that the domain has left its name."""
    client, node, store = gated
    root = (await client("GET", "/"))["root"]
    assert (await client("PUT", "/", {"linked_domain": DOMAIN}, domain=LINK)).status == 201
    node.kind, node.is_lost = ChangeObjects, True
    late = asyncio.ensure_future(client("DELETE", "/"))
    await node.reached.wait()
    node.kind = DeleteTree
    assert (await client("DELETE", "/", keep_root=1)).status == 200
    if is_created_again:
        client.service.clock.time += 1.0  # type: ignore[attr-defined]
        assert (await client("PUT", "/", {})).status == 201
    node.gate.set()
    assert (await late).status == 200
    await client.service.component(domain_deletion.DomainDeletions).close()
    assert await keys(store, tree_prefix(root)) != []
    assert await node.service.deletions.resume_all(age=-1.0) == 0, "a sweep looks for other names"
    clock = client.service.clock
    clock.time += 2 * MIN_AGE  # type: ignore[attr-defined]
    await Sweep(store, clock).run()
    assert await keys(store, deletion_key(root)) == []
    assert (await client("GET", f"/groups/{root}", domain=LINK)).status == 200


async def test_a_node_that_stops_leaves_the_objects_to_a_data_node(
    gated: tuple[RestClient, Gated, MemoryStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, node, store = gated
    monkeypatch.setattr(domain_deletion, "LAST_SECONDS", 0.0)
    root = (await client("GET", "/"))["root"]
    assert (await client("DELETE", "/")).status == 200
    await node.reached.wait()
    await client.service.component(domain_deletion.DomainDeletions).close()
    assert await keys(store, deletion_key(root)) == [deletion_key(root)]
    assert await node.service.deletions.resume_all(age=-1.0) == 1
    assert await keys(store, "db/") == []
