"""The HTTP server of a service node: aiohttp's, whose own errors are answered in JSON like all others."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Any

from aiohttp import hdrs, http_exceptions, web

from hsparse.clock import SystemClock
from hsparse.errors import BadRequest, HsparseError
from hsparse.sn.http.early_rejection import EARLY_KEY, EarlyRejection, RequestHead, parse_head
from hsparse.sn.http.request_log import ID_HEADER
from hsparse.sn.http.response import SERVER_NAME, respond_error

log = logging.getLogger(__name__)

MAX_HEADER = 32 * 1024
"""Bytes of a header: tokens with many groups exceed aiohttp's limit of 8 KiB."""
MAX_LINE = 16 * 1024
"""Bytes of a request line: selections may be long."""


class HttpConnection(web.RequestHandler):
    """A connection. Bytes that are not HTTP are answered in JSON and never logged: they may be secrets."""

    __slots__ = ("_coming", "_early", "_left")

    def __init__(self, server: web.Server, early: EarlyRejection | None, **kwargs: Any) -> None:
        super().__init__(server, **kwargs)
        self._early = early
        self._coming: str | None = None
        """The user of a request that is not handled yet."""
        self._left: int | None = 0
        """Bytes that the last request still has to send, None where that is not known."""

    def data_received(self, data: bytes) -> None:
        """Refuse the request, or have it parsed."""
        # aiohttp calls it without data, too, to have go on what was received before.
        if not data or self._early is None or self._left is None or not self._is_refused(self._early, data):
            super().data_received(data)

    def _is_refused(self, early: EarlyRejection, data: bytes) -> bool:
        """Refuse the request if these bytes are one, no other is being answered, and its turn would come too late."""
        if self._left:
            left = self._left - len(data)
        elif (head := parse_head(data)) is None:
            left = -1
        else:
            left = head.nbytes - len(data)
            if not left and early.is_likely and self._is_idle and self._refuse(early, head):
                return True
        self._left = None if left < 0 else left
        return False

    def _refuse(self, early: EarlyRejection, head: RequestHead) -> bool:
        """Answer a request whose turn would come too late, and return whether it would."""
        user = early.user_of(head)
        if user is None:
            return False
        answer = early.answer(head, user)
        if answer is None:
            self._coming = user
            early.let_through(user)
            return False
        assert self.transport is not None
        self.transport.write(answer)
        self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout
        if head.fields.get(b"connection", b"").lower() == b"close":
            self.force_close()
        return True

    async def _handle_request(self, *args: Any) -> tuple[web.StreamResponse, bool]:
        self._came()
        return await super()._handle_request(*args)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Forget the request that was to be handled."""
        self._came()
        super().connection_lost(exc)

    def _came(self) -> None:
        if self._coming is not None and self._early is not None:
            self._early.came(self._coming)
            self._coming = None

    @property
    def _is_idle(self) -> bool:
        """Whether all requests of the connection are answered."""
        waits = self._waiter is not None or not self._request_count  # its task may not have begun yet
        return waits and not self._messages and not self._force_close and not self._close

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
    early: EarlyRejection | None

    def __call__(self) -> HttpConnection:
        return HttpConnection(self, self.early, loop=self._loop, **self._kwargs)


class ServerRunner(web.AppRunner):
    """Runs an application with connections of the class `HttpConnection`."""

    def __init__(self, app: web.Application, **kwargs: Any) -> None:
        limits: dict[str, Any] = {"max_field_size": MAX_HEADER, "max_line_size": MAX_LINE}
        super().__init__(app, access_log=None, **limits, **kwargs)

    async def _make_server(self) -> web.Server:
        made = await super()._make_server()
        made.__class__ = _Server
        assert isinstance(made, _Server)
        made.early = self.app.get(EARLY_KEY)
        return made


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
