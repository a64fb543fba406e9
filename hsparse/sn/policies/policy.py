"""Policies: the middlewares that each request passes on its way to the handler."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol, TypeAlias

from aiohttp import web

from hsparse.sn.request import Request
from hsparse.sn.route import Route

Next: TypeAlias = Callable[[Request], Awaitable[web.StreamResponse]]
"""The next policy or, after the last one, the handler."""


class Policy(Protocol):
    """A middleware. It may depend on the request, its route, and the answer, but not on the route's handler."""

    def applies(self, route: Route) -> bool:
        """Return whether requests of a route pass this policy; called once for each route, when the node starts."""
        ...

    async def __call__(self, request: Request, next: Next) -> web.StreamResponse:
        """Answer the request, usually with the answer of `next`, or raise an `HsparseError`."""
        ...


def chained(policies: Sequence[Policy], route: Route) -> Next:
    """Return the route's handler wrapped by the policies that apply to the route, the first policy outermost."""
    answer: Next = route.handler
    for policy in reversed(policies):
        if policy.applies(route):
            answer = partial(policy, next=answer)
    return answer
