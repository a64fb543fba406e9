"""A policy: what a request meets on its way to the handler, once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol, TypeAlias

from aiohttp import web

from hsparse.sn.request import Request
from hsparse.sn.route import Route

Next: TypeAlias = Callable[[Request], Awaitable[web.StreamResponse]]
"""What a request meets next: another policy, or in the end the handler."""


class Policy(Protocol):
    """Looks at a request, at its route, and at the answer; never at which handler the route has."""

    def applies(self, route: Route) -> bool:
        """Say whether requests of a route meet the policy at all; asked once, at the start."""
        ...

    async def __call__(self, request: Request, next: Next) -> web.StreamResponse:
        """Return the answer of `next`, or raise an `HsparseError`."""
        ...


def chained(policies: Sequence[Policy], route: Route) -> Next:
    """Return what answers a request of a route: the policies that apply to it, the first outermost, and its handler."""
    answer: Next = route.handler
    for policy in reversed(policies):
        if policy.applies(route):
            answer = partial(policy, next=answer)
    return answer
