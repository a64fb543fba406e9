"""Fetch results one step ahead of their use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from hsparse.optional_module import OptionalModule

T = TypeVar("T")
K = TypeVar("K")
FUTURES = OptionalModule("concurrent.futures")
"""Imported on use, because it takes 10 ms with `logging`."""


def prefetched(
    fetch: Callable[[K], T], keys: Iterable[K], *, meanwhile: Callable[[], object] | None = None
) -> Iterator[T]:
    """Yield `fetch(key)` for each key; a thread fetches the next result while the caller uses the current result.

    A key is taken from `keys` when the result before it has been fetched. `meanwhile` is called during the first fetch.
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
