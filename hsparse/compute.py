"""Work on many bytes leaves the event loop: `compute` is the one place that chooses a thread for it."""

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

INLINE = 16 * 1024
"""Work on at most so many bytes is done on the event loop: changing threads costs about 50 us, as much as that work."""
ALONE = 128 * 1024
"""Work on fewer bytes is done by one thread, one after the other: numpy holds Python's lock for most of it, and two
threads, and the event loop, would wait for each other. Measured: chunks of 2,000 points are written 1.14 times as fast.
"""
LONG = 1 << 30
"""The bytes of work whose size is not known, and that may take long."""
THREADS = 4
"""Threads of a process for work on more bytes."""


@cache
def _threads(name: str, count: int) -> ThreadPoolExecutor:
    """Return threads of this process, which are made at their first use."""
    return ThreadPoolExecutor(count, thread_name_prefix=f"hsparse-{name}")


os.register_at_fork(after_in_child=_threads.cache_clear)


async def compute(nbytes: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return `function(*args)`, which works on `nbytes` bytes, computed in a thread if they are many.

    An element that is looked at by itself, as a number of a list, takes as long as one to ten bytes: count it as one.
    Steps that follow each other are one call, and what takes 3 ms at its largest is done on the event loop.
    """
    if nbytes <= INLINE:
        return function(*args, **kwargs)
    threads = _threads("small-work", 1) if nbytes < ALONE else _threads("work", THREADS)
    run = copy_context().run
    return await asyncio.get_running_loop().run_in_executor(threads, lambda: run(function, *args, **kwargs))
