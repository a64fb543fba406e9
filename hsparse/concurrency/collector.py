"""Python's cycle collector, kept from millions of lists that have no cycles.

It would look through them again and again: two thirds of the time for a million points of two coordinates. And while it
does, nothing else runs: a fifth of a second for a million lists, each time.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

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
