"""Admission control of requests: deadlines, places, the time limit of reads, and checks of request bodies.

A request needs one of a limited number of places while the node works on it. It gives up its place while it waits for
memory or for its client (`Request.without_place`). A streamed answer gives up the place when it begins, so that no
other request waits for the minutes that a client takes to read. From then on, the memory budget for answers bounds the
number of streamed answers.
"""

from __future__ import annotations

import asyncio
import re

from aiohttp import hdrs, web

from hsparse.concurrency.admission import Admission
from hsparse.concurrency.request_trace import QUEUE_PATIENCE
from hsparse.errors import BadRequest, Busy, HsparseError, TooLarge
from hsparse.sn.http.response import respond_error
from hsparse.sn.policies.policy import Next
from hsparse.sn.request import Request
from hsparse.sn.route import Route

TIMEOUT_HEADER = "Request-Timeout"
"""The header that names how many seconds a client waits for its answer to begin, as a decimal number."""
TIMEOUT = re.compile(r"\d{1,9}(\.\d{1,9})?", re.ASCII)


class Queueing:
    """Admits requests, fairly between users, and sets their deadlines.

    A request without `Request-Timeout` has `timeout` seconds (0: no limit). The answer to a read must begin within
    `max_read_time` seconds (0: no limit) and within the time that the client names, or the read is cancelled.
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
        limit = self._max_read_time
        if named and seconds:
            limit = min(limit or seconds, seconds)
        read_limit = asyncio.timeout(limit if limit and request.route.reads else None)
        try:
            async with read_limit as request.read_limit:
                return await next(request)
        except TimeoutError:
            if not read_limit.expired():
                raise
            raise _late(limit or 0.0, self._max_read_time) from None
        finally:
            place.leave()
            request.place = request.read_limit = None


def _late(limit: float, max_read_time: float) -> HsparseError:
    """Return the error for an answer that begins too late: `TooLarge` for the node's limit, `Busy` for the client's."""
    if limit == max_read_time:
        return TooLarge(
            f"The answer did not begin within {limit:g} s, the limit (max_read_time): request less data at a time."
        )
    return Busy(f"The answer did not begin within {limit:g} s, as {TIMEOUT_HEADER} asks; try again.")


def seconds_of(text: str) -> float:
    """Return the seconds in a `Request-Timeout` header; raise `BadRequest` unless they are a positive number."""
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
    """Refuses bodies that are too large or encoded, and releases the memory of bodies after the request."""

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
                "The only Transfer-Encoding of a request's body is chunked; leave out other codings."
            )
        try:
            return await next(request)
        finally:
            if request.memory is not None:
                await request.memory.aclose()
