"""Domains whose objects were deleted by another name, and new names of what is gone."""

from __future__ import annotations

from hsparse.wire.message import DataNode
from hsparse.wire.record_message import ChangeObjects, DeleteObject, PutRecord, ReadObjects
from tests.sn.conftest import DOMAIN
from tests.support.rest_client import RestClient

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
