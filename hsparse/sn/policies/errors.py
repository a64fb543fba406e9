"""The error middleware: it answers every error as JSON with the same keys and a sentence that says what to do."""

from __future__ import annotations

import asyncio
import logging

from aiohttp import web

from hsparse.errors import ErrorKind, HsparseError, Unauthenticated
from hsparse.sn.http.challenge import add_challenges, would_sign_in
from hsparse.sn.http.response import respond_error
from hsparse.sn.http.stream import HungUp
from hsparse.sn.policies.policy import Next
from hsparse.sn.request import Request
from hsparse.sn.route import Route

log = logging.getLogger(__name__)


class Errors:
    """The error middleware: turns exceptions into answers; `challenges` are sent with a 401."""

    def __init__(self, challenges: tuple[str, ...]) -> None:
        self._challenges = challenges

    def applies(self, route: Route) -> bool:
        return True

    async def __call__(self, request: Request, next: Next) -> web.StreamResponse:
        """Turn errors into answers; log unexpected errors. After a hang-up or begun answer, raise `CancelledError`."""
        try:
            return await next(request)
        except HsparseError as error:
            answer = self._answer(request, error)
        except HungUp:
            raise asyncio.CancelledError from None
        except Exception:
            # A programming error must fail one request, not the process.
            log.exception("%s failed", _place(request))
            message = f"Internal error; the server's log has the details, by the id {request.trace.id}."
            answer = respond_error(HsparseError(message))
        if request.begun:
            raise asyncio.CancelledError
        return answer

    def _answer(self, request: Request, error: HsparseError) -> web.StreamResponse:
        if error.kind is ErrorKind.FORBIDDEN and would_sign_in(request.http, self._challenges):
            error = Unauthenticated(f"{error.message} Sign in as a user who has it.")
        answer = respond_error(error)
        if answer.status >= 500 and answer.status != 503:
            # The line has neither query nor headers, because clients put secrets there.
            log.error("%s: %s", _place(request), error.message)
        if error.kind is ErrorKind.UNAUTHENTICATED:
            add_challenges(request.http, answer, self._challenges)
        return answer


def _place(request: Request) -> str:
    """Return the request's method, path and domain for the log; the domain is escaped."""
    domain = request.trace.domain
    where = "no domain" if domain is None else repr(domain)
    return f"{request.http.method} {request.http.rel_url.raw_path} in {where}"
