"""The membership: changed by conditional puts, damaged, rebuilt, and the owners by rendezvous hashing."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from hsparse.clock import SystemClock
from hsparse.cluster.lease_object import LeaseObjects
from hsparse.cluster.membership import Membership, rendezvous_owner
from hsparse.cluster.membership_object import KEY, OBJECT_VERSION, MembershipObject, rebuild_membership
from hsparse.errors import Corrupt, Misconfigured, PreconditionFailed
from hsparse.model.schema import FIRST_SCHEMA, Schema
from tests.testing.faulty_store import FaultyStore
from tests.testing.memory_store import MemoryStore


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def stored(store: MemoryStore) -> MembershipObject:
    return MembershipObject(store, "secret")


async def change_form(store: MemoryStore, change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """Change the JSON of the membership; return it."""
    form: dict[str, Any] = json.loads((await store.get(KEY)).data)
    change(form)
    await store.put(KEY, json.dumps(form).encode())
    return form


async def test_each_change_of_owners_raises_the_epoch(stored: MembershipObject) -> None:
    assert await stored.read() == Membership(0, (), (), {}, (await stored.read()).secret)
    steps = [
        (stored.join("a", "http://a"), 1, ("a",), ()),
        (stored.join("b", "http://b"), 2, ("a", "b"), ()),
        (stored.leave("a"), 3, ("b",), ("a",)),
        (stored.remove("a"), 3, ("b",), ()),
        (stored.remove("a"), 3, ("b",), ()),
        (stored.remove("b"), 4, (), ()),
    ]
    for change, epoch, nodes, leaving in steps:
        view = await change
        assert (view.epoch, view.nodes, view.leaving) == (epoch, nodes, leaving)
        assert await stored.read() == view
        assert set(view.urls) == {*nodes, *leaving}


async def test_changes_at_once_are_all_made(store: MemoryStore) -> None:
    each = [MembershipObject(store, "secret") for _ in range(8)]
    views = await asyncio.gather(*(one.join(f"dn-{n}", f"http://{n}") for n, one in enumerate(each)))
    assert sorted(view.epoch for view in views) == list(range(1, 9))
    assert len((await each[0].read()).nodes) == 8


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"epoch": "1", "version": 1, "secret": "", "members": {}}',
        b"\xff",
        b'{"epoch": 1, "version": 1, "secret": "", "members": {"a": {"url": "", "buckets": "x"}}}',
        b'{"epoch": 1, "version": 1, "secret": "", "members": {"a": {"url": "", "buckets": [[]]}}}',
        b'{"epoch": 1, "version": 1, "secret": "", "members": {}, "schema": {"version": "1"}}',
    ],
)
async def test_a_damaged_object_is_named_and_rebuilt(
    store: MemoryStore, stored: MembershipObject, data: bytes
) -> None:
    await store.put(KEY, data)
    for change in stored.read(), stored.join("a", "http://a"):
        with pytest.raises(Corrupt, match="hsparse nodes --rebuild"):
            await change
    seen = await stored.seen()
    view = await stored.replace(seen, 7)
    assert (view.epoch, view.nodes) == (7, ())
    assert (await stored.join("a", "http://a")).epoch == 8
    with pytest.raises(PreconditionFailed):
        await stored.replace(seen, 9)


async def test_servers_are_members_without_a_token_to_whom_nobody_sends(store: MemoryStore) -> None:
    nodes, server = MembershipObject(store, "secret"), MembershipObject(store, "")
    first = await server.join_as_server("s")
    assert (first.epoch, first.servers, first.nodes, first.shared) == (1, ("s",), (), False)
    assert nodes.other_token(first) is None
    both = await nodes.join("a", "http://a")
    assert (both.epoch, both.members, both.reachable, both.shared) == (2, ("a", "s"), ("a",), True)
    again = await server.join_as_server("t")
    assert again.secret == both.secret, "the nodes keep their token"
    assert nodes.other_token(again) is None
    assert isinstance(server.other_token(again), Misconfigured)
    assert (await server.remove("s")).epoch == 4
    leaving = await nodes.leave("a")
    assert (leaving.nodes, leaving.leaving, leaving.shared) == ((), ("a",), True)
    gone = await nodes.remove("a")
    assert (gone.epoch, gone.shared) == (leaving.epoch + 1, False), "the server has to hear of it"
    await nodes.join("a", "http://a")
    alone = await server.remove("t")
    assert (alone.members, alone.shared) == (("a",), False)


async def test_an_object_of_a_newer_hsparse_is_refused(store: MemoryStore) -> None:
    await MembershipObject(store, "secret").join("a", "http://a")
    await change_form(store, lambda form: form.update(version=OBJECT_VERSION + 1))
    with pytest.raises(Misconfigured, match="newer"):
        await MembershipObject(store, "secret").read()


async def test_data_nodes_of_one_version_are_members(store: MemoryStore) -> None:
    ours, theirs = (MembershipObject(store, "secret", version=version) for version in (3, 1))
    before = await ours.join("a", "http://a")
    assert (before.versions, ours.unusable(before)) == ({"a": 3}, None)
    refused = "a speaks messages of version 3, but this hsparse of version 1"
    assert refused in str(theirs.unusable(before))
    with pytest.raises(Misconfigured, match=refused):
        await theirs.join("b", "http://b")
    assert await ours.read() == before
    await ours.remove("a")
    await ours.join_as_server("s")
    assert (await theirs.join("b", "http://b")).nodes == ("b",), "servers are sent no message"


async def test_what_a_member_says_besides_is_kept(store: MemoryStore, stored: MembershipObject) -> None:
    await stored.join("a", "http://a")
    later = {"what": "this hsparse does not know"}
    form = await change_form(store, lambda form: form["members"]["a"].update(later=later))
    await stored.join("b", "http://b")
    assert json.loads((await store.get(KEY)).data)["members"]["a"] == form["members"]["a"]


async def test_a_version_that_is_no_number_is_damage(store: MemoryStore, stored: MembershipObject) -> None:
    await stored.join("a", "http://a")
    await change_form(store, lambda form: form["members"]["a"].update(version="new"))
    with pytest.raises(Corrupt):
        await stored.read()


async def test_nodes_with_another_token_are_told_apart(store: MemoryStore) -> None:
    ours, theirs = MembershipObject(store, "secret"), MembershipObject(store, "guess")
    assert theirs.other_token(await theirs.read()) is None, "nobody is there"
    view = await ours.join("a", "http://a")
    assert ours.other_token(view) is None
    assert isinstance(theirs.other_token(view), Misconfigured)
    assert b'secret"' in (data := (await store.get(KEY)).data)
    assert b'"guess"' not in data


async def test_of_two_tokens_that_join_at_once_one_is_refused(
    store: MemoryStore,
) -> None:
    ours, theirs = MembershipObject(store, "secret"), MembershipObject(store, "guess")
    joined = await asyncio.gather(
        ours.join("a", "http://a"), theirs.join("b", "http://b"), return_exceptions=True
    )
    assert [type(one) for one in joined].count(Misconfigured) == 1
    assert len((await ours.read()).nodes) == 1


async def test_data_nodes_that_join_serve_the_buckets_of_all_others(store: MemoryStore) -> None:
    none, one, two = (MembershipObject(store, "secret", names) for names in ((), ("x",), ("y", "x")))
    assert none.unserved_bucket(await one.read()) is None
    assert one.unserved_bucket(await one.read()) is None, "nobody says what is served"
    view = await none.join("a", "http://a")
    assert view.buckets == frozenset()
    assert "--bucket x" in str(one.unserved_bucket(view))
    view = await two.join("b", "http://b")
    assert view.buckets == frozenset(), "not by all"
    await one.join("c", "http://c")
    view = await none.leave("a")
    assert (view.buckets, one.unserved_bucket(view)) == ({"x"}, None)
    assert isinstance(two.unserved_bucket(view), Misconfigured)
    with pytest.raises(Misconfigured, match=r"--bucket x\. To drop a bucket, stop all data nodes"):
        await none.join("d", "http://d")
    view = await none.join_as_server("s")
    assert view.buckets == {"x"}, "nobody asks a server for objects"
    await one.leave("c")
    with pytest.raises(Misconfigured, match="--bucket x --bucket y"):
        await none.join("d", "http://d")
    await two.remove("b")
    assert (await none.join("d", "http://d")).buckets == frozenset()


async def test_members_of_before_say_nothing_of_buckets_and_schema(store: MemoryStore) -> None:
    stored = MembershipObject(store, "secret", ("x",))
    await stored.join("a", "http://a")
    await change_form(store, lambda form: (form["members"]["a"].pop("buckets"), form.pop("schema")))
    view = await stored.read()
    assert (view.buckets, view.schema) == (None, FIRST_SCHEMA)
    assert stored.unusable(view) is None
    assert (await stored.join("b", "http://b")).buckets == {"x"}


@pytest.mark.parametrize(
    ("schema", "usable"),
    [
        (Schema(2), False),
        (Schema(read_features=("spirals",)), False),
        (Schema(write_features=("spirals",)), True),
    ],
)
async def test_needed_features_are_kept_and_who_lacks_one_refused(
    store: MemoryStore, stored: MembershipObject, schema: Schema, usable: bool
) -> None:
    await stored.join("a", "http://a", schema=Schema(read_features=("stripes",)))
    both = Schema(read_features=("stripes",)).and_also(schema)
    await change_form(store, lambda form: form.update(schema=both.to_json()))  # as a newer hsparse joins
    view = await stored.leave("a")
    assert view.schema == both
    assert (stored.unusable(view) is None) is usable
    for joining in stored.join("b", "http://b"), stored.join_as_server("b"):
        with pytest.raises(Misconfigured, match="newer hsparse"):
            await joining


MEMBER_NAMES = [f"db/1/d/2/{i}" for i in range(200)]


def test_owners_are_those_of_the_nodes_that_stay() -> None:
    members = Membership(3, ("a", "b"), ("c",))
    assert members.members == ("a", "b", "c")
    assert {members.owner(name) for name in MEMBER_NAMES} == {"a", "b"}
    assert all(members.owner(name) == rendezvous_owner(("a", "b"), name) for name in MEMBER_NAMES)


def test_stand_ins_are_all_others_in_an_order_that_depends_on_the_node() -> None:
    members = Membership(3, tuple("abcdefgh"))
    orders = {node: members.stand_ins(node) for node in members.nodes}
    assert all({node, *order} == set(members.nodes) for node, order in orders.items())
    assert len({order[0] for order in orders.values()}) > 1, "not all load goes to the same one"


SHORT = 0.02


async def rebuild(store: MemoryStore | FaultyStore, told: list[str] | None = None) -> Membership:
    return await rebuild_membership(
        store, "secret", SystemClock(), [].append if told is None else told.append
    )


async def test_where_nobody_ever_joined_nothing_is_put(store: MemoryStore) -> None:
    assert (await rebuild(store)).epoch == 0
    assert (await MembershipObject(store, "secret").seen()).etag is None


async def test_leases_are_revoked_and_the_epoch_goes_on() -> None:
    store, told = MemoryStore(), list[str]()
    before = await MembershipObject(store, "secret").join("a", "http://a")
    leases = LeaseObjects(store)
    await leases.take("a", SHORT, before.epoch)
    view = await rebuild(store, told)
    assert view.members == ()
    assert view.epoch > before.epoch
    assert await leases.nodes() == []
    assert "revoking 1 leases" in told[0]
    assert (await MembershipObject(store, "guess").join("b", "http://b")).nodes == ("b",)


@pytest.mark.parametrize("damage", [b"{", None])
async def test_epochs_grow_also_where_none_can_be_read(store: MemoryStore, damage: bytes | None) -> None:
    stored, leases = MembershipObject(store, "secret"), LeaseObjects(store)
    epoch = (await stored.join("a", "http://a")).epoch
    for _ in range(3):
        await leases.take("a", SHORT, epoch)
        epoch = (await stored.join("b", "http://b")).epoch  # one more than the lease tells
        if damage is None:
            await store.delete(KEY)
        else:
            await store.put(KEY, damage)
        view = await rebuild(store)
        assert view.epoch > epoch
        epoch = view.epoch


async def test_a_node_that_joins_meanwhile_has_its_lease_revoked_too() -> None:
    store = FaultyStore(MemoryStore())
    stored, leases = MembershipObject(store, "secret"), LeaseObjects(store)
    await stored.join("a", "http://a")
    await leases.take("a", SHORT, 1)
    replacing = store.hang("put_if_match", KEY)
    rebuilding = await replacing.holding(rebuild(store))
    other = MembershipObject(store, "secret")
    await leases.take("b", SHORT, 1)
    await other.join("b", "http://b")
    replacing.release()
    assert ((await rebuilding).members, await leases.nodes()) == ((), [])


NAMES = [f"db/1/d/2/{i}_{i * 7}" for i in range(3000)]


def test_ownership_is_even() -> None:
    nodes = ("dn-001", "dn-002", "dn-003")
    counts = Counter(Membership(1, nodes).owner(name) for name in NAMES)
    assert set(counts) == set(nodes)
    assert min(counts.values()) > 850


def test_a_new_node_only_takes_over() -> None:
    before = Membership(1, ("dn-001", "dn-002"))
    after = Membership(2, ("dn-001", "dn-002", "dn-003"))
    moved = [name for name in NAMES if before.owner(name) != after.owner(name)]
    assert all(after.owner(name) == "dn-003" for name in moved)
    assert 800 < len(moved) < 1200


def test_the_order_of_nodes_does_not_matter() -> None:
    one, two = Membership(1, ("a", "b", "c")), Membership(1, ("c", "a", "b"))
    assert [one.owner(name) for name in NAMES] == [two.owner(name) for name in NAMES]
