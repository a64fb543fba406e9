"""The membership in the store: one object, which a data node changes by conditional put when it joins or leaves.

The object is JSON, `db/.cluster/members.json`: `version`, `epoch`, `secret` (a digest of the nodes' token), and
`members`, by id the `url` of each, the newest `version` of the messages that it understands and the `oldest` (1 for
both where they are missing), whether it is `leaving`, and whether it is a `server`, which has no URL. There is no
coordinator: any data node may remove one that is gone (`hsparse.cluster.lease_object` says when).

What a node does not know of the object it leaves as it is, so that nodes of two versions change the same one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from hsparse.cluster.membership import Membership
from hsparse.errors import Busy, Corrupt, Misconfigured, NotFound, Outdated, PreconditionFailed
from hsparse.storage.object_store import ObjectStore

KEY = "db/.cluster/members.json"
VERSION = 1
"""The version of the object's form. Fields are added without another one: it is for what older nodes must not read."""
ATTEMPTS = 64
"""How often a change is tried while other nodes change the object too."""

Members = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Seen:
    """The object's etag, None where there is no object, and its epoch, None where that cannot be read."""

    etag: str | None
    epoch: int | None


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
        if not view.reachable or view.secret == self._secret:
            return None
        return Misconfigured(
            "The data nodes of this store have another token: give every node the same HSPARSE_NODE_TOKEN."
        )

    async def join(self, id: str, url: str, version: int = 1, oldest: int = 1) -> Membership:
        """Add a data node that understands these versions of the messages, and return the new membership.

        `Outdated` while there is a member that speaks none of them; else raises as `read`.
        """

        def join(members: Members) -> Members:
            _check_versions(members, version, oldest)
            return {**members, id: {"url": url, "version": version, "oldest": oldest}}

        return await self._change(join)

    async def join_as_server(self, id: str) -> Membership:
        """Add a whole server, which needs no token: nobody sends to it."""
        return await self._change(lambda members: {**members, id: {"url": "", "server": True}})

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

    async def seen(self) -> Seen:
        """Return what there is of the object, damaged or not."""
        try:
            stored = await self._store.get(KEY)
        except NotFound:
            return Seen(None, None)
        try:
            return Seen(stored.etag, int(json.loads(stored.data)["epoch"]))
        except (ValueError, KeyError, TypeError):
            return Seen(stored.etag, None)

    async def replace(self, seen: Seen, epoch: int) -> Membership:
        """Replace the object by one without members; `PreconditionFailed` if it is not as it was seen any more."""
        form = {"version": VERSION, "epoch": epoch, "secret": self._secret, "members": {}}
        if seen.etag is None:
            await self._store.put_if_absent(KEY, _encode(form))
        else:
            await self._store.put_if_match(KEY, _encode(form), seen.etag)
        return _membership(form)

    async def _change(self, change: Callable[[Members], Members]) -> Membership:
        for _ in range(ATTEMPTS):
            form, etag = await self._load()
            before: Members = form["members"]
            after = change(before)
            if after == before:
                return _membership(form)
            moved = _that_count(after) != _that_count(before)
            secret = form["secret"] if _is_reachable(before) else self._secret
            form = {**form, "epoch": form["epoch"] + moved, "secret": secret, "members": after}
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
                f"The list of members has the form of version {form['version']}, and this hsparse reads {VERSION}: "
                "install the newer hsparse."
            )
        return form, stored.etag


def _that_count(members: Members) -> set[str]:
    """Return the members on whom it depends who owns what: owners and servers; beside a server all members."""
    shared = any(one.get("server") for one in members.values())
    return {id for id, one in members.items() if shared or not one.get("leaving")}


def _is_reachable(members: Members) -> bool:
    return any(not one.get("server") for one in members.values())


def _check_versions(members: Members, version: int, oldest: int) -> None:
    """Raise `Outdated` if a member understands no version of the messages from `oldest` to `version`."""
    for id, one in members.items():
        its_version, its_oldest = one.get("version", 1), one.get("oldest", 1)
        if one.get("server") or (its_oldest <= version and its_version >= oldest):
            continue
        raise Outdated(
            f"The data node {id} speaks versions {its_oldest} to {its_version} of the messages, this hsparse "
            f"{oldest} to {version}: upgrade the older one of both, if need be to a version between them first."
        )


def _membership(form: dict[str, Any]) -> Membership:
    members: Members = form["members"]
    reachable = {id: one for id, one in members.items() if not one.get("server")}
    return Membership(
        form["epoch"],
        tuple(id for id, one in reachable.items() if not one.get("leaving")),
        tuple(id for id, one in reachable.items() if one.get("leaving")),
        {id: one["url"] for id, one in reachable.items()},
        form["secret"],
        tuple(id for id in members if id not in reachable),
        {id: one.get("version", 1) for id, one in reachable.items()},
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
            and all(
                isinstance(one["url"], str)
                and isinstance(one.get("version", 1), int)
                and isinstance(one.get("oldest", 1), int)
                for one in form["members"].values()
            )
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        valid = False
    if not valid:
        raise Corrupt(
            f"The membership object {KEY} is damaged; `hsparse nodes --rebuild` replaces it, and the nodes join again."
        )
    return dict(form)
