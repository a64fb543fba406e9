"""Control of Python's cycle collector, which should not scan millions of lists that have no cycles.

Without the pause, scans take two thirds of the time to read a million points of two coordinates. Nothing else runs
during a scan, which takes a fifth of a second for a million lists.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

PAUSING_LISTS = 1 << 16
"""The number of new lists from which it is worth pausing the collector."""
SERVER_THRESHOLDS = 20_000, 2, 2
"""The thresholds of a server's collector: new objects, and collections of each younger generation.

Records are many objects and no garbage. With Python's first threshold of 700 new objects, a server that creates groups
spends a quarter of its event loop's time on scans. With Python's other thresholds of 10, one collection scans 200,000
objects and stops all requests for 0.1 s. The oldest generation is small in a server, see `_Survivors`.
"""
OLDEST = 2
"""The number of the oldest generation."""
WHOLE_EVERY = 600.0
"""Seconds after which a collection of the oldest generation scans all objects again."""


class _State:
    """The pauses of the collector by all threads of the process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.pauses = 0
        self.was_enabled = False


_STATE = _State()


class _Survivors:
    """A callback that freezes the objects which a collection of the oldest generation has scanned, until a whole scan.

    Caches hold a million long-lived objects and more. Scanning them takes a tenth of a second or more, in which no
    request is answered, and reads of many sources cause a collection each second. A frozen object is still freed when
    nothing refers to it; if it is part of a cycle, the next whole scan frees it.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._looked = monotonic()

    def __call__(self, phase: str, info: Mapping[str, int]) -> None:
        """Handle the start or end of a collection, as a member of `gc.callbacks`."""
        if info["generation"] < OLDEST:
            return
        if phase == "stop":
            gc.freeze()
        elif (now := self._monotonic()) - self._looked > WHOLE_EVERY:
            self._looked = now
            gc.unfreeze()


def collect_seldom(monotonic: Callable[[], float]) -> None:
    """Set up this process's collector for a server: `SERVER_THRESHOLDS`, and whole scans every `WHOLE_EVERY` seconds.

    Existing objects, such as modules, are also frozen. `monotonic` returns seconds that never go back.
    """
    gc.freeze()
    gc.set_threshold(*SERVER_THRESHOLDS)
    gc.callbacks[:] = [one for one in gc.callbacks if not isinstance(one, _Survivors)]
    gc.callbacks.append(_Survivors(monotonic))


@contextmanager
def paused_collector() -> Iterator[None]:
    """Pause the collector in a context that creates many lists, which should be freed at its end."""
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
