"""Append rows to a dataset in the background: while a request runs, further rows are collected for the next request.

Tests: tests/client/test_appender.py.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from numpy.typing import ArrayLike

from hsparse.client.errors import InvalidValue
from hsparse.client.sources.upload import Slab, join_slabs
from hsparse.client.sparse.prefetch import FUTURES
from hsparse.clock import Clock, SystemClock

if TYPE_CHECKING:
    from concurrent.futures import Future

MOST_FRAMES = 1024
"""The maximum number of new rows (indices of the dimension that grows) in one request."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A block of rows that waits to be sent; `place` is the future of the slice of its rows, `since` when it came."""

    slab: Slab
    place: Future[slice]
    since: float


MakeSlab = Callable[[Any, ArrayLike | None, int | None], Slab]
AppendSlab = Callable[[Slab], slice]


class Appender:
    """Appends rows or frames in the order of the calls, many in each request; see `Dataset.appender`.

    Several threads may use one appender. Its own thread sends one request at a time; a request has all rows that were
    appended while the previous request ran.
    """

    def __init__(
        self,
        make: MakeSlab,
        append: AppendSlab,
        dim: int,
        max_delay: float,
        max_bytes: int,
        clock: Clock | None = None,
        *,
        below: bool = False,
    ) -> None:
        """`make` turns the arguments of the method `append` into a slab (a block of rows); `append` sends a slab.

        `dim` is the dimension that grows. With `below`, it grows downwards: each block goes below the previous block.
        """
        self._below = below
        self._make, self._append, self._dim = make, append, dim
        self._max_delay, self._max_bytes = max_delay, max_bytes
        self._clock = clock or SystemClock()
        self._changed = threading.Condition()
        self._waiting: deque[_Waiting] = deque()
        self._nbytes = 0
        """The number of bytes of all slabs that wait or are being sent."""
        self._sending = 0
        self._flushing = 0
        """The number of threads that wait in `flush`."""
        self._is_closed = False
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="hsparse-appender", daemon=True)
        self._thread.start()

    def append(
        self, block: Any, values: ArrayLike | None = None, *, count: int | None = None
    ) -> Future[slice]:
        """Queue a block as an argument of `SparseDataset.append`; return a future of the slice of its rows.

        A block whose shape does not fit raises an error at once. If an earlier request failed, all queued blocks were
        dropped, and each further call raises the error of that request. The call waits while `2 * max_bytes` bytes or
        more are queued.

        >>> with X.appender() as appender:
        ...     places = [appender.append([number, 0, 0]) for number in (7, 8)]
        ...     places[1].result()
        slice(5, 6, None)
        """
        slab = self._make(block, values, count).copy()  # the caller may reuse the buffer
        place: Future[slice] = FUTURES.load().Future()
        place.set_running_or_notify_cancel()
        with self._changed:
            while self._nbytes >= 2 * self._max_bytes and self._error is None:
                self._changed.wait()
            self._raise_error()
            if self._is_closed:
                raise InvalidValue("The appender is closed: create another appender to append.")
            self._waiting.append(_Waiting(slab, place, self._clock.monotonic()))
            self._nbytes += slab.nbytes
            self._changed.notify_all()
        return place

    def flush(self) -> None:
        """Wait until all rows appended so far are durable and visible; raise the error of a request that failed.

        >>> with X.appender(max_delay=60) as appender:
        ...     place = appender.append([7, 0, 0])
        ...     appender.flush()
        ...     X.refresh()
        (5, 3)
        """
        with self._changed:
            self._flushing += 1
            self._changed.notify_all()
            while (self._waiting or self._sending) and self._error is None:
                self._changed.wait()
            self._flushing -= 1
            self._raise_error()

    def close(self) -> None:
        """Send all queued rows and end the thread; raise the error of a failed request. A `with` block also closes.

        >>> appender = X.appender()
        >>> place = appender.append([7, 0, 0])
        >>> appender.close()
        >>> place.result()
        slice(4, 5, None)
        """
        self._end()
        self._raise_error()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end()
        if error is None:
            self._raise_error()

    def _end(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join()

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    # --- the thread -----------------------------------------------------------------------------------

    def _run(self) -> None:
        while group := self._next():
            try:
                group = group[::-1] if self._below else group  # the first goes next to the old rows
                start = self._append(join_slabs([one.slab for one in group], self._dim)).start
            except Exception as error:  # noqa: BLE001 - raised by the next append, flush or close
                self._fail(error, group)
                return
            for one in group:
                one.place.set_result(slice(start, start + one.slab.count))
                start += one.slab.count
            with self._changed:
                self._sending = 0
                self._nbytes -= sum(one.slab.nbytes for one in group)
                self._changed.notify_all()

    def _next(self) -> list[_Waiting]:
        """Wait until a request is due, and return its slabs, or an empty list if the appender is closed and empty."""
        with self._changed:
            while not self._is_due():
                left = None
                if self._waiting:
                    left = self._waiting[0].since + self._max_delay - self._clock.monotonic()
                self._changed.wait(left)
            group = self._take()
            self._sending = len(group)
            return group

    def _is_due(self) -> bool:
        """Return whether to send now: max_delay or max_bytes is reached, a thread flushes, or the appender closes."""
        if self._is_closed or not self._waiting:
            return self._is_closed
        late = self._clock.monotonic() - self._waiting[0].since >= self._max_delay
        return bool(late or self._flushing or self._nbytes >= self._max_bytes)

    def _take(self) -> list[_Waiting]:
        """Remove as many slabs from the head of the queue as fit into one request, and return these slabs."""
        group: list[_Waiting] = []
        count = nbytes = 0
        while self._waiting:
            slab = self._waiting[0].slab
            count, nbytes = count + slab.count, nbytes + slab.nbytes
            if group and (
                (slab.coords is None) != (group[0].slab.coords is None)
                or count > MOST_FRAMES
                or nbytes > self._max_bytes
            ):
                break
            group.append(self._waiting.popleft())
        return group

    def _fail(self, error: Exception, group: Sequence[_Waiting]) -> None:
        """Store the error of a failed request, and set the error in the futures of all slabs that were not appended."""
        with self._changed:
            self._error = error
            failed = [*group, *self._waiting]
            self._waiting.clear()
            self._sending = 0
            self._changed.notify_all()
        for one in failed:
            one.place.set_exception(error)
