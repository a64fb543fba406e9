"""The trace of a request: its id and the work done for it, kept in a context variable.

A service node begins a trace for each request, and a data node in its own process one for each message, with the id of
the request. Tasks inherit the trace. Work that several requests wait for (a load, a group commit) counts as store
requests of the request that began it, and as waiting of the others. If spans are exported, each piece of work has one.

`Span` and `Tracer` are the interface to distributed tracing. `hsparse.telemetry.open_telemetry` implements it if the
environment asks for it; otherwise there are no spans.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, TypeVar

T = TypeVar("T")
Attribute = str | int | float


class Span(Protocol):
    """A timed part of the work for a request; the part has begun, and `end` must be called once."""

    def child(self, name: str, attributes: Mapping[str, Attribute]) -> Span:
        """Begin a span of a part of this work, in this process."""
        ...

    def set(self, attributes: Mapping[str, Attribute]) -> None:
        """Add attributes; they must not contain secrets."""
        ...

    def end(self, error: BaseException | str | None = None) -> None:
        """End the span, with the error that the work failed with; a text is the kind of the error."""
        ...

    @property
    def headers(self) -> dict[str, str]:
        """The headers that pass the trace on to another process, by W3C Trace Context."""
        ...


class Tracer(Protocol):
    """Begins the first spans of a process that answers requests or messages."""

    def begin(self, name: str, headers: Mapping[str, str], attributes: Mapping[str, Attribute]) -> Span:
        """Begin a span for a request with these HTTP headers; its parent is the span that the headers name, if any."""
        ...


ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}", re.ASCII)
"""The pattern of the ids that a client may send."""
QUEUE_PATIENCE = 30.0
"""The maximum number of seconds that a request without a deadline waits for its turn."""


class Work(StrEnum):
    """The kinds of work that are timed for a request."""

    READS = "store reads"
    WRITES = "store writes"
    WAITS = "waits"
    MESSAGES = "messages to data nodes"


@dataclass(slots=True)
class RequestTrace:
    """A request: its id, its user and domain once they are known, and the work done for it.

    `work` has the number of operations of each kind and their seconds, both summed over concurrent operations.
    `conflicts` counts changes that were applied again because another writer had put first. `hits` counts uses of
    cached objects that were in memory, `loads` reads of cached objects from the store, `commits` committed groups, and
    `changes` the changes in them. `span` is the request's span, None if spans are not exported. Queues take turns by
    `queue_user`: the user, or the address of an anonymous user. `deadline` is the time, on the event loop's clock,
    after which nobody waits for an answer that has not begun.
    """

    id: str
    user: str | None = None
    domain: str | None = None
    conflicts: int = 0
    hits: int = 0
    loads: int = 0
    commits: int = 0
    changes: int = 0
    span: Span | None = None
    queue_user: str = ""
    deadline: float | None = None
    holds: set[object] = field(default_factory=set)
    """The memory budgets that the request holds a part of until it ends."""
    work: dict[Work, tuple[int, float]] = field(default_factory=dict)
    _ends: list[Callable[[], None]] = field(default_factory=list)
    _ended: bool = False

    def at_end(self, function: Callable[[], None]) -> None:
        """Call a function when the trace ends, or at once if it has ended."""
        if self._ended:
            function()
        else:
            self._ends.append(function)

    def end(self) -> None:
        """End the trace, because no more work is done for the request."""
        self._ended = True
        while self._ends:
            self._ends.pop()()

    def add(self, kind: Work, seconds: float) -> None:
        """Count an operation done for the request, which took `seconds`."""
        count, before = self.work.get(kind, (0, 0.0))
        self.work[kind] = count + 1, before + seconds

    @contextmanager
    def measured(self, kind: Work, name: str = "", about: str = "") -> Iterator[Span | None]:
        """Count and time the work in the context; yield its span, or None if spans are not exported."""
        clock = asyncio.get_running_loop().time
        started = clock()
        span = (
            None
            if self.span is None
            else self.span.child(name or kind, {"hsparse.about": about} if about else {})
        )
        try:
            yield span
        except BaseException as error:
            if span is not None:
                span.end(error)
                span = None
            raise
        finally:
            if span is not None:
                span.end()
            self.add(kind, clock() - started)

    @property
    def text(self) -> str:
        """A summary of the work in words, for the log."""
        parts = [
            f"{self.work[kind][0]} {kind} in {self.work[kind][1]:.3f} s" for kind in Work if kind in self.work
        ]
        return ", ".join([*parts, f"{self.conflicts} conflicts"])


_CURRENT: ContextVar[RequestTrace | None] = ContextVar("request_trace", default=None)


def current_trace() -> RequestTrace | None:
    """Return the trace of the request that this code runs for, or None without a request."""
    return _CURRENT.get()


def queue_user() -> str:
    """Return the user whose share of fair queues the current request uses, or "" if there is no request."""
    trace = _CURRENT.get()
    return "" if trace is None else trace.queue_user


def queue_deadline() -> float:
    """Return the event loop time by which the current request must have its turn."""
    trace = _CURRENT.get()
    if trace is None or trace.deadline is None:
        return asyncio.get_running_loop().time() + QUEUE_PATIENCE
    return trace.deadline


def seconds_left() -> float | None:
    """Return the seconds, at least 0, that the current request may still take, or None if it has no deadline."""
    trace = _CURRENT.get()
    if trace is None or trace.deadline is None:
        return None
    return max(0.0, trace.deadline - asyncio.get_running_loop().time())


def begin_trace(trace: RequestTrace | None) -> Token[RequestTrace | None]:
    """Make `trace` the current trace (None: no request) until `end_trace` is called with the returned token."""
    return _CURRENT.set(trace)


def end_trace(token: Token[RequestTrace | None]) -> None:
    """End the current trace, and make the previous trace current."""
    trace = _CURRENT.get()
    _CURRENT.reset(token)
    if trace is not None:
        trace.end()


def count_hits(count: int = 1) -> None:
    """Count uses of cached objects in memory, for the current request."""
    trace = _CURRENT.get()
    if trace is not None:
        trace.hits += count


def count_loads(count: int = 1) -> None:
    """Count cached objects that are read from the store, for the current request."""
    trace = _CURRENT.get()
    if trace is not None:
        trace.loads += count


@contextmanager
def measured_wait() -> Iterator[None]:
    """Count and time the context as a wait (`Work.WAITS`) of the current request."""
    trace = _CURRENT.get()
    if trace is None:
        yield
        return
    with trace.measured(Work.WAITS, "wait"):
        yield


async def in_span(span: Span, work: Awaitable[T]) -> T:
    """Return the result of `work`, and end `span` when the work ends, with its error if it fails."""
    try:
        done = await work
    except BaseException as error:
        span.end(error)
        raise
    span.end()
    return done


def valid_id(text: str | None) -> str | None:
    """Return the id that a client or node has sent, or None if it is not valid."""
    return text if text is not None and ID.fullmatch(text) else None
