"""Python's cycle collector, kept from millions of lists that have no cycles.

It would look through them again and again: two thirds of the time for a million points of two coordinates. And while it
does, nothing else runs: a fifth of a second for a million lists, each time.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

MANY = 1 << 16
"""New lists from which on the collector is kept from them."""
SERVER_THRESHOLDS = 20_000, 10, 10
"""New objects, and collections of each younger generation, after which one of a server's generations is collected.

Records are many objects and no garbage. With 700 new objects, Python's own first threshold, a server that makes groups
looks through them for a quarter of its event loop's time. The others are Python's own.
"""


class _State:
    """Who pauses the collector: threads of the whole process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.pauses = 0
        self.was_enabled = False


_STATE = _State()


def collect_seldom() -> None:
    """Have the collector of this process run as seldom as suits a server: `SERVER_THRESHOLDS`."""
    gc.set_threshold(*SERVER_THRESHOLDS)


@contextmanager
def paused_collector() -> Iterator[None]:
    """Pause the collector while the context makes many lists, which should be gone at its end."""
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
