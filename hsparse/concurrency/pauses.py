"""Long loops in which other requests have their turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

T = TypeVar("T")


async def with_pauses(items: Iterable[T], count: int) -> AsyncIterator[T]:
    """Yield the items; other requests run after each `count` of them."""
    for done, item in enumerate(items, 1):
        yield item
        if done % count == 0:
            await asyncio.sleep(0)
