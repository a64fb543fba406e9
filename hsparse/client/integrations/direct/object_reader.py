"""The interface of readers for direct reads; a reader returns an object's bytes if its etag is the chunk map's.

`ReadStatistics` counts requests, bytes, and the reads that were left to the server.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

from hsparse.format.buffer import Buffer

LEAST_PART = 1 / 8
"""A read of less than this part of its chunks' elements is left to the server, unless the caller chose direct reads.
Measured on chunks of 2000 x 2000 elements in a directory: the server was faster for 1/20, and half as fast for 2/3.
"""


class ObjectChanged(Exception):
    """The object is missing, or its etag differs from the chunk map's; a newer map may have the object's etag."""


class ObjectUnavailable(Exception):
    """The object cannot be read directly, so the server must read it; the message gives the reason without secrets."""


class ReaderClosed(Exception):
    """The reader cannot read any object, now or later; the message gives the server's reason."""


@dataclass(frozen=True, slots=True)
class ObjectPlace:
    """The key of an object in the store, and its etag in the chunk map, without quotes.

    `url` is the presigned URL, if the map has one; `size` is the size of the chunk in the object, in bytes.
    """

    key: str
    etag: str
    url: str | None = None
    size: int = 0


Item = TypeVar("Item")
Take: TypeAlias = Callable[[], Buffer]
"""A function that returns the bytes of an object, or raises the errors of `ObjectReader.read`."""
Use: TypeAlias = Callable[[int, Take], None]
"""A function that takes the index of an object in `places`, and the function that returns its bytes."""


class ObjectReader(Protocol):
    """Reads objects of one store; thread-safe. `at_once` is the useful number of concurrent requests.

    If the caller did not ask for direct reads, the server does reads of less than the part `least_part` of their
    chunks' elements, and reads of less than `least_size` elements, defined or not.
    """

    at_once: int
    least_part: float = LEAST_PART
    least_size: int = 0

    def read(self, place: ObjectPlace) -> Buffer:
        """Return the object's bytes; raise `ObjectChanged` if its etag differs, `ObjectUnavailable` after a failure."""
        ...

    def read_each(self, places: Sequence[ObjectPlace], use: Use) -> None:
        """Call `use` once for each object, in any order, in any thread; `use` must call `take` immediately.

        Raise `ReaderClosed` if reading stops before `use` was called for all objects.
        """
        in_threads(
            self.threads(places), range(len(places)), lambda at: use(at, lambda: self.read(places[at]))
        )

    def threads(self, places: Sequence[ObjectPlace]) -> int:
        """Return the maximum number of threads in which these objects are read and used."""
        return self.at_once

    def close(self) -> None:
        """Close open files and connections; the next read reopens them."""
        ...


def in_threads(count: int, items: Sequence[Item], work: Callable[[Item], None]) -> None:
    """Call `work` with each item, in at most `count` threads including the calling thread.

    After an error no further item is begun, and the error is raised when all threads have ended.
    """
    todo = iter(items)  # shared by the threads; a future per item costs as much as decoding a small chunk

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
    """Thread-safe counters of direct reads.

    `objects` and `bytes` count reads from the store, `maps` requested maps, `unchanged_maps` maps answered with 304.
    `fallbacks` counts chunks and whole reads that were left to the server; `reason` says why the last was. `small`
    counts small reads, which the server does faster.
    """

    NAMES = ("objects", "bytes", "maps", "unchanged_maps", "fallbacks", "small")

    def __init__(self) -> None:
        self.objects = self.bytes = self.maps = self.unchanged_maps = self.fallbacks = self.small = 0
        self.reason = ""
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<{', '.join(f'{name}={getattr(self, name)}' for name in self.NAMES)}>"

    def add(self, reason: str = "", **counts: int) -> None:
        """Add `counts` to the counters of these names, and set the reason if it is given."""
        with self._lock:
            self.reason = reason or self.reason
            for name, count in counts.items():
                setattr(self, name, getattr(self, name) + count)

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc]
