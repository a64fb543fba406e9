"""A connection, and how what only reads is given up: when its client is gone, or its answer does not begin in time.

A change goes on until it is stored or has failed: its client could not tell how much of it was carried out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import orjson
from aiohttp import web

from hsparse.errors import Busy, TooLarge
from hsparse.sn.http.connection_table import ConnectionTable
from hsparse.wire.http import STATUS

RETRY_AFTER = 1


class HungUp(ConnectionResetError):
    """The client has closed the connection, or takes nothing, while an answer is sent: no defect, and no answer."""


@contextmanager
def sending() -> Iterator[None]:
    """Raise `HungUp` for what a client does to the sending of an answer."""
    try:
        yield
    except (ConnectionError, TimeoutError) as error:
        error.with_traceback(None)  # its frames keep the answer
        raise HungUp("The client has hung up, or takes too little.") from None


class Connection(web.RequestHandler):
    """A connection of `table` that cancels the task `reading` when it is lost.

    `waits` says whether it waits for its client: for the next request, or for a body.
    """

    __slots__ = ("_table", "reading", "waits")

    def __init__(self, manager: web.Server, table: ConnectionTable, **options: Any) -> None:
        super().__init__(manager, **options)
        self._table = table
        self.reading: asyncio.Task[Any] | None = None
        self.waits = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to serve, or answer that there are too many connections."""
        if self._table.add(self):
            super().connection_made(transport)
        else:
            assert isinstance(transport, asyncio.WriteTransport)
            transport.write(_too_many())
            transport.close()

    def data_received(self, data: bytes) -> None:
        """Note that the client sends something."""
        self._table.hear(self)
        super().data_received(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Give up what only reads: nobody waits for it any more."""
        self._table.remove(self)
        super().connection_lost(exc)
        if self.reading is not None:
            self.reading.cancel()

    def abort(self) -> None:
        """Close the connection at once."""
        if self.transport is not None:
            self.transport.abort()

    def wait_for_client(self) -> None:
        """Note that it is the client's turn to send something."""
        self.waits = True
        self._table.hear(self)

    async def _drain_helper(self) -> None:
        """Wait until the client has taken what was sent, as aiohttp does; raise that it has hung up.

        The error of aiohttp refers to itself by the future that it came by, and keeps the answer until a collection.
        """
        try:
            await super()._drain_helper()
        except ConnectionError as error:
            error.with_traceback(None)
            raise HungUp("The client has hung up.") from None


class OnlyReading:
    """A context that is cancelled when the client of `request` disconnects.

    `TooLarge` when the answer has not begun in `seconds`; 0 is any time.
    """

    __slots__ = ("_cancelling", "_expired", "_request", "_seconds", "_task", "timer")

    def __init__(self, request: web.Request, seconds: float) -> None:
        self._request = request
        self._seconds = seconds
        self._expired = False
        self.timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        connection = self._request.protocol
        if isinstance(connection, Connection):
            if self._request.transport is None:
                raise asyncio.CancelledError
            connection.reading = task
        self._task, self._cancelling = task, task.cancelling()
        if self._seconds:
            self.timer = asyncio.get_running_loop().call_later(self._seconds, self._expire)
        self._request[READING_KEY] = self

    def _expire(self) -> None:
        self._expired = True
        self._task.cancel()

    def begin(self) -> None:
        """Take any time from here on."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.begin()
        finish_in_peace(self._request)
        del self._request[READING_KEY]  # a request in a cycle would stay until the collector runs
        if self._expired and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TooLarge(
                f"The answer did not begin within {self._seconds:g} s, the limit (max_read_time); ask for less at a "
                "time."
            ) from None


READING_KEY = web.RequestKey("reading", OnlyReading)


def begin_in_time(request: web.Request) -> None:
    """Note that the answer begins: it may be as long as the client reads it."""
    reading = request.get(READING_KEY)
    if reading is not None:
        reading.begin()


def finish_in_peace(request: web.Request) -> None:
    """Do not cancel what is left to do when the client disconnects."""
    if isinstance(request.protocol, Connection):
        request.protocol.reading = None


def work_on(request: web.BaseRequest) -> None:
    """Note that it is the server's turn to do something."""
    if isinstance(request.protocol, Connection):
        request.protocol.waits = False


def wait_for_client(request: web.BaseRequest) -> None:
    """Note that it is the client's turn to send something."""
    if isinstance(request.protocol, Connection):
        request.protocol.wait_for_client()


def _too_many() -> bytes:
    """Return an answer for a connection that is not served; nothing is read from it."""
    error = Busy(
        f"The server has all the connections that it takes (max_connections); try again in {RETRY_AFTER} s."
    )
    body = orjson.dumps({"error": {"kind": error.kind.value, "message": error.message}})
    head = (
        f"HTTP/1.1 {STATUS[error.kind]} Busy\r\nContent-Type: application/json; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nRetry-After: {RETRY_AFTER}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
