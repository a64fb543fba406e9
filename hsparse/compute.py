"""Run work on many bytes in threads, so that the event loop stays free."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import cache
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

MAX_INLINE_BYTES = 16 * 1024
"""Work on at most this many bytes runs on the event loop: a thread switch costs about 50 us, as much as the work."""
MIN_THREAD_BYTES = 128 * 1024
"""Work on fewer bytes runs in one shared thread: numpy holds the global interpreter lock for most of such work, so
several threads and the event loop would wait for each other. Measured: with one thread, chunks of 2,000 points are
written 1.14 times as fast as with several.
"""
LONG_WORK_BYTES = 1 << 30
"""Bytes to pass to `compute` for work of unknown size that may take long."""
MAX_THREADS = 4
"""The number of threads of a process for work on `MIN_THREAD_BYTES` bytes or more."""


@cache
def _threads(name: str, count: int) -> ThreadPoolExecutor:
    """Return the thread pool of this name and number of threads; the first call in a process creates the pool."""
    return ThreadPoolExecutor(count, thread_name_prefix=f"hsparse-{name}")


os.register_at_fork(after_in_child=_threads.cache_clear)


async def compute(nbytes: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return `function(*args, **kwargs)`; the function runs in a thread if `nbytes` exceeds `MAX_INLINE_BYTES`.

    `nbytes` is the number of bytes that the function works on. For a Python loop, pass the number of iterations.
    Combine successive steps into one call. Work that takes at most 3 ms needs no call of `compute`.
    """
    if nbytes <= MAX_INLINE_BYTES:
        return function(*args, **kwargs)
    threads = _threads("small-work", 1) if nbytes < MIN_THREAD_BYTES else _threads("work", MAX_THREADS)
    run = copy_context().run
    return await asyncio.get_running_loop().run_in_executor(threads, lambda: run(function, *args, **kwargs))


U = TypeVar("U")
