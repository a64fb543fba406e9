"""Merging of several listings into one listing in key order."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from operator import attrgetter

from hsparse.api import Entry, Page, gather_all


async def merged(streams: Sequence[AsyncIterator[Page]]) -> AsyncIterator[Page]:
    """Yield the entries of listings without prefixes in key order; at most a page of each listing is in memory."""
    waiting: dict[int, list[Entry]] = {}
    asked = list(range(len(streams)))
    while True:
        pages = await gather_all([_next(streams[number]) for number in asked])
        waiting |= {
            number: list(page.entries) for number, page in zip(asked, pages, strict=True) if page is not None
        }
        if not waiting:
            return
        last = min(entries[-1].key for entries in waiting.values())
        found: list[Entry] = []
        asked = []
        for number, entries in list(waiting.items()):
            ready = [entry for entry in entries if entry.key <= last]
            found += ready
            if len(ready) == len(entries):
                asked.append(number)
                del waiting[number]
            else:
                waiting[number] = entries[len(ready) :]
        yield Page(tuple(sorted(found, key=attrgetter("key"))))


async def _next(pages: AsyncIterator[Page]) -> Page | None:
    """Return the next page that has entries."""
    async for page in pages:
        if page.entries:
            return page
    return None
