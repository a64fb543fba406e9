"""An iterator whose next item is made in a thread while the caller has the one before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def read_ahead(items: Iterable[T]) -> Iterator[T]:
    """Yield items in their order; there are at most two at a time, the caller's and the next.

    An error in making an item is raised in its place. A generator that is closed waits for the item that is being made.
    """
    iterator, end = iter(items), object()

    def make() -> T | object:
        return next(iterator, end)

    with ThreadPoolExecutor(1, "hsparse-read-ahead") as pool:
        waiting: Future[T | object] = pool.submit(make)
        while (item := waiting.result()) is not end:
            waiting = pool.submit(make)
            yield item  # type: ignore[misc] # it is not `end`
