"""The tasks of a data node that is a member: they end with it, and a defect in one ends it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from hsparse.errors import HsparseError, Unanswered

log = logging.getLogger(__name__)

T = TypeVar("T")


class NodeTasks:
    """Tasks until `close`. `name` returns the node's id, for messages."""

    def __init__(self, name: Callable[[], str]) -> None:
        self._name = name
        self._once: dict[tuple[str, str], asyncio.Task[Any]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self.defect = asyncio.Event()
        """Set when a task has failed by a defect: it might own nothing for ever."""

    async def once(self, what: str, about: str, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return what `work` returns, done once for all who wait for it; `Unanswered` when this node stops."""
        task = self._once.get((what, about))
        if task is None:
            task = self._once[what, about] = self.start(work())
            task.add_done_callback(lambda _: self._once.pop((what, about)))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise Unanswered(f"The data node {self._name()} is stopping.") from None
            raise
        finally:
            del task  # an error has this frame, and would have itself

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a task that ends with this node."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, HsparseError):
            log.error("a task of the data node %s failed", self._name(), exc_info=error)
            self.defect.set()

    async def close(self) -> None:
        """End the tasks."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
