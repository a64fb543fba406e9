"""Before a snapshot is deleted, materialize the clones of other users that need the snapshot.

The owner's deletion thus succeeds, and no clone loses data; the copies count in the quotas above the clone. If the user
may delete a clone, an error names the clone instead, because the user may want to delete it first.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Self

from hsparse.errors import Conflict, Gone, NotFound, Unsupported
from hsparse.model.acl import Principal, Right
from hsparse.sn.data_nodes.owners import Owners
from hsparse.sn.request import Domain
from hsparse.sn.service import Service
from hsparse.wire.message import Record
from hsparse.wire.record_message import AskStore


class Clones:
    """The clones of the domains of a bucket; implements `Dependents` for the deletion of domains."""

    def __init__(self, owners: Owners) -> None:
        self._owners = owners

    @classmethod
    def of(cls, service: Service) -> Self:
        """Return the clones of the service's bucket."""
        return cls(service.owners)

    async def release(self, root: str, principal: Principal, number: int | None = None) -> None:
        """Materialize other users' clones that need snapshot `number` of a domain, or (None) any of its snapshots.

        Raises `Conflict` if the user may delete such a clone, which the message names; also if its deletion has begun.
        """
        try:
            found = await self._owners.ask_any(AskStore("versions.pins", {"root": root}))
        except Unsupported:  # data nodes without the extension have no clones
            return
        pins = [pin for pin in found["pins"] if number in (None, pin["snapshot"])]
        own = await self.allowed(pins, principal, Right.DELETE)
        if own:
            raise Conflict(
                f"The clone {own[0]['domain']} needs snapshot {own[0]['snapshot']}: delete the clone first, or "
                "copy its shared objects by hsparse clone --materialize."
            )
        for pin in pins:
            with suppress(NotFound, Gone):  # the clone is being deleted
                await materialize(self._owners, pin["root"])

    async def allowed(self, pins: list[Record], principal: Principal, right: Right) -> list[Record]:
        """Return the items of `pins` (clones that need a snapshot) in whose domains the principal has a right."""
        if not pins:
            return []
        outcomes = zip(pins, await self._owners.read(*(pin["domain"] for pin in pins)), strict=True)
        there = [(pin, Domain(pin["domain"], one.unwrap())) for pin, one in outcomes if one.failure is None]
        return [
            pin for pin, domain in there if domain.root == pin["root"] and domain.allows(principal, right)
        ]


async def materialize(owners: Owners, root: str) -> int:
    """Copy all objects that a clone shares, and release its snapshot; return the number of copied objects."""
    done = await owners.ask_any(AskStore("versions.materialize", {"root": root}))
    if done["base"] is not None:
        await owners.ask_all(AskStore("versions.tell", {"root": root}, settles=root, renews=True))
        await owners.ask_any(AskStore("versions.part", {"root": root, "base": done["base"]}))
    return int(done["copied"])
