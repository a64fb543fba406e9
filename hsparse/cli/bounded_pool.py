"""A pool of threads with a bound on the memory of queued and running work."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Condition
from types import TracebackType
from typing import TypeVar

MAX_BYTES_IN_FLIGHT = 256 * 1024 * 1024
"""The maximum memory, in bytes, of queued and running work; work that needs more memory runs alone."""
Item = TypeVar("Item")
Result = TypeVar("Result")


class BoundedPool:
    """Runs work in threads; the first error skips queued work, calls `stop`, and is raised by `submit` or `finish`."""

    def __init__(
        self, count: int, memory: int = MAX_BYTES_IN_FLIGHT, stop: Callable[[], None] = lambda: None
    ) -> None:
        self._pool = ThreadPoolExecutor(count, "import")
        self._count = count
        self._memory = memory
        self._stop = stop
        self._changed = Condition()
        self._bytes = 0
        self._running = 0
        self._failure: BaseException | None = None

    def __enter__(self) -> BoundedPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._fail(error)
        self._pool.shutdown(cancel_futures=True)

    def submit(self, nbytes: int, work: Callable[[], None]) -> None:
        """Wait until the memory bound allows work that takes `nbytes` of memory, and queue the work."""
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self._failure is not None
                    or not self._running
                    or (self._bytes + nbytes <= self._memory and self._running < 2 * self._count)
                )
            )
            self._check()
            self._bytes += nbytes
            self._running += 1
        self._pool.submit(self._run, nbytes, work)

    def finish(self) -> None:
        """Wait until all submitted work is done; raise the first error of the work."""
        with self._changed:
            self._changed.wait_for(lambda: self._failure is not None or not self._running)
            self._check()

    def ahead(self, items: Iterable[Item], work: Callable[[Item], Result]) -> Iterator[Result]:
        """Yield `work(item)` for each item, in order; the threads compute the next results in advance."""
        waiting: deque[Future[Result]] = deque()
        for item in items:
            waiting.append(self._pool.submit(work, item))
            if len(waiting) > self._count:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def _run(self, nbytes: int, work: Callable[[], None]) -> None:
        try:
            if self._failure is None:
                work()
        except BaseException as error:  # noqa: BLE001 - raised by `submit` or `finish`
            self._fail(error)
        finally:
            with self._changed:
                self._bytes -= nbytes
                self._running -= 1
                self._changed.notify_all()

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()
        self._stop()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure
