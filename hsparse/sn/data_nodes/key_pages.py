"""Listings of the store's keys, page by page, as any data node answers them."""

from __future__ import annotations

from collections.abc import AsyncIterator

from hsparse.sn.data_nodes.owners import Owners
from hsparse.wire.record_message import ListKeys

KEYS_AT_ONCE = 10_000


async def key_pages(owners: Owners, prefix: str) -> AsyncIterator[list[tuple[str, int, float]]]:
    """Yield pages of the keys that begin with `prefix`, in order: key, bytes, and seconds since the Unix epoch."""
    marker = ""
    while True:
        listing = await owners.ask_any(ListKeys(prefix, start_after=marker, limit=KEYS_AT_ONCE))
        yield list(zip(listing.keys, listing.sizes, listing.modified, strict=True))
        if not listing.more or not listing.keys:
            return
        marker = listing.keys[-1]
