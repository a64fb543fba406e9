"""What a row of the route table says."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from aiohttp import web

from hsparse.model.right import Right
from hsparse.sn.context import Context

Handler: TypeAlias = Callable[[Context], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Route:
    """A method and a path, who answers, and the right the principal needs in the request's domain.

    With `right` None the middleware neither looks up a domain nor checks a right: the handler does what
    is needed (`/about`, `/`, `/domains`).
    """

    method: str
    path: str
    handler: Handler
    right: Right | None
