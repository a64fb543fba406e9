"""Single flight: callers that request the same thing at the same time share one task and its result or error."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from functools import partial
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


async def shielded(task: asyncio.Task[V]) -> V:
    """Return the result of a task, which goes on if the caller is cancelled.

    The traceback of the task's error refers to the frames of this function and its callers. A frame that still refers
    to the task would complete a reference cycle, so this function deletes its variable, and a caller should have none.
    """
    try:
        return await asyncio.shield(task)
    finally:
        del task


class SingleFlight(Generic[K, V]):
    """Tasks by key that concurrent callers share: `run` starts a task by `start` unless one with its key is running."""

    def __init__(
        self, start: Callable[[Coroutine[Any, Any, V]], asyncio.Task[V]] = asyncio.create_task
    ) -> None:
        self._start = start
        self._tasks: dict[K, asyncio.Task[V]] = {}

    def __contains__(self, key: K) -> bool:
        return key in self._tasks

    def __len__(self) -> int:
        return len(self._tasks)

    async def run(self, key: K, work: Callable[[], Coroutine[Any, Any, V]]) -> V:
        """Return the result of the key's task, which runs `work` if none is running yet.

        A caller that is cancelled leaves the task running for the others.
        """
        return await shielded(self._task(key, work))

    def _task(self, key: K, work: Callable[[], Coroutine[Any, Any, V]]) -> asyncio.Task[V]:
        if (task := self._tasks.get(key)) is None:
            task = self._tasks[key] = self._start(work())
            task.add_done_callback(partial(self._ended, key))
        return task

    def _ended(self, key: K, task: asyncio.Task[V]) -> None:
        del self._tasks[key]
        if not task.cancelled():
            task.exception()  # marks the error as retrieved, in case every caller was cancelled
