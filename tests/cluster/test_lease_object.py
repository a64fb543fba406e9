"""Leases: who overwrites one ends it, and who came back is not evicted."""

from __future__ import annotations

import pytest

from hsparse.cluster.lease_object import (
    EVICTED,
    HELD,
    MAX_LEASE_SECONDS,
    REVOKED,
    Lease,
    LeaseObjects,
    lease_key,
)
from hsparse.errors import PreconditionFailed
from tests.testing.memory_store import MemoryStore


async def test_a_lease_is_renewed_by_its_last_etag() -> None:
    leases = LeaseObjects(MemoryStore())
    first = await leases.take("a", 2.0)
    second = await leases.renew("a", first, 2.0, 1)
    assert await leases.read("a") == Lease(HELD, second, 2.0)
    with pytest.raises(PreconditionFailed):
        await leases.renew("a", first, 2.0, 1)
    with pytest.raises(PreconditionFailed):
        await leases.take("a", 2.0)
    await leases.delete("a")
    assert await leases.read("a") is None


async def test_a_revoked_lease_cannot_be_renewed() -> None:
    leases = LeaseObjects(MemoryStore())
    etag = await leases.take("a", 2.0)
    lease = await leases.read("a")
    assert lease is not None
    revoked = await leases.revoke("a", lease)
    assert revoked is not None
    assert (revoked.state, revoked.seconds) == (REVOKED, 2.0)
    assert revoked.grace > 2.0
    with pytest.raises(PreconditionFailed):
        await leases.renew("a", etag, 2.0, 1)
    assert await leases.evict("a", revoked)
    assert await leases.evict("a", revoked), "another one has done it"
    found = await leases.read("a")
    assert found is not None
    assert found.state == EVICTED


async def test_a_holder_that_came_back_is_not_evicted() -> None:
    leases = LeaseObjects(MemoryStore())
    await leases.take("a", 2.0)
    lease = await leases.read("a")
    assert lease is not None
    revoked = await leases.revoke("a", lease)
    assert revoked is not None
    await leases.renew("a", revoked.etag, 2.0, 0)
    assert not await leases.evict("a", revoked)
    current = await leases.revoke("a", revoked)
    assert current is not None
    assert current.state == HELD, "what is there now is told"


SECONDS = [
    b'"x"',
    b"NaN",
    b"Infinity",
    b"-Infinity",
    b"-1",
    b"0",
    b"1e999",
    b"1" + b"0" * 400,
    b"[2]",
    b"null",
]
EPOCHS = [b"Infinity", b"NaN", b"-1", b'"x"', b"[]", b"1e999"]


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"{}", b"[1]", b"\xff", b"[" * 200_000),
        *(b'{"state": "held", "seconds": %b, "epoch": 1}' % seconds for seconds in SECONDS),
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
