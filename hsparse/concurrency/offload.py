"""Offload encoding, decoding and merging to threads, so that the event loop stays free.

Python's cycle collector, kept from millions of lists that have no cycles.

It would look through them again and again: two thirds of the time for a million points of two coordinates. And while it
does, nothing else runs: a fifth of a second for a million lists, each time.
"""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import TracebackType
from typing import ParamSpec, Self, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

INLINE_BYTES = 16 * 1024
"""Work on fewer bytes is done on the event loop: changing threads costs about 50 us, as much as that work."""
ALONE_BYTES = 128 * 1024
"""Work on fewer bytes is done by one thread, one after the other: numpy holds Python's lock for most of it, and two
threads, and the event loop, would wait for each other. Measured: chunks of 2,000 points are written 1.14 times as fast.
"""


class OffloadPool:
    """A pool of `count` threads for work on many bytes, and one for work on few."""

    def __init__(self, count: int) -> None:
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="hsparse-codec")
        self._alone = ThreadPoolExecutor(1, thread_name_prefix="hsparse-small-codec")

    async def run(self, nbytes: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return `function(*args)`, computed in a thread when it works on many bytes."""
        if nbytes < INLINE_BYTES:
            return function(*args, **kwargs)
        pool = self._alone if nbytes < ALONE_BYTES else self._pool
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(pool, lambda: function(*args, **kwargs))

    def close(self) -> None:
        """Wait for running calls, then end the threads."""
        self._pool.shutdown()
        self._alone.shutdown()


INLINE_ELEMENTS = 1 << 14
"""Work on at most so many single elements is done on the event loop."""


async def offload(count: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return `function(*args)`, which works on `count` single elements, computed in a thread when they are many."""
    if count <= INLINE_ELEMENTS:
        return function(*args, **kwargs)
    return await asyncio.to_thread(function, *args, **kwargs)


MANY = 1 << 16
"""New lists from which on the collector is kept from them."""
SERVER_THRESHOLDS = 20_000, 10, 10
"""New objects, and collections of each younger generation, after which one of a server's generations is collected.

Records are many objects and no garbage. With 700 new objects, Python's own first threshold, a server that makes groups
looks through them for a quarter of its event loop's time. The others are Python's own.
"""


class _State:
    """Who pauses the collector, and who has objects frozen: threads of the whole process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.pauses = 0
        self.was_enabled = False
        self.holders = 0
        self.frozen = False


_STATE = _State()


def collect_seldom() -> None:
    """Have the collector of this process run as seldom as suits a server: `SERVER_THRESHOLDS`."""
    gc.set_threshold(*SERVER_THRESHOLDS)


@contextmanager
def paused_collector(count: int) -> Iterator[None]:
    """Pause the collector while the context makes `count` lists, if they are many; they should be gone at its end."""
    if count < MANY:
        yield
        return
    with _STATE.lock:
        if not _STATE.pauses:
            _STATE.was_enabled = gc.isenabled()
            gc.disable()
        _STATE.pauses += 1
    try:
        yield
    finally:
        with _STATE.lock:
            _STATE.pauses -= 1
            if not _STATE.pauses and _STATE.was_enabled:
                gc.enable()


class FrozenObjects:
    """A context in which the collector leaves out what was there at `freeze`; what is new, it looks through as ever.

    Cycles that are there then, and are garbage later, stay until the last context ends.
    """

    def __enter__(self) -> Self:
        with _STATE.lock:
            _STATE.holders += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with _STATE.lock:
            _STATE.holders -= 1
            if _STATE.frozen and not _STATE.holders:
                gc.unfreeze()
                _STATE.frozen = False

    def freeze(self) -> None:
        """Freeze what is there: to do so takes no time, however much that is."""
        with _STATE.lock:
            gc.freeze()
            _STATE.frozen = True
