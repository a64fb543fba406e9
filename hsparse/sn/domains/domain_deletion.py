"""Deletion of a domain: noted in the store first, so that any data node can finish it after a crash."""

from __future__ import annotations

from hsparse.errors import Conflict
from hsparse.model.ids import deletion_key, storage_key
from hsparse.model.schema import check_changeable
from hsparse.sn.context import Domain
from hsparse.sn.data_nodes.owners import Owners
from hsparse.wire.record_message import BeginDeletion, DeleteObject, DeleteTree, Forget, ListKeys


async def remove_domain(owners: Owners, domain: Domain, *, keep_root: bool) -> None:
    """Delete the record of a domain or folder and, without `keep_root`, the domain's objects.

    `NotFound` or `Gone` if there is none any more. The objects of a domain that is marked as deleted are another's.
    """
    path, root = domain.path, domain.root
    if root is None or keep_root or "deleted" in domain.record:
        await owners.apply(DeleteObject(path))
        return
    check_changeable(path, domain.record)  # what is refused must leave no note
    born = await owners.ask_any(BeginDeletion(root, path))
    await owners.apply(DeleteObject(path))
    if born:  # without a root group there is nothing, or what a sweep removes
        await owners.ask_any(DeleteTree(root, born))
    await owners.ask_all(Forget(root))


async def check_root_stays(owners: Owners, path: str, root: str) -> None:
    """Take the new domain at `path` back if its root group is being deleted, or was; `Conflict` then.

    To be called once the domain's record is stored: a deletion stores its note first and looks for domains afterwards.
    The note is looked for first: it goes only after the root group.
    """
    is_deleted = (await owners.ask_any(ListKeys(deletion_key(root), limit=1))).keys
    is_there = (await owners.ask_any(ListKeys(storage_key(root), limit=1))).keys
    if is_deleted or not is_there:
        await owners.apply(DeleteObject(path))
        raise Conflict(f"The objects of {root} are being deleted, or were: {path} cannot have them.")
