"""Append rows to a dataset in the background: a thread sends all appends made during one request as the next one.

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
    """A block of rows that waits to be sent, the future of its slice in the dataset, and the time of its append."""

    slab: Slab
    place: Future[slice]
    since: float


MakeSlab = Callable[[Any, ArrayLike | None, int | None], Slab]
AppendSlab = Callable[[Slab], slice]


class Appender:
    """Appends rows or frames in the order of the calls, many in one request; see `Dataset.appender`.

    Threads may share an appender. A thread of the appender sends one request at a time, each with all rows that were
    appended during the request before it.
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
        """`make` turns the arguments of `append` into a slab (a block of rows), and `append` sends a slab.

        `dim` is the dimension that grows. With `below`, each append goes below the previous one.
        """
        self._below = below
        self._make, self._append, self._dim = make, append, dim
        self._max_delay, self._max_bytes = max_delay, max_bytes
        self._clock = clock or SystemClock()
        self._changed = threading.Condition()
        self._waiting: deque[_Waiting] = deque()
        self._nbytes = 0
        """Bytes of the slabs that wait or are being sent."""
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
        """Append a block as `SparseDataset.append` does; return a future of the slice of its rows in the dataset.

        A block whose shape does not fit raises at once. If an earlier request failed, this call raises its error; the
        waiting blocks were dropped then, and the appender accepts no more. The call blocks while `2 * max_bytes` bytes
        or more are pending.

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
                raise InvalidValue("The appender is closed: make another one.")
            self._waiting.append(_Waiting(slab, place, self._clock.monotonic()))
            self._nbytes += slab.nbytes
            self._changed.notify_all()
        return place

    def flush(self) -> None:
        """Wait until everything appended so far is durable and visible; raise the error of a request that failed.

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
        """Flush and end the thread; raise the error of a request that failed. Leaving a `with` block closes it.

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
        """Wait until a request is due and return its slabs; return an empty list once closed and drained."""
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
        """Return whether to send now: after max_delay or max_bytes, in a flush, or when the appender is closed."""
        if self._is_closed or not self._waiting:
            return self._is_closed
        late = self._clock.monotonic() - self._waiting[0].since >= self._max_delay
        return bool(late or self._flushing or self._nbytes >= self._max_bytes)

    def _take(self) -> list[_Waiting]:
        """Remove and return the leading slabs that fit into one request."""
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
        """Set the error of a failed request on the future of every slab that has not been appended."""
        with self._changed:
            self._error = error
            failed = [*group, *self._waiting]
            self._waiting.clear()
            self._sending = 0
            self._changed.notify_all()
        for one in failed:
            one.place.set_exception(error)
