"""Requests on a bucket of any service, sent again until they are answered.

A request is sent again, with exponential backoff and jitter, until it is answered or the operation's deadline has
passed. What a failure means is said by the client of each service.
"""

from __future__ import annotations

import asyncio
import itertools
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from enum import Enum, auto
from types import TracebackType
from typing import Any, ClassVar, Self, TypeVar

from hsparse.clock import Clock, SystemClock, jitter
from hsparse.errors import HsparseError, NotFound, PreconditionFailed, StoreFailed

PAGE_SIZE = 1000
DEADLINE = 30.0
CONNECTIONS = 64
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 5.0

R = TypeVar("R")


class Retry(Enum):
    """Why a request is sent again."""

    REFUSED = auto()
    """The server says it did nothing."""
    UNCERTAIN = auto()
    """The request may have been applied: its reply is lost, or says nothing about it."""


class BucketClient(ABC):
    """The base of clients of one bucket.

    `deadline` in seconds is for one operation with all its retries, from when one of the `connections` is free.
    Listings have `page_size` keys a page.
    """

    _failures: ClassVar[tuple[type[Exception], ...]]
    """The exceptions by which a request fails; `_verdict` is given one."""

    def __init__(
        self,
        bucket: str,
        *,
        deadline: float = DEADLINE,
        connections: int = CONNECTIONS,
        page_size: int = PAGE_SIZE,
        clock: Clock | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.name = bucket
        self._deadline = deadline
        self._page_size = page_size
        self._clock = clock or SystemClock()
        self._sleep = sleep
        self._slots = asyncio.Semaphore(connections)
        self._client: Any = None

    @abstractmethod
    async def open(self) -> Self:
        """Create the pooled client; nothing is sent yet."""

    @abstractmethod
    async def close(self) -> None:
        """Release its connections."""

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Give requests in the context this deadline, if theirs is a later one."""
        before, self._deadline = self._deadline, min(self._deadline, seconds)
        try:
            yield
        finally:
            self._deadline = before

    async def _run(
        self,
        key: str,
        send: Callable[[], Awaitable[R]],
        settle: Callable[[HsparseError, bool], Awaitable[R]] | None = None,
    ) -> R:
        """Send until there is an answer, from when a connection is free.

        A condition that failed, or a `NotFound`, goes to `settle` with two arguments: the error, and whether a
        reply was lost before it. It returns what `send` would have returned, or raises the error.
        """
        assert self._client is not None, "open the store before its first use, and do not use it when closed"
        async with self._slots:
            return await self._retry(key, send, settle)

    async def _retry(
        self,
        key: str,
        send: Callable[[], Awaitable[R]],
        settle: Callable[[HsparseError, bool], Awaitable[R]] | None,
    ) -> R:
        started = self._clock.monotonic()
        uncertain = False
        failed_condition: HsparseError | None = None
        verdict: HsparseError | Retry | None = None
        cause: Exception | None = None
        try:
            for attempt in itertools.count():
                left = self._deadline - (self._clock.monotonic() - started)
                try:
                    async with asyncio.timeout(left):
                        if failed_condition is not None and settle is not None:
                            return await settle(failed_condition, uncertain)
                        return await send()
                except self._failures as error:
                    verdict = self._verdict(error, key)
                    cause = error
                if isinstance(verdict, NotFound) and settle is not None:  # the answer to If-Match on nothing
                    verdict = PreconditionFailed(f"{key!r} is gone; create it anew.")
                if isinstance(verdict, PreconditionFailed) and settle is not None:
                    failed_condition = verdict
                    continue
                if isinstance(verdict, HsparseError):
                    raise verdict from cause
                uncertain = uncertain or (failed_condition is None and verdict is Retry.UNCERTAIN)
                pause = self._pause(attempt)
                if self._clock.monotonic() - started + pause >= self._deadline:
                    break
                await self._sleep(pause)
            raise StoreFailed(
                f"The bucket {self.name!r} gave no answer on {key!r} in {self._deadline:g} s "
                f"({type(cause).__name__}); check the endpoint and the network, then try again."
            ) from cause
        finally:
            # An error that its own traceback refers to stays until a collection, with the bytes that were sent.
            verdict = cause = failed_condition = None

    def _pause(self, attempt: int) -> float:
        """Return seconds between half of this attempt's backoff and all of it."""
        longest = min(FIRST_PAUSE * 2.0 ** min(attempt, 10), LONGEST_PAUSE)
        return longest * (1 + jitter(self._clock)) / 2

    @abstractmethod
    def _verdict(self, error: Exception, key: str) -> HsparseError | Retry:
        """Return the error for an exception of a request on `key`, without its text, which may hold secrets."""
