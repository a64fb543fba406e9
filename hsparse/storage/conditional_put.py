"""Wrappers for stores that ignore the conditions of puts and deletes, and the start-up probe of conditional deletes.

Every update depends on conditional puts. A store that ignores their conditions is used only if the operator declares
that this process is its only writer (`SingleWriter`).

AWS supports conditional deletes since the end of 2025; other servers ignore the condition and remove any object.
Updates do not depend on conditional deletes, so a store without them is accepted: `LookBeforeDelete` compares the etag
before it deletes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from hsparse.clock import Clock, SystemClock
from hsparse.concurrency.single_flight import shielded
from hsparse.errors import NotFound, PreconditionFailed, Unsupported
from hsparse.storage.delegating_store import DelegatingStore, delete_each
from hsparse.storage.object_store import (
    PROBE_PREFIX,
    Buffer,
    Entry,
    ObjectStore,
    OutcomeUnknown,
    current_etag,
)

MAX_PROBES = 10
PROBE_SECONDS = 0.5
"""Seconds between two probes."""
STALE_ETAG = "0123456789abcdef0123456789abcdef"


async def with_conditional_delete(
    store: ObjectStore,
    *,
    clock: Clock | None = None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> ObjectStore:
    """Return `store` if a probe shows that it obeys the condition of a delete, or else wrap it in `LookBeforeDelete`.

    A probe uses a fresh key `db/.probe-<hex>` and removes it afterwards, also on failure. A probe is
    repeated if a reply is lost. `OutcomeUnknown` is raised after `MAX_PROBES` probes with a lost reply.
    """
    probes = 0
    while True:
        try:
            return store if await _honours(store, clock or SystemClock()) else LookBeforeDelete(store)
        except OutcomeUnknown as error:
            probes += 1
            if probes == MAX_PROBES:
                raise OutcomeUnknown(
                    f"The store {store.name!r} lost a reply in each of {MAX_PROBES} probes of conditional deletes; "
                    "check the network to the bucket, then start again."
                ) from error
        await sleep(PROBE_SECONDS)


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
    """Read an object's etag, then delete the object if the etag is `etag`; otherwise raise `PreconditionFailed`.

    A missing object is not an error. A write between the read and the delete is lost.
    """
    found = await current_etag(store, key)
    if found is None:
        return
    if found != etag:
        raise PreconditionFailed(f"{key!r} is no longer at etag {etag}; read it again.")
    await store.delete(key)


class LookBeforeDelete(DelegatingStore):
    """An `ObjectStore` over a store that ignores a delete's condition; see `look_and_delete`."""

    async def delete_if_match(self, key: str, etag: str) -> None:
        await look_and_delete(self._store, key, etag)

    async def delete_all(self, entries: Sequence[Entry]) -> list[bool]:
        return await delete_each(self, entries)


REMEDY = (
    "updates would be lost: use another store, or declare with --single-writer that only this process writes "
    "to it"
)


R = TypeVar("R")


class SingleWriter(DelegatingStore):
    """An `ObjectStore` over a store that ignores conditions: the wrapper checks conditions, under a lock per key.

    The operator has declared that nothing else writes to the store; with a second writer, updates would be lost.
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
        """Wait for running writes, then close the store."""
        await asyncio.gather(*self._writes, return_exceptions=True)
        await super().close()

    async def _alone(self, key: str, write: Callable[[], Awaitable[R]]) -> R:
        """Await `write` while no other write of `key` runs.

        Cancelling the caller neither cancels the write nor releases the lock: the request may still reach the
        store, and the next write must not overtake it.
        """
        return await shielded(self._begun(self._locked(key, write)))

    def _begun(self, write: Coroutine[Any, Any, R]) -> asyncio.Task[R]:
        task = asyncio.create_task(write)
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)
        return task

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
