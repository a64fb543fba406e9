"""The membership in the store: one object, which a data node changes by conditional put when it joins or leaves.

The object is JSON, `db/.cluster/members.json`: `version`, `epoch`, `secret` (a digest of the nodes' token), and
`members`, by id the `url` of each and whether it is `leaving`. There is no coordinator: any data node may remove one
that is gone (`hsparse.cluster.lease_object` says when).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

from hsparse.cluster.membership import NO_MEMBERS, Membership
from hsparse.errors import Busy, Corrupt, Misconfigured, NotFound, PreconditionFailed
from hsparse.storage.object_store import ObjectStore

KEY = "db/.cluster/members.json"
VERSION = 1
"""The version of the object's form."""
ATTEMPTS = 64
"""How often a change is tried while other nodes change the object too."""

Members = dict[str, dict[str, Any]]


class MembershipObject:
    """The membership of the data nodes of one store that share the secret `token`."""

    def __init__(self, store: ObjectStore, token: str) -> None:
        self._store = store
        self._secret = blake2b(token.encode(), digest_size=8, person=b"hsparse-member").hexdigest()

    async def read(self) -> Membership:
        """Return the membership, one without members where no node ever joined.

        `Corrupt` for a damaged object, `Misconfigured` for one of a newer version.
        """
        return _membership((await self._load())[0])

    def other_token(self, view: Membership) -> Misconfigured | None:
        """Return the error for a membership whose nodes have another token, None for one that may be joined."""
        if not view.members or view.secret == self._secret:
            return None
        return Misconfigured(
            "The data nodes of this store have another token: give every node the same HSPARSE_NODE_TOKEN."
        )

    async def join(self, id: str, url: str) -> Membership:
        """Add a data node, and return the new membership. Raises as `read`."""
        return await self._change(lambda members: {**members, id: {"url": url}})

    async def leave(self, id: str) -> Membership:
        """Note that a data node is leaving: it owns nothing from then on."""
        return await self._change(
            lambda members: {
                name: {**one, "leaving": True} if name == id else one for name, one in members.items()
            }
        )

    async def remove(self, id: str) -> Membership:
        """Remove a data node, which may no longer answer from its cache nor acknowledge a change."""
        return await self._change(lambda members: {name: one for name, one in members.items() if name != id})

    async def rebuild(self) -> Membership:
        """Replace the object, damaged or not, by one without members; each node that is alive joins it again.

        The epoch goes on from the one that can still be read; without one it is made higher than any was likely to be.
        """
        try:
            stored = await self._store.get(KEY)
        except NotFound:
            return NO_MEMBERS
        try:
            epoch = int(json.loads(stored.data)["epoch"])
        except (ValueError, KeyError, TypeError):
            epoch = 1 << 32
        form = {"version": VERSION, "epoch": epoch + 1, "secret": self._secret, "members": {}}
        await self._store.put_if_match(KEY, _encode(form), stored.etag)
        return _membership(form)

    async def _change(self, change: Callable[[Members], Members]) -> Membership:
        for _ in range(ATTEMPTS):
            form, etag = await self._load()
            before: Members = form["members"]
            after = change(before)
            if after == before:
                return _membership(form)
            moved = _owners(after) != _owners(before)
            form = {**form, "epoch": form["epoch"] + moved, "secret": self._secret, "members": after}
            try:
                if etag is None:
                    await self._store.put_if_absent(KEY, _encode(form))
                else:
                    await self._store.put_if_match(KEY, _encode(form), etag)
            except PreconditionFailed:
                continue
            return _membership(form)
        raise Busy("Other data nodes kept changing the membership; try again.")

    async def _load(self) -> tuple[dict[str, Any], str | None]:
        """Return the object's form and etag; None for the etag where there is no object."""
        try:
            stored = await self._store.get(KEY)
        except NotFound:
            return {"version": VERSION, "epoch": 0, "secret": self._secret, "members": {}}, None
        form = _decode(stored.data)
        if form["version"] > VERSION:
            raise Misconfigured(
                f"The data nodes of this store speak version {form['version']} of the messages, and this hsparse "
                f"{VERSION}: install the newer hsparse."
            )
        return form, stored.etag


def _owners(members: Members) -> set[str]:
    return {id for id, one in members.items() if not one.get("leaving")}


def _membership(form: dict[str, Any]) -> Membership:
    members: Members = form["members"]
    return Membership(
        form["epoch"],
        tuple(id for id, one in members.items() if not one.get("leaving")),
        tuple(id for id, one in members.items() if one.get("leaving")),
        {id: one["url"] for id, one in members.items()},
        form["secret"],
    )


def _encode(form: dict[str, Any]) -> bytes:
    return json.dumps(form, indent=1).encode()


def _decode(data: bytes) -> dict[str, Any]:
    try:
        form = json.loads(data)
        valid = (
            isinstance(form["epoch"], int)
            and isinstance(form["version"], int)
            and isinstance(form["secret"], str)
            and all(isinstance(one["url"], str) for one in form["members"].values())
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        valid = False
    if not valid:
        raise Corrupt(
            f"The membership object {KEY} is damaged; `hsparse nodes --rebuild` replaces it, and the nodes join again."
        )
    return dict(form)
