"""Leases: overwritten, watched, recalled, and judged by two clocks of which one may be wrong."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from hsparse.clock import SystemClock
from hsparse.cluster.lease_object import (
    EVICTED,
    HELD,
    MAX_LEASE_SECONDS,
    RECALLED,
    REVOKED,
    ClockReading,
    Lease,
    LeaseObjects,
    LeaseWatch,
    lease_key,
)
from hsparse.errors import PreconditionFailed
from tests.testing.manual_clock import ManualClock
from tests.testing.memory_store import MemoryStore


@pytest.fixture
def leases() -> LeaseObjects:
    return LeaseObjects(MemoryStore())


async def lease_of_a(leases: LeaseObjects) -> Lease:
    lease = await leases.read("a")
    assert lease is not None
    return lease


async def test_a_lease_is_renewed_by_its_last_etag(leases: LeaseObjects) -> None:
    first = await leases.take("a", 2.0)
    second = await leases.renew("a", first, 2.0, 1)
    assert await leases.read("a") == Lease(HELD, second, 2.0)
    with pytest.raises(PreconditionFailed):
        await leases.renew("a", first, 2.0, 1)
    with pytest.raises(PreconditionFailed):
        await leases.take("a", 2.0)
    await leases.delete("a")
    assert await leases.read("a") is None


async def test_a_revoked_lease_cannot_be_renewed(leases: LeaseObjects) -> None:
    etag = await leases.take("a", 2.0)
    revoked = await leases.revoke("a", await lease_of_a(leases))
    assert revoked is not None
    assert (revoked.state, revoked.seconds) == (REVOKED, 2.0)
    assert revoked.grace > 2.0
    with pytest.raises(PreconditionFailed):
        await leases.renew("a", etag, 2.0, 1)
    assert await leases.evict("a", revoked)
    assert await leases.evict("a", revoked), "another one has done it"
    assert (await lease_of_a(leases)).state == EVICTED


async def test_a_holder_that_came_back_is_not_evicted(leases: LeaseObjects) -> None:
    await leases.take("a", 2.0)
    revoked = await leases.revoke("a", await lease_of_a(leases))
    assert revoked is not None
    await leases.renew("a", revoked.etag, 2.0, 0)
    assert not await leases.evict("a", revoked)
    current = await leases.revoke("a", revoked)
    assert current is not None
    assert current.state == HELD, "what is there now is told"


SECONDS = [b'"x"', b"NaN", b"Infinity", b"-Infinity", b"-1", b"0", b"1e999", b"1" + b"0" * 400, b"[2]"]
EPOCHS = [b"Infinity", b"NaN", b"-1", b'"x"', b"[]", b"1e999"]


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"{}", b"[1]", b"\xff", b"[" * 200_000),
        *(b'{"state": "held", "seconds": %b, "epoch": 1}' % seconds for seconds in [*SECONDS, b"null"]),
        *(b'{"state": "held", "seconds": 2.0, "epoch": %b}' % epoch for epoch in EPOCHS),
    ],
    ids=lambda data: data[:60].decode(errors="replace"),
)
async def test_a_damaged_lease_does_not_hold_and_is_waited_for(data: bytes) -> None:
    store = MemoryStore()
    await store.put(lease_key("a"), data)
    lease = await LeaseObjects(store).read("a")
    assert lease is not None
    assert (lease.state, lease.seconds) == (REVOKED, MAX_LEASE_SECONDS)


SHORT = 0.04


async def test_a_holder_that_has_adopted_the_epoch_is_not_recalled(leases: LeaseObjects) -> None:
    watch = LeaseWatch(leases, SystemClock())
    etag = await leases.take("a", SHORT, 7)
    assert await watch.follows("a", 7)
    assert (await lease_of_a(leases)).etag == etag


async def test_a_holder_that_renews_after_a_recall_has_adopted(leases: LeaseObjects) -> None:
    await leases.take("a", 60.0, 6)
    following = asyncio.create_task(LeaseWatch(leases, SystemClock()).follows("a", 7))
    while (lease := await leases.read("a")) is None or lease.state != RECALLED:  # noqa: ASYNC110
        await asyncio.sleep(0)
    following.cancel()  # a lease of a minute is looked at every few seconds
    await leases.renew("a", lease.etag, 60.0, 2, 7)
    assert await LeaseWatch(leases, SystemClock()).follows("a", 7)


async def test_a_holder_that_does_not_follow_is_evicted(leases: LeaseObjects) -> None:
    watch = LeaseWatch(leases, SystemClock())
    assert not await watch.follows("never there", 1)
    await leases.take("a", SHORT, 6)
    assert not await watch.follows("a", 7)
    assert (await lease_of_a(leases)).state == EVICTED
    assert not await watch.follows("a", 8), "it stays so"


async def test_a_lease_is_watched_anew_when_the_clock_of_the_watching_machine_is_set(
    leases: LeaseObjects,
) -> None:
    """The time of day that was set back is not waited for."""

    class SetBack(SystemClock):
        readings = 0

        def now(self) -> float:
            self.readings += 1
            return super().now() - (3600 if self.readings > 2 else 0)

    await leases.take("a", SHORT)
    lease = await lease_of_a(leases)
    async with asyncio.timeout(20):
        assert await LeaseWatch(leases, SetBack()).run_out("a", lease, may_revoke=True)


async def test_a_lease_that_is_renewed_does_not_run_out(leases: LeaseObjects) -> None:
    etag = await leases.take("a", SHORT)
    lease = await lease_of_a(leases)
    await leases.renew("a", etag, SHORT, 1)
    watch = LeaseWatch(leases, SystemClock())
    assert not await watch.run_out("a", lease, may_revoke=False)
    assert await watch.run_out("a", lease, may_revoke=True)


@dataclass(slots=True)
class TwoClocks(ManualClock):
    """A clock whose time of day is `day` ahead of its monotonic time."""

    time: float = 1000.0
    day: float = 0.0

    def now(self) -> float:
        return self.time + self.day


@pytest.mark.parametrize(
    ("monotonic", "day", "jumped"),
    [
        (5.0, 5.0, False),
        (0.0, 5.0, True),  # it stood while the machine was suspended
        (5.0, 0.0, True),
        (5.0, -90.0, True),
        (5.0, 5.4, False),  # both may drift
        (5.0, 5.6, True),
        (0.01, 0.1, False),  # read one after the other
    ],
)
def test_what_passed_by_both(monotonic: float, day: float, jumped: bool) -> None:
    clock = TwoClocks()
    before = ClockReading.of(clock)
    clock.time += monotonic
    clock.day += day - monotonic
    assert before.most(clock) == pytest.approx(max(monotonic, day))
    assert before.least(clock) == pytest.approx(min(monotonic, day))
    later = ClockReading.of(clock)
    assert before.apart(later) == pytest.approx(day - monotonic)
    assert before.jumped(later, 0.1) is jumped
