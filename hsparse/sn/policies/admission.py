"""The turn of a request: its deadline, its place among those under way, and when what only reads is given up.

A place is for what the node works on. A request has none while it waits for memory or for its client
(`Request.without_place`), and an answer that is streamed gives it up with its first bytes: the budget of memory for
answers bounds it from then on, and nobody waits for the minutes that a client takes to read it.

Memory for the body of a request, and what a body may be.
"""

from __future__ import annotations

import asyncio
import re

from aiohttp import hdrs, web

from hsparse.concurrency.admission import Admission
from hsparse.concurrency.request_trace import QUEUE_PATIENCE
from hsparse.errors import BadRequest, TooLarge
from hsparse.sn.http.response import respond_error
from hsparse.sn.policies.policy import Next
from hsparse.sn.request import Request
from hsparse.sn.route import Route

TIMEOUT_HEADER = "Request-Timeout"
"""The seconds, as a decimal number, in which a client waits for the answer to begin."""
TIMEOUT = re.compile(r"\d{1,9}(\.\d{1,9})?", re.ASCII)


class Queueing:
    """Lets requests in by turns of their users.

    A request without `Request-Timeout` has `timeout` seconds, 0 for any time. The answer to one that changes nothing
    must begin in `max_read_time` seconds.
    """

    def __init__(self, admission: Admission, timeout: float, max_read_time: float) -> None:
        self._admission = admission
        self._timeout = timeout
        self._max_read_time = max_read_time

    def applies(self, route: Route) -> bool:
        return route.queued

    async def __call__(self, request: Request, next: Next) -> web.StreamResponse:
        trace, now = request.trace, asyncio.get_running_loop().time()
        named, seconds = request.http.headers.get(TIMEOUT_HEADER), self._timeout
        if named is not None:
            seconds = seconds_of(named)
        if seconds:
            trace.deadline = now + seconds
        if request.http.body_exists:
            await request.receive_small()
        place = request.place = await self._admission.enter(
            trace.queue_user, now + (seconds or QUEUE_PATIENCE), is_gone=lambda: request.is_gone
        )
        limit = self._max_read_time if request.route.reads and self._max_read_time else None
        read_limit = asyncio.timeout(limit)
        try:
            async with read_limit as request.read_limit:
                return await next(request)
        except TimeoutError:
            if not read_limit.expired():
                raise
            raise TooLarge(
                f"The answer did not begin within {limit:g} s, the limit (max_read_time); ask for less at a time."
            ) from None
        finally:
            place.leave()
            request.place = request.read_limit = None


def seconds_of(text: str) -> float:
    """Return the seconds that `Request-Timeout` names; `BadRequest` for nonsense."""
    if TIMEOUT.fullmatch(text) is None or not (seconds := float(text)):
        raise BadRequest(
            f"{TIMEOUT_HEADER} must be a positive number of seconds, such as 2.5, not {text:.40}."
        )
    return seconds


IDENTITY = "identity"
CHUNKED = "chunked"
CONTINUE = "100-continue"
WITH_BODY = frozenset({"PUT", "POST", "DELETE"})


class Bodies:
    """Refuses bodies that nobody reads, and gives back the memory that one has taken."""

    def applies(self, route: Route) -> bool:
        return route.authenticated and route.method in WITH_BODY

    async def __call__(self, request: Request, next: Next) -> web.StreamResponse:
        http = request.http
        if not http.body_exists:
            return await next(request)
        if http.headers.get(hdrs.EXPECT, CONTINUE).lower() != CONTINUE:
            refusal = BadRequest("The Expect header may only say 100-continue; leave it out.")
            return respond_error(refusal, status=417)
        if not request.route.streams:
            request.check_length()
        if http.headers.get(hdrs.CONTENT_ENCODING, IDENTITY).lower() != IDENTITY:
            raise BadRequest("A request's body must not be compressed: leave out Content-Encoding.")
        if http.headers.get(hdrs.TRANSFER_ENCODING, CHUNKED).strip().lower() != CHUNKED:
            raise BadRequest(
                "The only Transfer-Encoding of a request's body is chunked; leave out the others."
            )
        try:
            return await next(request)
        finally:
            if request.memory is not None:
                await request.memory.aclose()
