"""What a request's trace has for distributed tracing: a span, and what makes the first one in a process.

A node makes spans with `hsparse.open_telemetry` if its environment asks for it; otherwise there are none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

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
