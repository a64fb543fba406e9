"""The HTTP server of a service node: aiohttp's server, with the HTTP parser's errors answered in JSON."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, TypeAlias

from aiohttp import hdrs, http_exceptions, web

from hsparse.clock import SystemClock
from hsparse.errors import BadRequest, HsparseError
from hsparse.sn.app import Application
from hsparse.sn.http.response import respond_error
from hsparse.sn.policies.log import ID_HEADER
from hsparse.sn.request import SERVER_NAME

log = logging.getLogger(__name__)

Handler: TypeAlias = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

MAX_HEADER = 32 * 1024
"""The maximum number of bytes of a header: tokens with many groups exceed aiohttp's limit of 8 KiB."""
MAX_HEADERS = 128
"""The maximum number of headers of a request, a limit of aiohttp."""
CREDENTIALS = (b"Bearer ", b"Basic ")
TOLD = ("Too many headers", "Missing 'Host'", "Duplicate '")
"""Beginnings of aiohttp's error messages that can be shown to clients, because they quote no header's value."""
MAX_LINE = 16 * 1024
"""The maximum number of bytes of a request line: selections may be long."""
IDLE_SECONDS = 300.0
"""Seconds that an idle connection stays open: longer than proxies allow, so that proxies close it first."""
STOP_SECONDS = 5.0
"""Seconds that requests in flight have when the server stops."""


class _Connection(web.RequestHandler):
    """A connection. It answers invalid HTTP with an error in JSON, and never logs the HTTP, which may have secrets."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer an error of the HTTP parser or of the handler, and close the connection."""
        if status < HTTPStatus.INTERNAL_SERVER_ERROR:
            log.debug("refused an invalid HTTP request: %s", type(exc).__name__)
            answer = respond_error(BadRequest(_sentence(exc)), status=status)
        else:
            log.error("a connection's handler failed", exc_info=exc)
            answer = respond_error(HsparseError("Internal error; the server's log has the details."))
        answer.headers[hdrs.SERVER] = SERVER_NAME
        answer.headers[ID_HEADER] = SystemClock().token(8).hex()
        answer.force_close()
        return answer


class HttpServer(web.Server):
    """An HTTP server that answers each request by `answer`, which is cancelled when the client disconnects.

    A connection without a request for `idle_timeout` seconds is closed.
    """

    def __init__(self, answer: Handler, idle_timeout: float = IDLE_SECONDS) -> None:
        options: dict[str, Any] = {
            "access_log": None,
            "keepalive_timeout": idle_timeout,
            "max_field_size": MAX_HEADER,
            "max_line_size": MAX_LINE,
            "auto_decompress": False,
        }
        super().__init__(answer, handler_cancellation=True, **options)
        self._options = options

    def __call__(self) -> web.RequestHandler:
        return _Connection(self, loop=asyncio.get_running_loop(), **self._options)


class AppRunner(web.ServerRunner):
    """Runs a server of `app`. When it stops, requests in flight have `stop_timeout` seconds to finish."""

    def __init__(
        self, app: Application, stop_timeout: float = STOP_SECONDS, idle_timeout: float = IDLE_SECONDS
    ) -> None:
        super().__init__(HttpServer(app, idle_timeout), shutdown_timeout=stop_timeout)
        self.app = app
        self._stop_timeout = stop_timeout

    async def cleanup(self) -> None:
        """Finish the requests in flight, then close the application."""
        await super().cleanup()
        await self.app.close(self._stop_timeout)


def _sentence(error: BaseException | None) -> str:
    if isinstance(error, http_exceptions.LineTooLong):
        start, limit, *_ = error.args
        if limit == MAX_LINE:
            return f"The request line has more than {MAX_LINE} bytes; send long selections in the body of a POST."
        name = "The header Authorization" if start.startswith(CREDENTIALS) else "A header, name and value,"
        return f"{name} has more than {MAX_HEADER} bytes; send fewer cookies, or a token with fewer groups."
    if isinstance(error, http_exceptions.BadHttpMessage) and error.message.startswith(TOLD):
        return f"{error.message.rstrip('.')}; a request has at most {MAX_HEADERS} headers, one of them Host."
    if isinstance(error, http_exceptions.InvalidHeader):
        return "A header of the request is not valid HTTP; see RFC 9110, section 5."
    if isinstance(error, http_exceptions.InvalidURLError):
        return "The request's target is not a URL; escape what is not ASCII by percent signs."
    return "This is not a valid HTTP request; is it sent to the right port, and without TLS (http://)?"
