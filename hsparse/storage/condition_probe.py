"""The start-up probe of conditional puts and of listings.

A store that ignores the conditions of puts is refused, because every update depends on them. A store that lists keys
out of order is refused too, because pages of listings would miss keys.
"""

from __future__ import annotations

import asyncio

from hsparse.clock import Clock, SystemClock
from hsparse.errors import Misconfigured, PreconditionFailed, Unsupported
from hsparse.storage.conditional_put import REMEDY
from hsparse.storage.object_store import (
    PROBE_PREFIX,
    ObjectStore,
)


class CurrentEtagRefused(Misconfigured):
    """The store refuses `If-Match` with the etag that the object has."""


async def probe(store: ObjectStore, *, clock: Clock | None = None) -> None:
    """Try each condition and the order of a listing; raise `Misconfigured` if one of these checks fails.

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
    """Raise `Misconfigured` if two keys are listed out of order, as in stores that list one folder after another."""
    found = [entry.key async for page in store.list(prefix) for entry in page.entries]
    if found != keys:
        raise Misconfigured(
            f"The store {store.name!r} lists its keys out of order, so pages of listings would miss keys: use "
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
