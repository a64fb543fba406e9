"""Results that are fetched one ahead of their use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from hsparse.optional_module import OptionalModule

T = TypeVar("T")
K = TypeVar("K")
FUTURES = OptionalModule("concurrent.futures")
"""With `logging` it takes 10 ms to import."""


def prefetched(
    fetch: Callable[[K], T], keys: Iterable[K], *, meanwhile: Callable[[], object] | None = None
) -> Iterator[T]:
    """Yield `fetch(key)` for each key; the next one is fetched, in a thread, while one is used.

    A key is taken when the one before it has been fetched. `meanwhile` is called while the first one is.
    """
    rest = iter(keys)
    with FUTURES.load().ThreadPoolExecutor(1, "prefetch") as thread:
        waiting = [thread.submit(fetch, key) for key in _first(rest)]
        if meanwhile is not None:
            meanwhile()
        while waiting:
            found = waiting.pop().result()
            waiting += [thread.submit(fetch, key) for key in _first(rest)]
            yield found
            del found


def _first(rest: Iterator[K]) -> Iterator[K]:
    """Yield the next key, if there is one."""
    for key in rest:
        yield key
        return
