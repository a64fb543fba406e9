"""A route: a method and a path, what answers there, and what its requests need."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from aiohttp import web

from hsparse.model.acl import Right

Handler: TypeAlias = Callable[[Any], Awaitable[web.StreamResponse]]
"""Answers a `Request`."""


@dataclass(frozen=True, slots=True)
class Route:
    """A method, a path, its handler, and what its requests need.

    Without `right` nothing is looked for in the request's domain; the handler does so if needed (`/about`, `/`,
    `/domains`).
    """

    method: str
    path: str
    handler: Handler
    right: Right | None
    queued: bool = True
    """Whether it waits for its turn when the node has much to do; what shows the node's state does not."""
    streams: bool = False
    """Whether its body may be larger than what is read as a whole, which the handler checks then."""
    reads_only: bool = False
    """Whether it changes nothing, though neither its method nor its right says so."""
    adds: bool = True
    """Whether all that it does may make the domain larger; else it asks for what room it needs (`make_room`)."""
    authenticated: bool = True
    """Whether it has a principal; only what names no resource has none."""
    allowed: tuple[str, ...] = ()
    """The methods of a path that does not have this one."""

    reads: bool = field(init=False)
    """Whether it changes nothing, so that it may be given up at any time."""

    def __post_init__(self) -> None:
        reads = self.method in ("GET", "HEAD") or (
            self.method == "POST" and (self.right is Right.READ or self.reads_only)
        )
        object.__setattr__(self, "reads", reads)

    @property
    def grows(self) -> bool:
        """Whether all that it does may make the domain larger, so that it needs room in its quotas."""
        return self.adds and self.method != "DELETE" and self.right in (Right.CREATE, Right.UPDATE)
