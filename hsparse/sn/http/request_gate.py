"""The gate of a service node: a request asks for its turn there, and may be refused, before it is parsed.

Parsing, the middlewares, authentication and an answer take a third of what many requests take in all: more than there
is when twice as many come as can be served. Here a refusal takes a tenth of that, and users have turns from the start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from email.utils import formatdate

from aiohttp import hdrs, web

from hsparse.clock import Clock
from hsparse.concurrency.admission import Admission, Place, PlaceWait
from hsparse.concurrency.request_trace import QUEUE_PATIENCE, RequestTrace
from hsparse.errors import BadRequest, Busy
from hsparse.model.acl import ANONYMOUS_NAME
from hsparse.sn.http.caching import UNKEPT
from hsparse.sn.http.client_network import network_of
from hsparse.sn.http.known_users import KnownUsers
from hsparse.sn.http.request_admission import seconds_of
from hsparse.sn.http.request_head import RequestHead
from hsparse.sn.http.request_log import ID_HEADER, RequestLog
from hsparse.sn.http.response import respond_error
from hsparse.sn.metrics import Metrics

STATUS = "503"
PRIVATE = f"{hdrs.CACHE_CONTROL}: {UNKEPT}\r\n"
MOST_ANSWERS = 256
"""Answers that are kept."""


class RequestGate:
    """Turns and refusals for the connections of one application.

    `open_paths` never wait. `headers` are of every answer to a request that no page sends. Requests without
    `Request-Timeout` have `timeout` seconds, 0 for no deadline. `keeps_open` says whether connections stay open.
    """

    def __init__(
        self,
        admission: Admission,
        users: KnownUsers,
        log: RequestLog,
        metrics: Metrics,
        clock: Clock,
        *,
        open_paths: frozenset[str],
        headers: dict[str, str],
        timeout: float,
        keeps_open: Callable[[], bool] = lambda: True,
    ) -> None:
        self._admission = admission
        self._users = users
        self._log = log
        self._metrics = metrics
        self._clock = clock
        self._open_paths = open_paths
        self._headers = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self._timeout = timeout
        self.keeps_open = keeps_open
        self._date, self._second = "", 0
        self._answers: dict[tuple[str, float], tuple[str, bytes]] = {}

    def is_open(self, head: RequestHead) -> bool:
        """Return whether a request never waits."""
        return head.path in self._open_paths or head.method == hdrs.METH_OPTIONS

    def ask(self, head: RequestHead, address: str | None) -> Place | PlaceWait:
        """Return the place of a request from an address, or its turn; `Busy` when that would come too late."""
        user = self._users.get(head.authorization) or stranger(address)
        try:
            seconds = seconds_of(head.timeout, self._timeout)
        except BadRequest:
            seconds = 0.0  # it is answered so in its turn
        return self._admission.ask(user, asyncio.get_running_loop().time() + (seconds or QUEUE_PATIENCE))

    def refuse(self, head: RequestHead, error: Busy, seconds: float) -> bytes:
        """Return the whole answer to a request that is refused after so many seconds; it is logged and counted.

        It is what `ErrorMiddleware` and the application make of the error.
        """
        top, body = self._answer(error)
        if head.method == hdrs.METH_HEAD:
            body = b""
        trace = RequestTrace(self._log.valid_or_new(head.id))
        trace.user = self._users.get(head.authorization)
        self._log.note_refused(trace, head.method, head.path, STATUS, len(body), seconds)
        self._metrics.count_refused(head.method, STATUS, len(body), seconds)
        private = "" if head.authorization is None else PRIVATE
        return f"{top}{private}{ID_HEADER}: {trace.id}\r\nDate: {self._now()}\r\n\r\n".encode() + body

    def _answer(self, error: Busy) -> tuple[str, bytes]:
        """Return the status line with most headers, and the body; most refusals in a moment are the same."""
        key = error.message, error.retry_after
        if (made := self._answers.get(key)) is None:
            answer = respond_error(error)
            assert isinstance(answer.body, bytes)
            lines = "".join(f"{name}: {value}\r\n" for name, value in answer.headers.items())
            top = f"HTTP/1.1 {answer.status} {answer.reason}\r\n{lines}Content-Length: {len(answer.body)}\r\n"
            if len(self._answers) >= MOST_ANSWERS:
                self._answers.clear()
            made = self._answers[key] = top + self._headers, answer.body
        return made

    def _now(self) -> str:
        """Return the header `Date`, made once a second."""
        second = int(self._clock.now())
        if second != self._second:
            self._date, self._second = formatdate(second, usegmt=True), second
        return self._date


GATE_KEY = web.AppKey("gate", RequestGate)


def stranger(address: str | None) -> str:
    """Return whose turn it is for requests from an address without a valid credential: its network's."""
    return f"{ANONYMOUS_NAME} {network_of(address)}"
