"""The error middleware: turns every exception into JSON of one shape, with a sentence that says what to do."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from aiohttp import hdrs, web

from hsparse.concurrency.request_trace import current_trace
from hsparse.errors import (
    BadRequest,
    ErrorKind,
    Forbidden,
    HsparseError,
    NotFound,
    TooLarge,
    Unauthenticated,
    Unsupported,
)
from hsparse.sn.http.challenge import add_challenges, would_sign_in
from hsparse.sn.http.connection import HungUp
from hsparse.sn.http.response import respond_error

log = logging.getLogger(__name__)

AioHandler = Callable[[web.Request], Awaitable[web.StreamResponse]]
BY_STATUS: dict[int, type[HsparseError]] = {
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    413: TooLarge,
    501: Unsupported,
}


class ErrorMiddleware:
    """A middleware that turns every exception into an answer; `challenges` are sent with a 401."""

    def __init__(self, challenges: tuple[str, ...]) -> None:
        self._challenges = challenges

    @web.middleware
    async def middleware(self, request: web.Request, handler: AioHandler) -> web.StreamResponse:
        """Answer with `handler`; an exception that is not an hsparse error is a defect, and logged.

        A client that hangs up in an answer is none: its request ends as one that is cancelled.
        """
        try:
            return await handler(request)
        except HsparseError as error:
            if error.kind is ErrorKind.FORBIDDEN and would_sign_in(request, self._challenges):
                error = Unauthenticated(f"{error.message} Sign in as a user who has it.")
            answer = respond_error(error)
            if answer.status >= 500 and answer.status != 503:
                # Neither the query nor a header: clients put secrets there.
                log.error("%s: %s", _place(request), error.message)
            if error.kind is ErrorKind.UNAUTHENTICATED:
                add_challenges(request, answer, self._challenges)
            return answer
        except web.HTTPException as error:
            return http_error_response(request, error)
        except HungUp:
            raise asyncio.CancelledError from None
        except Exception:
            # A defect must fail one request, not the process.
            log.exception("%s failed", _place(request))
            return respond_error(HsparseError(f"Internal error; the server's log has the details{_by_id()}."))


def _place(request: web.Request) -> str:
    """Return the request's line for the log: the path has the object's id; a domain may have control characters."""
    trace = current_trace()
    domain = trace.domain if trace is not None else None
    return f"{request.method} {request.rel_url.raw_path} in {'no domain' if domain is None else repr(domain)}"


def _by_id() -> str:
    trace = current_trace()
    return "" if trace is None else f", by the id {trace.id}"


def http_error_response(request: web.Request, error: web.HTTPException) -> web.StreamResponse:
    """Answer with an error that aiohttp raised."""
    path = request.path
    if isinstance(error, web.HTTPNotFound):
        return respond_error(NotFound(f"There is no resource {path}; /openapi.json lists all there are."))
    if isinstance(error, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(error.allowed_methods))
        answer = respond_error(
            BadRequest(f"{path} does not answer {request.method[:20]}; it answers {allowed}."), status=405
        )
        answer.headers[hdrs.ALLOW] = allowed
        return answer
    kind = BY_STATUS.get(error.status, BadRequest if error.status < 500 else HsparseError)
    return respond_error(kind(f"The request cannot be answered: {error.reason}."), status=error.status)


async def answer_expect(request: web.Request) -> web.StreamResponse | None:
    """Answer an `Expect` header: 100 for a client that waits to send its body, 417 for anything else."""
    if request.headers.get(hdrs.EXPECT, "").lower() != "100-continue":
        return respond_error(
            BadRequest("The Expect header may only say 100-continue; leave it out."), status=417
        )
    if request.version >= (1, 1):
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # the final answer has not begun
    return None
