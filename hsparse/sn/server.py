"""The HTTP server of a service node: aiohttp's, whose own errors are answered in JSON like all others."""

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
"""Bytes of a header: tokens with many groups exceed aiohttp's limit of 8 KiB."""
MAX_LINE = 16 * 1024
"""Bytes of a request line: selections may be long."""
IDLE = 300.0
"""Seconds that a connection waits for a request: longer than proxies keep theirs, so that they close first."""
STOP = 5.0
"""Seconds that requests in flight have when the server stops."""


class _Connection(web.RequestHandler):
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


class HttpServer(web.Server):
    """Makes the connections whose requests `answer` answers; it is cancelled when its client is gone.

    A connection that waits `idle_timeout` seconds for a request is closed.
    """

    def __init__(self, answer: Handler, idle_timeout: float = IDLE) -> None:
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
    """Runs a server of `app`; at the end its requests in flight have `stop_timeout` seconds."""

    def __init__(self, app: Application, stop_timeout: float = STOP, idle_timeout: float = IDLE) -> None:
        super().__init__(HttpServer(app, idle_timeout), shutdown_timeout=stop_timeout)
        self.app = app
        self._stop_timeout = stop_timeout

    async def cleanup(self) -> None:
        """Answer what is under way, then stop."""
        await super().cleanup()
        await self.app.close(self._stop_timeout)


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
