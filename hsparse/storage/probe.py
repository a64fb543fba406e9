"""The check at start-up that a store honours conditional puts, on which every update depends."""

from __future__ import annotations

from hsparse.clock import Clock, SystemClock
from hsparse.errors import Misconfigured, PreconditionFailed, Unsupported
from hsparse.storage.object_store import ObjectStore

REMEDY = (
    "updates would be lost: use another store, or declare with --single-writer that only this process writes "
    "to it"
)


async def probe(store: ObjectStore, *, clock: Clock | None = None) -> None:
    """Put conditions to `store`; `Misconfigured` says which it ignored, and what to do.

    Works on a fresh key `db/.probe-<hex>`, which is removed afterwards, also on failure.
    """
    key = f"db/.probe-{(clock or SystemClock()).token(8).hex()}"
    try:
        await _probe(store, key)
    except Unsupported as error:
        raise Misconfigured(f"The store {store.name!r} has no conditional put; {REMEDY}.") from error
    finally:
        await store.delete(key)


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


async def _accepted(store: ObjectStore, key: str, data: bytes, case: str, etag: str | None = None) -> str:
    try:
        if etag is None:
            return await store.put_if_absent(key, data)
        return await store.put_if_match(key, data, etag)
    except PreconditionFailed as error:
        raise Misconfigured(f"The store {store.name!r} refuses {case}; {REMEDY}.") from error


async def _refused(store: ObjectStore, key: str, case: str, etag: str | None = None) -> None:
    try:
        if etag is None:
            await store.put_if_absent(key, b"refused")
        else:
            await store.put_if_match(key, b"refused", etag)
    except PreconditionFailed:
        return
    raise Misconfigured(f"The store {store.name!r} ignores {case}; {REMEDY}.")
