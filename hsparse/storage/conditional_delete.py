"""Conditional deletes: the start-up probe that a bucket honours them, and `LookBeforeDelete` for one that does not.

AWS has them since the end of 2025; other servers ignore the condition and remove whatever is there. Updates do not
depend on them as on conditional puts, so such a store is served: an object is looked at before it is removed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from hsparse.clock import Clock, SystemClock
from hsparse.errors import NotFound, PreconditionFailed, Unsupported
from hsparse.storage.delegating_store import DelegatingStore
from hsparse.storage.delete_each import delete_each
from hsparse.storage.object_store import PROBE_PREFIX, Entry, ObjectStore, OutcomeUnknown, current_etag

PROBES = 10
PAUSE = 0.5
"""Seconds between two probes."""
STALE_ETAG = "0123456789abcdef0123456789abcdef"


async def with_conditional_delete(
    store: ObjectStore,
    *,
    clock: Clock | None = None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> ObjectStore:
    """Return `store` if it honours the condition of a delete, else `LookBeforeDelete` over it.

    A probe uses a fresh key `db/.probe-<hex>` and removes it afterwards, also on failure. It is repeated where a reply
    was lost; `OutcomeUnknown` where that happens to `PROBES` of them.
    """
    probes = 0
    while True:
        try:
            return store if await _honours(store, clock or SystemClock()) else LookBeforeDelete(store)
        except OutcomeUnknown as error:
            probes += 1
            if probes == PROBES:
                raise OutcomeUnknown(
                    f"Whether the store {store.name!r} honours the condition of a delete cannot be told: a reply was "
                    f"lost in each of {PROBES} probes; check the network to the bucket, then start again."
                ) from error
        await sleep(PAUSE)


async def _honours(store: ObjectStore, clock: Clock) -> bool:
    key = f"{PROBE_PREFIX}{clock.token(8).hex()}"
    etag = await store.put(key, b"delete")
    honours = False
    try:
        honours = await _refuses_stale(store, key) and await _accepts_current(store, key, etag)
    finally:
        if not honours:
            await store.delete(key)
    return honours


async def _refuses_stale(store: ObjectStore, key: str) -> bool:
    try:
        await store.delete_if_match(key, STALE_ETAG)
    except PreconditionFailed:
        return True
    except Unsupported:
        return False
    return False


async def _accepts_current(store: ObjectStore, key: str, etag: str) -> bool:
    try:
        await store.delete_if_match(key, etag)
        await store.get(key)
    except NotFound:
        return True
    except PreconditionFailed:
        return False
    return False


async def look_and_delete(store: ObjectStore, key: str, etag: str) -> None:
    """Delete an object if its etag is `etag` when it is looked at; `PreconditionFailed` if it has another one."""
    found = await current_etag(store, key)
    if found is None:
        return
    if found != etag:
        raise PreconditionFailed(f"{key!r} is no longer at etag {etag}; read it again.")
    await store.delete(key)


class LookBeforeDelete(DelegatingStore):
    """An `ObjectStore` over one that ignores the condition of a delete: it looks at the etag, then deletes.

    Who changes the object between the look and the delete loses that change.
    """

    async def delete_if_match(self, key: str, etag: str) -> None:
        await look_and_delete(self._store, key, etag)

    async def delete_all(self, entries: Sequence[Entry]) -> list[bool]:
        return await delete_each(self, entries)
