"""Why something is not there, asked without changing anything."""

from __future__ import annotations

from hsparse.cluster.membership import Membership
from hsparse.errors import Gone, NotFound
from hsparse.sn.objects.missing import missing_attribute, missing_link
from hsparse.sn.owners import Owners
from hsparse.testing.rest_client import RestClient
from hsparse.wire.message import DataNode
from hsparse.wire.record_message import ChangeObjects, DeleteAttributes, DeleteLinks, ReadObjects


async def test_asking_never_deletes(rest: RestClient, root: str, node: DataNode) -> None:
    owners = Owners(Membership(1, ("dn-001",)), {"dn-001": node})
    assert isinstance(await missing_link(owners, root, "a"), NotFound)
    assert isinstance(await missing_attribute(owners, root, "a"), NotFound)
    await rest("PUT", f"/groups/{root}/links/a", {"h5path": "/x"})
    await rest("PUT", f"/groups/{root}/attributes/a", {"type": "H5T_STD_I8LE", "value": 1})
    before = await node.send(ReadObjects((root,)))
    assert isinstance(await missing_link(owners, root, "a"), NotFound)
    assert isinstance(await missing_attribute(owners, root, "a"), NotFound)
    assert await node.send(ReadObjects((root,))) == before, "it came to be before we asked"
    await node.send(ChangeObjects((DeleteLinks(root, ("a",)), DeleteAttributes(root, ("a",)))))
    assert isinstance(await missing_link(owners, root, "a"), Gone)
    assert isinstance(await missing_attribute(owners, root, "a"), Gone)
