"""HTTP connections to one server, which threads share. One exchange at a time uses a connection, which is then kept.

A fork copies the sockets of a process, and two processes that read from one connection would get each other's answers.
The child process therefore closes all its copies of sockets and opens its own connections.
"""

from __future__ import annotations

import http.client
import os
import select
import socket
import sys
import threading
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from weakref import WeakSet, finalize

from hsparse.client.http.route import proxy_for, trusted_authorities
from hsparse.format.buffer import Buffer

BROKEN = (OSError, http.client.HTTPException)
"""The errors that a broken connection raises."""
MAX_IDLE = 16
"""The maximum number of idle connections that are kept; the number of busy connections is not limited."""

MAX_JOINED_BYTES = 128 << 10
"""The maximum size, in bytes, of a body that is sent together with the headers; a chunk of a matrix is smaller."""


class OwnAnswer(http.client.HTTPResponse):
    """An answer that only the process that sent the request can read; a forked child gets `OSError`."""

    def begin(self) -> None:
        self._process = os.getpid()
        super().begin()

    def read(self, amt: int | None = None) -> bytes:
        self._check_process()
        data = super().read(amt)
        if amt is not None and len(data) < amt:
            self._check_whole(data)
        return data

    def readinto(self, b: Any) -> int:
        self._check_process()
        count = super().readinto(b)
        if not count and len(b):
            self._check_whole(b"")
        return count

    def _check_process(self) -> None:
        if self._process != os.getpid():
            raise OSError("only the process that sent the request can read its answer")

    def _check_whole(self, data: bytes) -> None:
        """Raise `IncompleteRead` if an answer ended before its declared length; `http.client` does not check this."""
        if self.length and self._method != "HEAD":  # type: ignore[attr-defined]
            raise http.client.IncompleteRead(data, self.length)


class JoiningConnection(http.client.HTTPConnection):
    """A connection that sends a small body together with the headers, so that the server wakes up only once."""

    _body = b""
    origin = ""
    """The prefix of the targets of requests that are sent to a proxy, or "" if there is no proxy."""
    proxy_headers: Mapping[str, str] = {}

    def putrequest(self, method: str, url: str, *flags: Any, **named: Any) -> None:
        super().putrequest(method, self.origin + url, *flags, **named)
        for name, value in self.proxy_headers.items():
            self.putheader(name, value)

    def endheaders(self, message_body: Any = None, *, encode_chunked: bool = False) -> None:
        if isinstance(message_body, bytes) and len(message_body) <= MAX_JOINED_BYTES:
            self._body, message_body = message_body, None
        super().endheaders(message_body, encode_chunked=encode_chunked)

    def send(self, data: Any) -> None:
        if self._body:
            data, self._body = data + self._body, b""
        super().send(data)


class JoiningTlsConnection(JoiningConnection, http.client.HTTPSConnection):
    """A `JoiningConnection` over TLS."""


class ConnectionPool:
    """Connections to a server; `port` may be None for the default port of the scheme.

    A read fails if no byte arrives for `timeout` seconds. For `proxy` see `proxy_for`, for `ca_file` see
    `trusted_authorities`. All methods are thread-safe. `take` or `open` a connection, then `give_back` or `drop` it.
    """

    def __init__(
        self,
        scheme: str,
        host: str,
        port: int | None,
        timeout: float,
        proxy: str | None = None,
        ca_file: str | Path | None = None,
    ) -> None:
        self._host = host
        self._port = port
        self._timeout = timeout
        self._context = trusted_authorities(ca_file) if scheme == "https" else None
        self.proxy = proxy_for(scheme, host, port, proxy)
        self._lock = threading.Lock()
        self._idle: list[http.client.HTTPConnection] = []
        self._busy: dict[http.client.HTTPConnection, tuple[socket.socket, int]] = {}
        """The socket and epoch of each busy connection; a connection forgets its socket when the server closes it."""
        self._epoch = 0
        """The number of times that the pool was closed; connections that were taken before are not kept."""
        _POOLS.add(self)
        # Closes the idle sockets of a pool that nobody closed. Not `__del__`: in a reference cycle, the sockets' own
        # finalizers may run first.
        finalize(self, _close_all, self._idle).atexit = False

    def take(self) -> tuple[http.client.HTTPConnection, bool]:
        """Return a pair: a connection for one exchange, and whether it was kept, so the server may close it any time.

        Kept connections that the server has closed are dropped. Raises `OSError` if no new connection can be opened.
        """
        while True:
            with self._lock:
                if not self._idle:
                    break
                connection = self._idle.pop()
                self._busy[connection] = connection.sock, self._epoch
            if not _is_readable(connection.sock):
                return connection, True
            self.drop(connection)
        return self.open(), False

    def open(self) -> http.client.HTTPConnection:
        """Open and return a new connection for one exchange; raise `OSError` if the connection cannot be opened."""
        connection = self._new()
        try:
            connection.connect()
        except BaseException:
            connection.close()
            raise
        with self._lock:
            self._busy[connection] = connection.sock, self._epoch
        return connection

    def exchange(
        self,
        connection: http.client.HTTPConnection,
        kept: bool,
        method: str,
        target: str,
        data: Buffer | None,
        headers: Mapping[str, str],
    ) -> tuple[http.client.HTTPResponse, bytes]:
        """Send a request over a connection of `take`; return a pair: the response and its bytes. Keep the connection.

        If a kept connection breaks, a GET is sent again over a new connection. Raises the errors in `BROKEN`.
        """
        try:
            # A server that rejects a body early answers and closes the connection; the answer has the reason.
            with suppress(BrokenPipeError):
                connection.request(method, target, data, headers)
            with closing(connection.getresponse()) as response:
                answer = response.read()
        except BaseException as error:
            self.drop(connection)
            is_repeated = kept and method == "GET" and isinstance(error, BROKEN)
            if not is_repeated or isinstance(error, TimeoutError):
                raise
            return self.exchange(self.open(), False, method, target, data, headers)
        self.give_back(connection)
        return response, answer

    def give_back(self, connection: http.client.HTTPConnection) -> None:
        """Keep a connection for reuse; its exchange must have succeeded, and its answer must be read to the end.

        The connection is closed instead if the server closes it, if `MAX_IDLE` are kept, or if the pool was closed.
        """
        with self._lock:
            _, epoch = self._busy.pop(connection, (None, None))
            kept = epoch == self._epoch and connection.sock is not None and len(self._idle) < MAX_IDLE
            if kept:
                self._idle.append(connection)
        if not kept:
            connection.close()

    def drop(self, connection: http.client.HTTPConnection) -> None:
        """Close a connection, so that the rest of its answer is not read as the answer to another request."""
        with self._lock:
            self._busy.pop(connection, None)
        connection.close()

    def close(self) -> None:
        """Close the idle connections now, and the busy connections when their exchanges end."""
        with self._lock:
            idle = self._idle.copy()
            self._idle.clear()
            self._epoch += 1
        _close_all(idle)

    def forget_parent(self) -> None:
        """After a fork, close the copies of the sockets of the parent process; the exchanges of the parent continue."""
        self._lock = threading.Lock()  # another thread of the parent may have held it
        copies = [*(connection.sock for connection in self._idle), *(sock for sock, _ in self._busy.values())]
        self._idle.clear()
        self._busy = {}
        for copy in copies:
            with suppress(OSError):
                # Not `copy.close()`, which waits for readers and takes locks of threads that exist only in the parent.
                os.close(copy.detach())

    def _new(self) -> http.client.HTTPConnection:
        host, port, context, proxy = self._host, self._port, self._context, self.proxy
        at = (host, port) if proxy is None else (proxy.host, proxy.port)
        connection = (
            JoiningConnection(*at, timeout=self._timeout)
            if context is None
            else JoiningTlsConnection(*at, timeout=self._timeout, context=context)
        )
        if proxy is not None and context is not None:
            connection.set_tunnel(host, port, proxy.headers)
        elif proxy is not None:
            name = f"[{host}]" if ":" in host else host
            connection.origin = f"http://{name}" if port is None else f"http://{name}:{port}"
            connection.proxy_headers = proxy.headers
        connection.response_class = OwnAnswer
        return connection


def _close_all(connections: list[http.client.HTTPConnection]) -> None:
    for connection in connections:
        connection.close()


_POOLS: WeakSet[ConnectionPool] = WeakSet()
"""All pools of the process; a fork affects each of them."""


def _forget_parents() -> None:
    for pool in _POOLS:
        pool.forget_parent()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_forget_parents)


def _is_readable(sock: socket.socket) -> bool:
    """Return whether an idle socket is readable, because the server has closed it or has sent unexpected data.

    Without this check, requests that must not be repeated would fail on closed connections.
    """
    if not hasattr(select, "poll"):
        return bool(select.select([sock], [], [], 0)[0])
    poll = select.poll()  # also above 1024 files; 10 times as fast as a selector
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))
