"""Base of the clients of a bucket: requests are retried until the service answers.

A request is sent again, with exponential backoff and jitter, until it is answered or the operation's deadline has
passed. The client of each service translates its failures into errors.
"""

from __future__ import annotations

import asyncio
import itertools
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from enum import Enum, auto
from typing import Any, ClassVar, Self, TypeVar

from hsparse.attempts import STORE
from hsparse.clock import Clock, SystemClock
from hsparse.errors import HsparseError, Misconfigured, NotFound, PreconditionFailed, StoreFailed

PAGE_SIZE = 1000
REQUEST_SECONDS = 30.0
START_SECONDS = 5.0
"""Deadline in seconds for the first request to a bucket; short, so that a wrong endpoint is reported early."""
CONNECTIONS = 64
RENEWAL_SECONDS = 1.0
"""Minimum number of seconds between two attempts to reload credentials that the service refuses."""

R = TypeVar("R")


class RetryReason(Enum):
    """The reason for sending a request again."""

    REFUSED = auto()
    """The server reports that it did nothing."""
    UNCERTAIN = auto()
    """The request may have been applied: its reply was lost, or does not say whether it was applied."""


class AccessRefused(Misconfigured):
    """The service refuses the credentials, or they lack a right; newer credentials may be available."""


class BucketClient(ABC):
    """The base class of clients of one bucket.

    `deadline` is the time in seconds for one operation with all its retries, counted from when one of the
    `connections` is free. Listings have `page_size` keys a page.
    """

    _failures: ClassVar[tuple[type[Exception], ...]]
    """The exceptions that a failed request raises; `_verdict` translates them."""

    def __init__(
        self,
        bucket: str,
        *,
        deadline: float = REQUEST_SECONDS,
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
        self._renewals = 0
        """Number of times that reading the credentials again returned new credentials."""
        self._next_renewal = 0.0
        self.trouble: str | None = None
        """The error message of the last operation, or None if the service answered that operation."""

    @abstractmethod
    async def open(self) -> Self:
        """Create the pooled client without sending anything."""

    @abstractmethod
    async def close(self) -> None:
        """Release the client's connections."""

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Lower the deadline to at most `seconds` for operations within the context."""
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
        """Wait for a free connection, then call `send` until the service answers; return its result.

        After `PreconditionFailed` or `NotFound`, `settle` is called with the error and with whether an earlier reply
        was lost. It returns the result of the earlier attempt, or raises the error.
        """
        assert self._client is not None, "open the store before its first use, and do not use it when closed"
        async with self._slots:
            try:
                answer = await self._retry(key, send, settle)
            except (StoreFailed, Misconfigured) as error:
                self.trouble = error.message
                raise
            except HsparseError:
                self.trouble = None
                raise
            self.trouble = None
            return answer

    async def _retry(
        self,
        key: str,
        send: Callable[[], Awaitable[R]],
        settle: Callable[[HsparseError, bool], Awaitable[R]] | None,
    ) -> R:
        started = self._clock.monotonic()
        uncertain = renewed = False
        failed_condition: HsparseError | None = None
        verdict: HsparseError | RetryReason | None = None
        cause: Exception = TimeoutError()
        try:
            for attempt in itertools.count():
                left, renewals = self._deadline - (self._clock.monotonic() - started), self._renewals
                try:
                    async with asyncio.timeout(left):
                        if failed_condition is not None and settle is not None:
                            return await settle(failed_condition, uncertain)
                        return await send()
                except self._failures as error:
                    verdict = self._verdict(error, key)
                    cause = error
                if isinstance(verdict, NotFound) and settle is not None:  # If-Match on a missing object
                    verdict = PreconditionFailed(f"{key!r} is gone; create it anew.")
                if isinstance(verdict, PreconditionFailed) and settle is not None:
                    failed_condition = verdict
                    continue
                if isinstance(verdict, AccessRefused) and not renewed:
                    renewed = await self._renewed(renewals)
                    if renewed:
                        continue
                if isinstance(verdict, HsparseError):
                    raise verdict from cause
                uncertain = uncertain or (failed_condition is None and verdict is RetryReason.UNCERTAIN)
                pause = STORE.random_pause(attempt, self._clock)
                if self._clock.monotonic() - started + pause >= self._deadline:
                    break
                await self._sleep(pause)
            raise StoreFailed(
                f"The bucket {self.name!r} gave no answer on {key!r} in {self._deadline:g} s "
                f"({self._told(cause)}); check the endpoint and the network, then try again."
            ) from cause
        finally:
            # This frame is in the error's traceback: the cycle would keep the sent bytes until a garbage collection.
            verdict = failed_condition = None
            del cause

    async def _renewed(self, renewals: int) -> bool:
        """Return whether credentials were renewed after renewal `renewals`; reload at most once a `RENEWAL_SECONDS`."""
        if self._renewals == renewals and self._clock.monotonic() >= self._next_renewal:
            self._next_renewal = self._clock.monotonic() + RENEWAL_SECONDS
            if await self._read_credentials():
                self._renewals += 1
        return self._renewals != renewals

    async def _read_credentials(self) -> bool:
        """Read the credentials again; return whether they have changed or may have changed."""
        return False

    def _told(self, cause: Exception) -> str:
        """Return a short description, without secrets, of the last attempt's failure `cause`."""
        return type(cause).__name__

    @abstractmethod
    def _verdict(self, error: Exception, key: str) -> HsparseError | RetryReason:
        """Return the error to raise or the reason to retry; omit the exception's text, which may hold secrets."""
