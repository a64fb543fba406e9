"""The trace of a request: its id, and what is done for it, kept in a context variable.

A service node begins a trace for each request, and a data node in a process of its own one for each message, with the
id of the request. Tasks inherit it. Work that several requests wait for (a load, a group commit) counts as store
requests of the one that began it, and as waiting of the others. Where spans are exported, each of these has one.

What a request's trace has for distributed tracing: a span, and what makes the first one in a process.

A node makes spans with `hsparse.telemetry.open_telemetry` if its environment asks for it; otherwise there are none.
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
    """A timed part of the work for a request. It has begun; `end` is called once."""

    def child(self, name: str, attributes: Mapping[str, Attribute]) -> Span:
        """Begin a part of this part, in this process."""
        ...

    def set(self, attributes: Mapping[str, Attribute]) -> None:
        """Add facts; never a secret."""
        ...

    def end(self, error: BaseException | str | None = None) -> None:
        """End it, with what it failed by; a text is the kind of a failure."""
        ...

    @property
    def headers(self) -> dict[str, str]:
        """The headers by which another process goes on: W3C Trace Context."""
        ...


class Tracer(Protocol):
    """Begins the spans of a process that answers others."""

    def begin(self, name: str, headers: Mapping[str, str], attributes: Mapping[str, Attribute]) -> Span:
        """Begin a span of what came with these HTTP headers; its parent is the span that they name, if any."""
        ...


ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}", re.ASCII)
"""The ids that a client may send."""
QUEUE_PATIENCE = 30.0
"""Seconds that a request without a deadline waits for its turn."""


class Work(StrEnum):
    """What is timed for a request: requests to the store, times that it waited, messages to data nodes elsewhere."""

    READS = "store reads"
    WRITES = "store writes"
    WAITS = "waits"
    MESSAGES = "messages to data nodes"


@dataclass(slots=True)
class RequestTrace:
    """A request: its id, its user and domain once they are known, and what was done for it.

    `work` has how often something was done and the seconds that it took; both add up if concurrent. `conflicts` counts
    changes that were applied again, because another writer had put first. Of cached objects `hits` counts uses of what
    was in memory, `loads` reads from the store, `commits` the groups that were committed, and `changes` the changes in
    these. `span` is the request's, None where spans are not exported. Queues take turns by `queue_user`: the
    user, or the address of one who is anonymous. `deadline` is a time of the event loop after which nobody waits for an
    answer that has not begun.
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
    """The budgets of memory that it holds some of until it ends."""
    work: dict[Work, tuple[int, float]] = field(default_factory=dict)
    _ends: list[Callable[[], None]] = field(default_factory=list)
    _ended: bool = False

    def at_end(self, function: Callable[[], None]) -> None:
        """Call a function when the trace ends, or now if it has ended."""
        if self._ended:
            function()
        else:
            self._ends.append(function)

    def end(self) -> None:
        """Note that nothing is done for the request any more."""
        self._ended = True
        while self._ends:
            self._ends.pop()()

    def add(self, kind: Work, seconds: float) -> None:
        """Count something that was done for the request, and took so many seconds."""
        count, before = self.work.get(kind, (0, 0.0))
        self.work[kind] = count + 1, before + seconds

    @contextmanager
    def measured(self, kind: Work, name: str = "", about: str = "") -> Iterator[Span | None]:
        """Count and time what is awaited in the context; its span, which is yielded, says what it is `about`."""
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
        """What was done, in words."""
        parts = [
            f"{self.work[kind][0]} {kind} in {self.work[kind][1]:.3f} s" for kind in Work if kind in self.work
        ]
        return ", ".join([*parts, f"{self.conflicts} conflicts"])


_CURRENT: ContextVar[RequestTrace | None] = ContextVar("request_trace", default=None)


def current_trace() -> RequestTrace | None:
    """Return the trace of the request that this code runs for, None without one."""
    return _CURRENT.get()


def queue_user() -> str:
    """Return whose turn the current request takes in queues, empty without a request."""
    trace = _CURRENT.get()
    return "" if trace is None else trace.queue_user


def queue_deadline() -> float:
    """Return by when the current request must have its turn, a time of the event loop."""
    trace = _CURRENT.get()
    if trace is None or trace.deadline is None:
        return asyncio.get_running_loop().time() + QUEUE_PATIENCE
    return trace.deadline


def seconds_left() -> float | None:
    """Return how long the current request may still take, None for any time; at least 0."""
    trace = _CURRENT.get()
    if trace is None or trace.deadline is None:
        return None
    return max(0.0, trace.deadline - asyncio.get_running_loop().time())


def begin_trace(trace: RequestTrace | None) -> Token[RequestTrace | None]:
    """Make `trace` the current one, None for no request, until `end_trace` is called with what this returns."""
    return _CURRENT.set(trace)


def end_trace(token: Token[RequestTrace | None]) -> None:
    """End the current trace, and restore the one before."""
    trace = _CURRENT.get()
    _CURRENT.reset(token)
    if trace is not None:
        trace.end()


def count_hits(count: int = 1) -> None:
    """Count uses of cached objects that were in memory, for the current request."""
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
    """Count what is awaited in the context as a wait of the current request."""
    trace = _CURRENT.get()
    if trace is None:
        yield
        return
    with trace.measured(Work.WAITS, "wait"):
        yield


async def in_span(span: Span, work: Awaitable[T]) -> T:
    """Await some work; its span ends with it."""
    try:
        done = await work
    except BaseException as error:
        span.end(error)
        raise
    span.end()
    return done


def valid_id(text: str | None) -> str | None:
    """Return an id that a client or node has sent, None if it is none."""
    return text if text is not None and ID.fullmatch(text) else None
