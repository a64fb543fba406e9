"""The policy of a read-only server."""

from __future__ import annotations

from typing import NoReturn

from hsparse.errors import Forbidden
from hsparse.sn.policies.policy import Next
from hsparse.sn.request import Request
from hsparse.sn.route import Route


class ReadOnly:
    """Refuses requests that change something before their domain is loaded; `sentence` is the error's message."""

    def __init__(self, sentence: str) -> None:
        self._sentence = sentence

    def applies(self, route: Route) -> bool:
        return route.authenticated and not route.reads

    async def __call__(self, request: Request, next: Next) -> NoReturn:
        raise Forbidden(self._sentence)
