"""Requests that handlers send to data nodes about the snapshots of a domain."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from hsparse.errors import Gone, HsparseError, NotFound
from hsparse.sn.request import Request
from hsparse.versions.snapshot_path import snapshot_path
from hsparse.wire.message import Record
from hsparse.wire.record_message import AskStore, Forget


async def take_snapshot(request: Request, root: str, message: str) -> Record:
    """Take and return a snapshot of the domain of `root`; skip a number if a domain has the snapshot's path."""
    while True:
        begun = await ask(request, "begin", root, author=request.principal.name, message=message)
        tree = begun["root"]
        if not await _is_taken(request, snapshot_path(request.domain.path, begun["snapshot"])):
            break
        await ask(request, "abandon", root, tree=tree)
    try:
        await tell(request, root)
        return await ask(request, "seal", root, tree=tree)
    except HsparseError:
        with suppress(HsparseError):
            await ask(request, "abandon", root, tree=tree)
        raise


async def remove_snapshot(request: Request, root: str, number: int) -> None:
    """Delete a snapshot of the domain of `root`, and the copies of objects that only this snapshot needs."""
    gone = await ask(request, "remove", root, number=number)
    await tell(
        request, root
    )  # until all nodes know of it, each preserves the objects that others may read in the snapshot
    await request.service.owners.ask_all(Forget(gone["root"]))
    await ask(request, "abandon", root, tree=gone["root"])
    await tell(request, root)
    await ask(request, "collect", root)


async def _is_taken(request: Request, path: str) -> bool:
    try:
        (await request.service.owners.read(path))[0].unwrap()
    except (NotFound, Gone):
        return False
    return True


async def find_snapshot(request: Request, root: str, number: int) -> Record:
    """Return a snapshot of the domain of `root`; raise `NotFound` with the numbers of all existing snapshots."""
    snapshots: list[Record] = (await ask(request, "list", root))["snapshots"]
    for one in snapshots:
        if one["snapshot"] == number:
            return one
    known = ", ".join(str(one["snapshot"]) for one in snapshots) or "none"
    raise NotFound(f"{request.domain.path} has no snapshot {number}; there are {known}.")


async def ask(request: Request, what: str, root: str, **arguments: Any) -> Record:
    """Ask any data node a question about the snapshots of a domain."""
    return await request.service.owners.ask_any(AskStore(f"versions.{what}", {"root": root, **arguments}))


async def tell(request: Request, root: str, *, renews: bool = False) -> None:
    """Make every data node read the snapshots of a domain again, after the domain's earlier changes have ended.

    With `renews`, the nodes check their cached objects of the domain, because the store itself has changed them.
    """
    told = AskStore("versions.tell", {"root": root}, settles=root, renews=renews)
    await request.service.owners.ask_all(told)
