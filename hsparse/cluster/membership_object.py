"""The membership in the store: one object, which data nodes change by conditional put when they join or leave.

The object `db/.cluster/members.json` is JSON: `version`, `epoch`, `secret` (a digest of the nodes' token), `schema`
(what members must know to use the stored data; optional), and `members` by id. A member has its `url`, the `version` of
the messages that it speaks (by default 1), the `buckets` that it serves besides the first (optional), and may be
`leaving` or a `server`, which has no URL. No node coordinates the others: any data node may remove a member that is
gone (`hsparse.cluster.lease_object` says when).

A node keeps fields of the object that it does not know, so nodes of different versions can change the object.

A damaged or lost object is replaced by an empty one once no lease holds; running nodes then join again on their own.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from hsparse.attempts import MAX_CHANGE_ATTEMPTS, MAX_READ_ATTEMPTS
from hsparse.clock import Clock, jitter
from hsparse.cluster.lease_object import Lease, LeaseObjects, LeaseWatch
from hsparse.cluster.membership import NO_MEMBERS, Membership
from hsparse.errors import Busy, Corrupt, Misconfigured, NotFound, PreconditionFailed, Unsupported
from hsparse.model.schema import FIRST_SCHEMA, Schema, parse_schema
from hsparse.storage.object_store import ObjectStore

KEY = "db/.cluster/members.json"
OBJECT_VERSION = 1
"""The version of the object's format; it is raised only for a format that older nodes must not read."""

Members = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Seen:
    """The etag of the membership object (None if there is none), and its epoch (None if it cannot be read)."""

    etag: str | None
    epoch: int | None


class MembershipObject:
    """The stored membership of the data nodes that share a store and the secret `token`.

    `buckets` are the buckets that this node serves besides the store's; `version` is the version of its messages.
    """

    def __init__(self, store: ObjectStore, token: str, buckets: Iterable[str] = (), version: int = 1) -> None:
        self._store = store
        self._version = version
        self._buckets = frozenset(buckets)
        self._secret = blake2b(token.encode(), digest_size=8, person=b"hsparse-member").hexdigest()

    async def read(self) -> Membership:
        """Return the membership, which has no members if no node has ever joined.

        `Corrupt` is raised for a damaged object, and `Misconfigured` for an object of a newer version.
        """
        return _membership((await self._load())[0])

    def other_token(self, view: Membership) -> Misconfigured | None:
        """Return an error if the nodes of a membership have another token than this node, or None if they do not."""
        if not view.reachable or view.secret == self._secret:
            return None
        return Misconfigured(
            "The data nodes of this store have another token than this one: give all nodes the same HSPARSE_NODE_TOKEN."
        )

    def unusable(self, view: Membership) -> Misconfigured | None:
        """Return an error if a service node must not use the data nodes of a membership, or None if it may use them."""
        return self.unreachable(view) or self.unserved_bucket(view) or self.newer_schema(view, writes=False)

    def unreachable(self, view: Membership) -> Misconfigured | None:
        """Return an error if the data nodes of a membership would refuse this node's messages, or None if not."""
        return self.other_token(view) or self.other_version(view)

    def other_version(self, view: Membership) -> Misconfigured | None:
        """Return an error if a data node of a membership speaks another version of the messages, or None if not."""
        for id, version in view.versions.items():
            if version != self._version:
                return Misconfigured(
                    f"The data node {id} speaks messages of version {version}, but this hsparse of version "
                    f"{self._version}: stop the nodes of either version."
                )
        return None

    def newer_schema(self, view: Membership, *, writes: bool = True) -> Misconfigured | None:
        """Return an error if this hsparse cannot read the store or, if `writes`, write to it; return None if it can."""
        name = "The store of this cluster"
        try:
            view.schema.check_readable(name)
            if writes:
                view.schema.check_writable(name)
        except Unsupported as error:
            return Misconfigured(error.message)
        return None

    def lacking_bucket(self, view: Membership) -> Misconfigured | None:
        """Return an error if a membership's data nodes serve a bucket that this node does not serve, or None if not."""
        lacking = sorted((view.buckets or frozenset()) - self._buckets)
        if not lacking:
            return None
        return Misconfigured(
            f"The data nodes of this store also serve the buckets {', '.join(lacking)}: start this one with "
            f"{_flags(lacking)}. To drop a bucket, stop all data nodes, then start them without it."
        )

    def unserved_bucket(self, view: Membership) -> Misconfigured | None:
        """Return an error if a membership's data nodes lack a bucket of this service node, or None if not."""
        unserved = [] if view.buckets is None else sorted(self._buckets - view.buckets)
        if not unserved:
            return None
        return Misconfigured(
            f"Not all data nodes of this store serve the buckets {', '.join(unserved)}: start each of them with "
            f"{_flags(unserved)}, or this service node without."
        )

    async def join(self, id: str, url: str, schema: Schema = FIRST_SCHEMA) -> Membership:
        """Add a data node to a store of this schema and return the new membership.

        `Misconfigured` is raised if the members have another token, other buckets or another version of the messages,
        or if this hsparse does not know the schema; otherwise raises as `read`.
        """

        def check(view: Membership) -> Misconfigured | None:
            return self.unreachable(view) or self.newer_schema(view) or self.lacking_bucket(view)

        entry = {"url": url, "version": self._version, "buckets": sorted(self._buckets)}
        return await self._change(lambda members: {**members, id: entry}, schema, check)

    async def join_as_server(self, id: str, schema: Schema = FIRST_SCHEMA) -> Membership:
        """Add a whole server. Its buckets and token may be any, as no node sends messages to it; raises as `join`."""
        entry = {"url": "", "server": True}
        return await self._change(lambda members: {**members, id: entry}, schema, self.newer_schema)

    async def leave(self, id: str) -> Membership:
        """Mark a data node as leaving: it owns nothing from then on."""
        return await self._change(
            lambda members: {
                name: {**one, "leaving": True} if name == id else one for name, one in members.items()
            }
        )

    async def remove(self, id: str) -> Membership:
        """Remove a data node that no longer may answer from its cache or acknowledge a change."""
        return await self._change(lambda members: {name: one for name, one in members.items() if name != id})

    async def seen(self) -> Seen:
        """Return the object's etag and epoch, even if the object is damaged."""
        try:
            stored = await self._store.get(KEY)
        except NotFound:
            return Seen(None, None)
        try:
            return Seen(stored.etag, int(json.loads(stored.data)["epoch"]))
        except (ValueError, KeyError, TypeError):
            return Seen(stored.etag, None)

    async def replace(self, seen: Seen, epoch: int) -> Membership:
        """Replace the object by one without members; raise `PreconditionFailed` if it is not as `seen` any more."""
        form = {"version": OBJECT_VERSION, "epoch": epoch, "secret": self._secret, "members": {}}
        if seen.etag is None:
            await self._store.put_if_absent(KEY, _encode(form))
        else:
            await self._store.put_if_match(KEY, _encode(form), seen.etag)
        return _membership(form)

    async def _change(
        self,
        change: Callable[[Members], Members],
        schema: Schema = FIRST_SCHEMA,
        check: Callable[[Membership], Misconfigured | None] = lambda view: None,
    ) -> Membership:
        """Change the members and merge `schema` into the object; raise the error that `check` returns, if any."""
        for _ in range(MAX_CHANGE_ATTEMPTS):
            form, etag = await self._load()
            form["schema"] = _schema(form).and_also(schema).to_json()
            if (error := check(_membership(form))) is not None:
                raise error
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
        raise Busy("Other data nodes kept changing the membership: try again.")

    async def _load(self) -> tuple[dict[str, Any], str | None]:
        """Return the object's content and etag; if there is no object, return content without members, and None."""
        try:
            stored = await self._store.get(KEY)
        except NotFound:
            return {"version": OBJECT_VERSION, "epoch": 0, "secret": self._secret, "members": {}}, None
        form = _decode(stored.data)
        if form["version"] > OBJECT_VERSION:
            raise Misconfigured(
                f"The list of members has version {form['version']}, but this hsparse reads {OBJECT_VERSION}: "
                "install a newer hsparse."
            )
        return form, stored.etag


def _that_count(members: Members) -> set[str]:
    """Return the members that take part in ownership: the nodes that stay or, if there is a server, all members."""
    shared = any(one.get("server") for one in members.values())
    return {id for id, one in members.items() if shared or not one.get("leaving")}


def _is_reachable(members: Members) -> bool:
    return any(not one.get("server") for one in members.values())


def _schema(form: dict[str, Any]) -> Schema:
    """Return the schema of the object; raise `Corrupt` if it is damaged."""
    return parse_schema(form["schema"], KEY) if "schema" in form else FIRST_SCHEMA


def _common(members: Members) -> frozenset[str] | None:
    """Return the buckets common to the staying data nodes that list their buckets, or None if none lists them."""
    lists = [one["buckets"] for one in members.values() if "buckets" in one and not one.get("leaving")]
    return frozenset(lists[0]).intersection(*lists) if lists else None


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _flags(buckets: Iterable[str]) -> str:
    return " ".join(f"--bucket {bucket}" for bucket in buckets)


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
        _common(members),
        _schema(form),
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
                and _are_names(one.get("buckets", []))
                for one in form["members"].values()
            )
        )
        _schema(form)
    except (ValueError, KeyError, TypeError, AttributeError, Corrupt):
        valid = False
    if not valid:
        raise Corrupt(
            f"The membership object {KEY} is damaged; `hsparse nodes --rebuild` replaces it, and the nodes join again."
        )
    return dict(form)


GENERATION = 32
"""The number of low bits of an epoch; a rebuild that cannot read the epoch raises the bits above them."""


async def rebuild_membership(
    store: ObjectStore, token: str, clock: Clock, tell: Callable[[str], object] = lambda text: None
) -> Membership:
    """Revoke all leases, wait until they must have run out, and put a membership without members.

    The new epoch is larger than any that a node can have adopted. `Busy` is raised if nodes keep changing the
    membership. `tell` is called with a sentence before the wait.
    """
    stored, leases = MembershipObject(store, token), LeaseObjects(store)
    watch = LeaseWatch(leases, clock)
    for attempt in range(MAX_READ_ATTEMPTS):
        seen = await stored.seen()
        held = {node: lease for node in await leases.nodes() if (lease := await leases.read(node))}
        if seen.etag is None and not held:
            return NO_MEMBERS
        longest = max((lease.grace for lease in held.values()), default=0.0)
        if held:
            tell(f"revoking {len(held)} leases, which takes up to {longest:.3g} s")
        await asyncio.gather(*(watch.run_out(node, one, may_revoke=True) for node, one in held.items()))
        try:
            view = await stored.replace(seen, _epoch_after(seen, list(held.values())))
        except PreconditionFailed:
            # A node has joined or left, so its lease holds, or another rebuild has evicted it. The random pause
            # keeps two rebuilds from repeating in step.
            await asyncio.sleep(attempt * longest * jitter(clock))
            continue
        for node in held:
            await leases.delete(node)
        return view
    raise Busy("Data nodes kept changing the membership: try again.")


def _epoch_after(seen: Seen, leases: list[Lease]) -> int:
    """Return an epoch larger than the epochs of the object and of the leases.

    A lease may have an older epoch than its holder has adopted since. If the object's epoch is unknown, the new epoch
    is therefore so much larger that no node can have reached it.
    """
    newest = max((lease.epoch for lease in leases), default=0)
    if seen.epoch is None:
        return ((newest >> GENERATION) + 1) << GENERATION
    return max(newest, seen.epoch) + 1
