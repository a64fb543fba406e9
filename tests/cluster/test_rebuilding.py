"""A membership is rebuilt once no lease holds, with an epoch that no node has adopted."""

from __future__ import annotations

import asyncio

import pytest

from hsparse.clock import SystemClock
from hsparse.cluster.lease_object import LeaseObjects
from hsparse.cluster.membership import Membership
from hsparse.cluster.membership_object import KEY, MembershipObject, rebuild_membership
from tests.testing.faulty_store import FaultyStore
from tests.testing.memory_store import MemoryStore

SHORT = 0.02


async def rebuild(store: MemoryStore | FaultyStore, told: list[str] | None = None) -> Membership:
    return await rebuild_membership(
        store, "secret", SystemClock(), [].append if told is None else told.append
    )


async def test_where_nobody_ever_joined_nothing_is_put() -> None:
    store = MemoryStore()
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
async def test_epochs_grow_also_where_none_can_be_read(damage: bytes | None) -> None:
    store = MemoryStore()
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
    rebuilding = asyncio.create_task(rebuild(store))
    await replacing.entered.wait()
    other = MembershipObject(store, "secret")
    await leases.take("b", SHORT, 1)
    await other.join("b", "http://b")
    replacing.release()
    view = await rebuilding
    assert (view.members, await leases.nodes()) == ((), [])
