"""Python's cycle collector, paused while millions of lists are alive that have no cycles.

It would look through them again and again: two thirds of the time for a million points of two coordinates.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

MANY = 1 << 16
"""New lists from which on the collector is paused."""


@contextmanager
def paused_collector(count: int) -> Iterator[None]:
    """Pause the collector while the context makes `count` lists, if they are many; they should be gone at its end."""
    if count < MANY or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
