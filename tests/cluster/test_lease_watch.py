"""A lease that is watched: it runs out, or its holder follows a recall."""

from __future__ import annotations

import asyncio

from hsparse.clock import SystemClock
from hsparse.cluster.lease_object import EVICTED, RECALLED, LeaseObjects, LeaseWatch
from tests.testing.memory_store import MemoryStore

SHORT = 0.04


async def test_a_holder_that_has_adopted_the_epoch_is_not_recalled() -> None:
    leases = LeaseObjects(MemoryStore())
    watch = LeaseWatch(leases, SystemClock())
    etag = await leases.take("a", SHORT, 7)
    assert await watch.follows("a", 7)
    lease = await leases.read("a")
    assert lease is not None
    assert lease.etag == etag


async def test_a_holder_that_renews_after_a_recall_has_adopted() -> None:
    leases = LeaseObjects(MemoryStore())
    await leases.take("a", 60.0, 6)
    following = asyncio.create_task(LeaseWatch(leases, SystemClock()).follows("a", 7))
    while (lease := await leases.read("a")) is None or lease.state != RECALLED:  # noqa: ASYNC110
        await asyncio.sleep(0)
    following.cancel()  # a lease of a minute is looked at every few seconds
    await leases.renew("a", lease.etag, 60.0, 2, 7)
    assert await LeaseWatch(leases, SystemClock()).follows("a", 7)


async def test_a_holder_that_does_not_follow_is_evicted() -> None:
    leases = LeaseObjects(MemoryStore())
    watch = LeaseWatch(leases, SystemClock())
    assert not await watch.follows("never there", 1)
    await leases.take("a", SHORT, 6)
    assert not await watch.follows("a", 7)
    lease = await leases.read("a")
    assert lease is not None
    assert lease.state == EVICTED
    assert not await watch.follows("a", 8), "it stays so"


async def test_a_lease_is_watched_anew_when_the_clock_of_the_watching_machine_is_set() -> None:
    """The time of day that was set back is not waited for."""

    class SetBack(SystemClock):
        readings = 0

        def now(self) -> float:
            self.readings += 1
            return super().now() - (3600 if self.readings > 2 else 0)

    leases = LeaseObjects(MemoryStore())
    await leases.take("a", SHORT)
    lease = await leases.read("a")
    assert lease is not None
    async with asyncio.timeout(20):
        assert await LeaseWatch(leases, SetBack()).run_out("a", lease, may_revoke=True)


async def test_a_lease_that_is_renewed_does_not_run_out() -> None:
    leases = LeaseObjects(MemoryStore())
    etag = await leases.take("a", SHORT)
    lease = await leases.read("a")
    assert lease is not None
    await leases.renew("a", etag, SHORT, 1)
    watch = LeaseWatch(leases, SystemClock())
    assert not await watch.run_out("a", lease, may_revoke=False)
    assert await watch.run_out("a", lease, may_revoke=True)
