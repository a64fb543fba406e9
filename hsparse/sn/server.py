"""The HTTP server of a service node: aiohttp's, whose own errors are answered in JSON like all others."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, TypeAlias

from aiohttp import hdrs, http_exceptions, web

from hsparse.clock import SystemClock
from hsparse.errors import BadRequest, HsparseError
from hsparse.sn.http.connection import wait_for_client, work_on
from hsparse.sn.http.connection_table import ConnectionTable
from hsparse.sn.http.gated_connection import GatedConnection
from hsparse.sn.http.request_gate import GATE_KEY, RequestGate
from hsparse.sn.http.request_log import ID_HEADER
from hsparse.sn.http.response import SERVER_NAME, respond_error

log = logging.getLogger(__name__)

Handler: TypeAlias = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

MAX_HEADER = 32 * 1024
"""Bytes of a header: tokens with many groups exceed aiohttp's limit of 8 KiB."""
MAX_LINE = 16 * 1024
"""Bytes of a request line: selections may be long."""
IDLE = 300.0
"""Seconds that a connection waits for a request: longer than proxies keep theirs, so that they close first."""


class HttpConnection(GatedConnection):
    """A connection of a server. Bytes that are not HTTP are answered in JSON and never logged: they may be secrets."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer with an error of the HTTP parser, and end the connection."""
        if request.writer.output_size > 0:
            raise ConnectionError("Half an answer was sent; the connection is broken off.")
        if status < HTTPStatus.INTERNAL_SERVER_ERROR:
            log.debug("refused what is not HTTP: %s", type(exc).__name__)
            answer = respond_error(BadRequest(_sentence(exc)), status=status)
        else:
            log.error("a connection's handler failed", exc_info=exc)
            answer = respond_error(HsparseError("Internal error; the server's log has the details."))
        answer.headers[hdrs.SERVER] = SERVER_NAME
        answer.headers[ID_HEADER] = SystemClock().token(8).hex()
        answer.force_close()
        return answer


class _Server(web.Server):
    table: ConnectionTable
    gate: RequestGate | None

    def __call__(self) -> HttpConnection:
        return HttpConnection(self, self.table, gate=self.gate, loop=self._loop, **self._kwargs)


class ServerRunner(web.AppRunner):
    """Runs an application with connections of the class `HttpConnection`, at most `max_connections` (0: by open files).

    They pass the gate of the application, if it has one. One that waits `idle_timeout` seconds for a request is closed.
    """

    def __init__(
        self, app: web.Application, *, max_connections: int = 0, idle_timeout: float = IDLE, **kwargs: Any
    ) -> None:
        limits: dict[str, Any] = {"max_field_size": MAX_HEADER, "max_line_size": MAX_LINE}
        super().__init__(app, access_log=None, keepalive_timeout=idle_timeout, **limits, **kwargs)
        self.table = ConnectionTable(max_connections)

    async def _make_server(self) -> web.Server:
        made = await super()._make_server()
        made.__class__ = _Server
        assert isinstance(made, _Server)
        made.table, made.gate = self.table, self.app.get(GATE_KEY)
        made.request_handler = _at_work(made.request_handler)
        return made


def _at_work(handle: Handler) -> Handler:
    """Return a handler during which a connection does not wait for its client."""

    async def handle_at_work(request: web.BaseRequest) -> web.StreamResponse:
        work_on(request)
        try:
            return await handle(request)
        finally:
            wait_for_client(request)

    return handle_at_work


def _sentence(error: BaseException | None) -> str:
    if isinstance(error, http_exceptions.LineTooLong):
        return (
            f"The request line has more than {MAX_LINE} bytes or a header more than {MAX_HEADER}, the limits; "
            "send long selections in the body of a POST."
        )
    if isinstance(error, http_exceptions.InvalidHeader):
        return "A header of the request is not valid HTTP; see RFC 9110, section 5."
    if isinstance(error, http_exceptions.InvalidURLError):
        return "The request's target is not a URL; escape what is not ASCII by percent signs."
    return "This is not a valid HTTP request; is it sent to the right port, and without TLS?"
