"""Offload encoding, decoding and merging to threads, so that the event loop stays free.

Tests: tests/concurrency/test_offload.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

INLINE_BYTES = 16 * 1024
"""Work on fewer bytes is done on the event loop: changing threads costs about 50 us, as much as that work."""


class OffloadPool:
    """A pool of threads for work on bytes."""

    def __init__(self, count: int) -> None:
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="hsparse-codec")

    async def run(self, nbytes: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return `function(*args)`, computed in a thread when it works on many bytes."""
        if nbytes < INLINE_BYTES:
            return function(*args, **kwargs)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, lambda: function(*args, **kwargs))

    def close(self) -> None:
        """Wait for running calls, then end the threads."""
        self._pool.shutdown()


INLINE_ELEMENTS = 1 << 14
"""Work on at most so many single elements is done on the event loop."""


async def offload(count: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return `function(*args)`, which works on `count` single elements, computed in a thread when they are many."""
    if count <= INLINE_ELEMENTS:
        return function(*args, **kwargs)
    return await asyncio.to_thread(function, *args, **kwargs)
