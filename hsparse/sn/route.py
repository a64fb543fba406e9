"""A route of the HTTP API: its method, path, handler and requirements."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from aiohttp import web

from hsparse.model.acl import Right

Handler: TypeAlias = Callable[[Any], Awaitable[web.StreamResponse]]
"""A coroutine function that answers a `Request`."""


@dataclass(frozen=True, slots=True)
class Route:
    """A route: its method, path template, handler and requirements.

    The principal needs `right` in the request's domain, which the policies load. If `right` is None, the policies do
    not load the domain, and a handler that needs a domain loads it (`/`, `/domains`).
    """

    method: str
    path: str
    handler: Handler
    right: Right | None
    queued: bool = True
    """Whether requests pass admission control; routes that show the node's state do not."""
    streams: bool = False
    """Whether the body may exceed `max_request_size`; the handler then checks its length."""
    reads_only: bool = False
    """Whether the route changes nothing, although its method and right are those of a change."""
    adds: bool = True
    """Whether the body's size counts towards quotas; if False, the handler calls `Request.make_room` itself."""
    authenticated: bool = True
    """Whether requests are authenticated; only requests for unknown paths and methods are not."""
    allowed: tuple[str, ...] = ()
    """For a route that refuses a method: the methods that its path answers."""

    reads: bool = field(init=False)
    """Whether the route changes nothing, so that its requests can be cancelled at any time."""

    def __post_init__(self) -> None:
        reads = self.method in ("GET", "HEAD") or (
            self.method == "POST" and (self.right is Right.READ or self.reads_only)
        )
        object.__setattr__(self, "reads", reads)

    @property
    def grows(self) -> bool:
        """Whether the size of the request's body is taken from the domain's quotas."""
        return self.adds and self.method != "DELETE" and self.right in (Right.CREATE, Right.UPDATE)
