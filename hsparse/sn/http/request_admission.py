"""The turn of a request: its deadline, its place among those under way, and when it gives the place up.

A place is for what the node works on. A request has none while it waits for memory or for the client to send its body,
and an answer that is streamed gives it up with its first bytes: the budget of memory for answers bounds it from then
on, and nobody waits for the minutes that a client takes to read it.
"""

from __future__ import annotations

import asyncio
import math
import re

from aiohttp import web

from hsparse.concurrency.admission import Admission, Place
from hsparse.concurrency.request_trace import RequestTrace, queue_deadline, queue_user
from hsparse.errors import BadRequest
from hsparse.sn.http.request_head import pass_of
from hsparse.sn.http.request_log import TRACE_KEY

TIMEOUT_HEADER = "Request-Timeout"
"""The seconds, as a decimal number, in which a client waits for the answer to begin."""
TIMEOUT = re.compile(r"\d{1,9}(\.\d{1,9})?", re.ASCII)
PLACE_KEY = web.RequestKey("place", Place)


def seconds_of(text: str | None, default: float) -> float:
    """Return the seconds that `Request-Timeout` names, `default` without it; `BadRequest` for nonsense."""
    if text is None:
        return default
    if TIMEOUT.fullmatch(text) is None or not (seconds := float(text)):
        raise BadRequest(
            f"{TIMEOUT_HEADER} must be a positive number of seconds, such as 2.5, not {text:.40}."
        )
    return seconds


def set_deadline(request: web.Request, trace: RequestTrace, default: float) -> None:
    """Set the deadline that the client names, else one in `default` seconds, 0 for none; `BadRequest` for nonsense."""
    seconds = seconds_of(request.headers.get(TIMEOUT_HEADER), default)
    if seconds:
        given = pass_of(request)
        arrived = asyncio.get_running_loop().time() if given is None else given.arrived
        trace.deadline = arrived + seconds


async def wait_for_place(admission: Admission, request: web.Request) -> Place:
    """Return the place that the request has, or wait for its turn, see `Admission.enter`."""
    given = pass_of(request)
    if given is not None and given.error is not None:
        raise given.error
    if given is not None and given.place is not None:
        given.place.user = queue_user()
        request[PLACE_KEY] = given.place
        return given.place

    def is_gone() -> bool:
        return request.transport is None or request.transport.is_closing()

    place = request[PLACE_KEY] = await admission.enter(queue_user(), queue_deadline(), is_gone=is_gone)
    return place


async def return_to_work(request: web.Request) -> None:
    """Take a place again in turn, if the request has given it up."""
    place = request.get(PLACE_KEY)
    if place is not None:
        deadline = request[TRACE_KEY].deadline
        await place.regain(math.inf if deadline is None else deadline)


def give_up_place(request: web.Request) -> None:
    """Leave the place of the request to the next one."""
    place = request.get(PLACE_KEY)
    if place is not None:
        place.leave()


def begin_answer(request: web.Request) -> None:
    """Note that the answer begins: the deadline is met, and what is left is to be streamed."""
    give_up_place(request)
    trace = request.get(TRACE_KEY)
    if trace is not None:
        trace.deadline = None
