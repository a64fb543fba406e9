"""What direct reads did: requests, bytes, and how often the server was asked after all."""

from __future__ import annotations

import threading
from typing import Any


class ReadStatistics:
    """Counters that threads share.

    `objects` and `bytes` were read from the store, `maps` asked for, of them `unchanged_maps` answered with 304.
    `fallbacks` are chunks, or whole reads, that the server was asked for; `reason` is that of the last one. `small` are
    reads that the server does faster.
    """

    NAMES = ("objects", "bytes", "maps", "unchanged_maps", "fallbacks", "small")

    def __init__(self) -> None:
        self.objects = self.bytes = self.maps = self.unchanged_maps = self.fallbacks = self.small = 0
        self.reason = ""
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<{', '.join(f'{name}={getattr(self, name)}' for name in self.NAMES)}>"

    def add(self, reason: str = "", **counts: int) -> None:
        """Add to counters, by their names."""
        with self._lock:
            self.reason = reason or self.reason
            for name, count in counts.items():
                setattr(self, name, getattr(self, name) + count)

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc]
