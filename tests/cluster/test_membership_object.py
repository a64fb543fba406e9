"""The membership in the store: joined, left and removed by conditional puts, and what a damaged one does."""

from __future__ import annotations

import asyncio
import json

import pytest

from hsparse.cluster.membership import Membership
from hsparse.cluster.membership_object import KEY, OBJECT_VERSION, MembershipObject
from hsparse.errors import Corrupt, Misconfigured, PreconditionFailed
from hsparse.model.schema import FIRST_SCHEMA, Schema
from tests.testing.memory_store import MemoryStore


async def test_each_change_of_owners_raises_the_epoch() -> None:
    stored = MembershipObject(MemoryStore(), "secret")
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


async def test_changes_at_once_are_all_made() -> None:
    store = MemoryStore()
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
async def test_a_damaged_object_is_named_and_rebuilt(data: bytes) -> None:
    store = MemoryStore()
    stored = MembershipObject(store, "secret")
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


async def test_servers_are_members_without_a_token_to_whom_nobody_sends() -> None:
    store = MemoryStore()
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


async def test_an_object_of_a_newer_hsparse_is_refused() -> None:
    store = MemoryStore()
    await MembershipObject(store, "secret").join("a", "http://a")
    form = json.loads((await store.get(KEY)).data)
    await store.put(KEY, json.dumps({**form, "version": OBJECT_VERSION + 1}).encode())
    with pytest.raises(Misconfigured, match="newer"):
        await MembershipObject(store, "secret").read()


async def test_data_nodes_of_one_version_are_members() -> None:
    store = MemoryStore()
    ours, theirs = (MembershipObject(store, "secret", version=version) for version in (3, 1))
    before = await ours.join("a", "http://a")
    assert (before.versions, ours.unusable(before)) == ({"a": 3}, None)
    refused = "a speaks version 3 of the messages, this hsparse 1"
    assert refused in str(theirs.unusable(before))
    with pytest.raises(Misconfigured, match=refused):
        await theirs.join("b", "http://b")
    assert await ours.read() == before
    await ours.remove("a")
    await ours.join_as_server("s")
    view = await theirs.join("b", "http://b")
    assert view.nodes == ("b",), "servers are sent no message"


async def test_what_a_member_says_besides_is_kept() -> None:
    store = MemoryStore()
    stored = MembershipObject(store, "secret")
    await stored.join("a", "http://a")
    form = json.loads((await store.get(KEY)).data)
    form["members"]["a"]["later"] = {"what": "this hsparse does not know"}
    await store.put(KEY, json.dumps(form).encode())
    await stored.join("b", "http://b")
    assert json.loads((await store.get(KEY)).data)["members"]["a"] == form["members"]["a"]


async def test_a_version_that_is_no_number_is_damage() -> None:
    store = MemoryStore()
    stored = MembershipObject(store, "secret")
    await stored.join("a", "http://a")
    form = json.loads((await store.get(KEY)).data)
    form["members"]["a"]["version"] = "new"
    await store.put(KEY, json.dumps(form).encode())
    with pytest.raises(Corrupt):
        await stored.read()


async def test_nodes_with_another_token_are_told_apart() -> None:
    store = MemoryStore()
    ours, theirs = MembershipObject(store, "secret"), MembershipObject(store, "guess")
    assert theirs.other_token(await theirs.read()) is None, "nobody is there"
    view = await ours.join("a", "http://a")
    assert ours.other_token(view) is None
    assert isinstance(theirs.other_token(view), Misconfigured)
    assert b'secret"' in (data := (await store.get(KEY)).data)
    assert b'"guess"' not in data


async def test_two_nodes_of_different_tokens_that_join_an_empty_store_at_once_do_not_both() -> None:
    store = MemoryStore()
    ours, theirs = MembershipObject(store, "secret"), MembershipObject(store, "guess")
    joined = await asyncio.gather(
        ours.join("a", "http://a"), theirs.join("b", "http://b"), return_exceptions=True
    )
    assert [type(one) for one in joined].count(Misconfigured) == 1
    assert len((await ours.read()).nodes) == 1


async def test_data_nodes_that_join_serve_the_buckets_of_all_others() -> None:
    store = MemoryStore()
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


async def test_members_of_before_say_nothing_of_buckets_and_schema() -> None:
    store = MemoryStore()
    stored = MembershipObject(store, "secret", ("x",))
    await stored.join("a", "http://a")
    form = json.loads((await store.get(KEY)).data)
    del form["members"]["a"]["buckets"], form["schema"]
    await store.put(KEY, json.dumps(form).encode())
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
async def test_what_is_needed_of_members_is_kept_and_who_does_not_know_it_refused(
    schema: Schema, usable: bool
) -> None:
    store = MemoryStore()
    stored = MembershipObject(store, "secret")
    await stored.join("a", "http://a", schema=Schema(read_features=("stripes",)))
    form = json.loads((await store.get(KEY)).data)
    form["schema"] = Schema(read_features=("stripes",)).and_also(schema).to_json()  # as a newer hsparse joins
    await store.put(KEY, json.dumps(form).encode())
    view = await stored.leave("a")
    assert view.schema == Schema(read_features=("stripes",)).and_also(schema)
    assert (stored.unusable(view) is None) is usable
    for joining in stored.join("b", "http://b"), stored.join_as_server("b"):
        with pytest.raises(Misconfigured, match="newer hsparse"):
            await joining
