"""Conditional puts: the start-up probe that a store honours them, and `SingleWriter` for a store that does not.

Every update depends on conditional puts. A store that ignores conditions is refused, unless the operator
declares that this process is its only writer. One that lists its keys out of order is refused, too.

Conditional deletes: the start-up probe that a bucket honours them, and `LookBeforeDelete` for one that does not.

AWS has them since the end of 2025; other servers ignore the condition and remove whatever is there. Updates do not
depend on them as on conditional puts, so such a store is served: an object is looked at before it is removed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from hsparse.clock import Clock, SystemClock
from hsparse.errors import Misconfigured, NotFound, PreconditionFailed, Unsupported
from hsparse.storage.delegating_store import DelegatingStore, delete_each
from hsparse.storage.object_store import (
    PROBE_PREFIX,
    Buffer,
    Entry,
    ObjectStore,
    OutcomeUnknown,
    current_etag,
)

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


REMEDY = (
    "updates would be lost: use another store, or declare with --single-writer that only this process writes "
    "to it"
)


class CurrentEtagRefused(Misconfigured):
    """The store refuses `If-Match` with the etag that the object has."""


async def probe(store: ObjectStore, *, clock: Clock | None = None) -> None:
    """Try each condition and the order of a listing; `Misconfigured` says what the store does wrong, and what to do.

    The probe uses two fresh keys that begin with `db/.probe-<hex>` and removes them afterwards, also on failure.
    """
    stem = f"{PROBE_PREFIX}{(clock or SystemClock()).token(8).hex()}"
    key, below = f"{stem}-", f"{stem}/a"
    try:
        await _probe(store, key)
        await store.put(below, b"below")
        await _check_order(store, stem, [key, below])
    except Unsupported as error:
        raise Misconfigured(f"The store {store.name!r} has no conditional put; {REMEDY}.") from error
    finally:
        await asyncio.gather(store.delete(key), store.delete(below))


async def _probe(store: ObjectStore, key: str) -> None:
    await _refused(store, key, "If-Match on an absent object", etag="0123456789abcdef0123456789abcdef")
    first = await _accepted(store, key, b"first", "If-None-Match: * on an absent object")
    await _refused(store, key, "If-None-Match: * on an existing object")
    second = await _accepted(store, key, b"second", "If-Match with the current etag", etag=first)
    await _refused(store, key, "If-Match with a stale etag", etag=first)
    stored = await store.get(key)
    if stored.data != b"second" or stored.etag != second:
        raise Misconfigured(
            f"The store {store.name!r} does not return the bytes and the etag of the last put; {REMEDY}."
        )


async def _check_order(store: ObjectStore, prefix: str, keys: list[str]) -> None:
    """Look whether two keys are listed in order: some stores list folder by folder, or in no order at all."""
    found = [entry.key async for page in store.list(prefix) for entry in page.entries]
    if found != keys:
        raise Misconfigured(
            f"The store {store.name!r} lists its keys out of order, and pages of listings would miss some: use "
            "another store."
        )


async def _accepted(store: ObjectStore, key: str, data: bytes, case: str, etag: str | None = None) -> str:
    try:
        if etag is None:
            return await store.put_if_absent(key, data)
        return await store.put_if_match(key, data, etag)
    except PreconditionFailed as error:
        kind = Misconfigured if etag is None else CurrentEtagRefused
        raise kind(f"The store {store.name!r} refuses {case}; {REMEDY}.") from error


async def _refused(store: ObjectStore, key: str, case: str, etag: str | None = None) -> None:
    try:
        if etag is None:
            await store.put_if_absent(key, b"refused")
        else:
            await store.put_if_match(key, b"refused", etag)
    except PreconditionFailed:
        return
    raise Misconfigured(f"The store {store.name!r} ignores {case}; {REMEDY}.")


R = TypeVar("R")


class SingleWriter(DelegatingStore):
    """An `ObjectStore` over one that ignores conditions: it checks them itself, under one lock a key.

    The operator declares that nothing else writes to the store; a second writer would lose updates.
    """

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self._locks: dict[str, asyncio.Lock] = {}
        self._waiting: dict[str, int] = {}
        self._writes: set[asyncio.Task[Any]] = set()

    async def put(self, key: str, data: Buffer) -> str:
        return await self._alone(key, lambda: self._store.put(key, data))

    async def put_if_absent(self, key: str, data: Buffer) -> str:
        async def write() -> str:
            if await current_etag(self._store, key) is not None:
                raise PreconditionFailed(f"{key!r} exists already; read it and replace that state.")
            return await self._store.put(key, data)

        return await self._alone(key, write)

    async def put_if_match(self, key: str, data: Buffer, etag: str) -> str:
        async def write() -> str:
            if await current_etag(self._store, key) != etag:
                raise PreconditionFailed(f"{key!r} is no longer at etag {etag}; read it again.")
            return await self._store.put(key, data)

        return await self._alone(key, write)

    async def delete(self, key: str) -> None:
        await self._alone(key, lambda: self._store.delete(key))

    async def delete_if_match(self, key: str, etag: str) -> None:
        await self._alone(key, lambda: look_and_delete(self._store, key, etag))

    async def delete_all(self, entries: Sequence[Entry]) -> list[bool]:
        return await delete_each(self, entries)

    async def close(self) -> None:
        """Wait for the writes under way, then close the store."""
        await asyncio.gather(*self._writes, return_exceptions=True)
        await super().close()

    async def _alone(self, key: str, write: Callable[[], Awaitable[R]]) -> R:
        """Await `write` while no other write of `key` runs.

        A cancelled caller does not release the lock: what it sent may still reach the store and must not
        overtake the next write.
        """
        task = asyncio.create_task(self._locked(key, write))
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)
        try:
            return await asyncio.shield(task)
        finally:
            del task  # an error has this frame, and would have itself

    def _locked(self, key: str, write: Callable[[], Awaitable[R]]) -> Coroutine[Any, Any, R]:
        lock = self._locks.setdefault(key, asyncio.Lock())
        self._waiting[key] = self._waiting.get(key, 0) + 1

        async def run() -> R:
            try:
                async with lock:
                    return await write()
            finally:
                self._waiting[key] -= 1
                if not self._waiting[key]:
                    del self._waiting[key], self._locks[key]

        return run()
