"""What direct reads need of a store: the bytes of an object in the state that the map names.

What direct reads did: requests, bytes, and how often the server was asked after all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

from hsparse.format.buffer import Buffer

LEAST_PART = 1 / 8
"""The least part of chunks' elements that is read directly if the caller leaves the way open. Measured on chunks of
2000 x 2000 elements in a directory: the server was faster for 1/20 of them, half as fast for 2/3.
"""


class ObjectChanged(Exception):
    """The object is gone, or in another state than the map's: a newer map may name its state."""


class ObjectUnavailable(Exception):
    """The object cannot be read in this way: ask the server. The message names the reason, no secret."""


class ReaderClosed(Exception):
    """Nothing can be read in this way, now or later: the server has no such answers. The message names the reason."""


@dataclass(frozen=True, slots=True)
class ObjectPlace:
    """An object of the store: its key and etag, without quotes.

    `url` is its presigned URL, if the map has one, `size` that of the chunk in it, in bytes.
    """

    key: str
    etag: str
    url: str | None = None
    size: int = 0


Item = TypeVar("Item")
Take: TypeAlias = Callable[[], Buffer]
"""Returns the bytes of an object, or raises what `ObjectReader.read` raises."""
Use: TypeAlias = Callable[[int, Take], None]
"""Is given the number of an object among those that are read, and how to take its bytes."""


class ObjectReader(Protocol):
    """Reads objects of one store, for any thread. `at_once` is how many requests at a time it is good for.

    If the caller leaves the way open, reads of less than the part `least_part` of their chunks' elements, or of less
    than `least_size` elements, defined or not, are left to the server.
    """

    at_once: int
    least_part: float = LEAST_PART
    least_size: int = 0

    def read(self, place: ObjectPlace) -> Buffer:
        """Return the object's bytes; raises `ObjectChanged` unless it has the etag, or `ObjectUnavailable`."""
        ...

    def read_each(self, places: Sequence[ObjectPlace], use: Use) -> None:
        """Call `use` once for each object, in any order, in any threads; it calls `take` at once.

        Raises `ReaderClosed`; then `use` was not called for all.
        """
        in_threads(
            self.threads(places), range(len(places)), lambda at: use(at, lambda: self.read(places[at]))
        )

    def threads(self, places: Sequence[ObjectPlace]) -> int:
        """Return in how many threads at most these objects are read and used."""
        return self.at_once

    def close(self) -> None:
        """Close what is kept open; the next read opens it again."""
        ...


def in_threads(count: int, items: Sequence[Item], work: Callable[[Item], None]) -> None:
    """Call `work` with each item, in at most `count` threads, this one among them.

    After an error no more items are begun; it is raised once all threads have ended.
    """
    todo = iter(items)  # threads draw from it: a future for each item takes as long as decoding a small chunk

    def draw() -> None:
        try:
            for item in todo:
                work(item)
        except BaseException:
            for _ in todo:
                pass
            raise

    others = min(count, len(items)) - 1
    if others < 1:
        draw()
        return
    with ThreadPoolExecutor(others, thread_name_prefix="direct-read") as pool:
        waiting = [pool.submit(draw) for _ in range(others)]
        draw()
    for one in waiting:
        one.result()


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
