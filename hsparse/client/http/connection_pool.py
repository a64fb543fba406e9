"""HTTP connections to one server that threads share: each exchange has one for itself, idle ones are kept.

A fork copies the sockets of a process, and two processes that read from one connection get each other's answers. So the
child closes its copies, those of exchanges under way too; it opens connections of its own.
"""

from __future__ import annotations

import http.client
import os
import select
import socket
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from weakref import WeakSet, finalize

from hsparse.client.http.route import proxy_for, trusted_authorities
from hsparse.format.buffer import Buffer

BROKEN = (OSError, http.client.HTTPException)
"""What a connection raises that breaks."""
MAX_IDLE = 16
"""Idle connections that are kept; more are open only while as many threads have exchanges under way."""

JOINED = 128 << 10
"""Bytes of the largest body that is copied behind its head: a chunk of a matrix is one, and arrives at once."""


class OwnAnswer(http.client.HTTPResponse):
    """An answer that is read by the process that asked for it; a forked one gets `OSError`, also for buffered bytes."""

    def begin(self) -> None:
        self._process = os.getpid()
        super().begin()

    def read(self, amt: int | None = None) -> bytes:
        if self._process != os.getpid():
            raise OSError("another process asked for this answer")
        return super().read(amt)

    def readinto(self, b: Any) -> int:
        if self._process != os.getpid():
            raise OSError("another process asked for this answer")
        return super().readinto(b)


class JoiningConnection(http.client.HTTPConnection):
    """Sends a small body with its head, as one packet: a server need not wake up twice."""

    _body = b""
    origin = ""
    """What a target begins with that a proxy is asked for."""
    proxy_headers: Mapping[str, str] = {}

    def putrequest(self, method: str, url: str, *flags: Any, **named: Any) -> None:
        super().putrequest(method, self.origin + url, *flags, **named)
        for name, value in self.proxy_headers.items():
            self.putheader(name, value)

    def endheaders(self, message_body: Any = None, *, encode_chunked: bool = False) -> None:
        if isinstance(message_body, bytes) and len(message_body) <= JOINED:
            self._body, message_body = message_body, None
        super().endheaders(message_body, encode_chunked=encode_chunked)

    def send(self, data: Any) -> None:
        if self._body:
            data, self._body = data + self._body, b""
        super().send(data)


class JoiningTlsConnection(JoiningConnection, http.client.HTTPSConnection):
    """The same over TLS."""


class ConnectionPool:
    """Connections to `host` and `port`, None for the scheme's; `timeout` is in seconds without a byte.

    `proxy` and `ca_file` are as in `proxy_for` and `trusted_authorities`.
    All methods are for any thread. `take` or `open` a connection, do one exchange, and `give_back` or `drop` it.
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
        """Exchanges under way: the socket, which a connection itself forgets when the server ends it, and the epoch."""
        self._epoch = 0
        """How often the pool was closed."""
        _POOLS.add(self)
        # A client that nobody closed: sockets last no longer than what uses them. Not `__del__`: in a cycle of
        # references those of the sockets may be called first.
        finalize(self, _close_all, self._idle).atexit = False

    def take(self) -> tuple[http.client.HTTPConnection, bool]:
        """Return a connection for one exchange, and whether it was kept: the server may close that at any time.

        Kept ones that the server has closed are dropped. Raises `OSError` if a new one cannot be opened.
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
        """Return a new connection for one exchange; raises `OSError`."""
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
        """Send a request over a connection of `take`; return its answer, read whole, and keep the connection.

        A GET is sent again over a new one if a kept one turns out to be closed. Raises what is in `BROKEN`.
        """
        try:
            # A server that refuses a body early answers and closes the connection: the answer has the reason.
            with suppress(BrokenPipeError):
                connection.request(method, target, data, headers)
            response = connection.getresponse()
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
        """Keep a connection after an exchange that ended well, its answer read whole, or close it.

        It is closed if the server closes it, if enough are kept, and if the pool was closed since it was taken.
        """
        with self._lock:
            _, epoch = self._busy.pop(connection, (None, None))
            kept = epoch == self._epoch and connection.sock is not None and len(self._idle) < MAX_IDLE
            if kept:
                self._idle.append(connection)
        if not kept:
            connection.close()

    def drop(self, connection: http.client.HTTPConnection) -> None:
        """Close a connection: the rest of its exchange must not be read as the answer to another request."""
        with self._lock:
            self._busy.pop(connection, None)
        connection.close()

    def close(self) -> None:
        """Close the idle connections now, and those under way when their exchange ends."""
        with self._lock:
            idle = self._idle.copy()
            self._idle.clear()
            self._epoch += 1
        _close_all(idle)

    def forget_parent(self) -> None:
        """Close this process's copies of the sockets of the process it was forked from; its exchanges go on there."""
        self._lock = threading.Lock()  # another thread of the parent may have locked it
        copies = [*(connection.sock for connection in self._idle), *(sock for sock, _ in self._busy.values())]
        self._idle.clear()
        self._busy = {}
        for copy in copies:
            with suppress(OSError):
                # Not `copy.close()`: that waits for readers, and takes locks of threads that are only in the parent.
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
"""All pools of the process: a fork concerns each."""


def _forget_parents() -> None:
    for pool in _POOLS:
        pool.forget_parent()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_forget_parents)


def _is_readable(sock: socket.socket) -> bool:
    """Say whether an idle socket can be read: the server has closed it, or sends what nobody asked for.

    So a request that must not be repeated does not fail on an idle connection.
    """
    if not hasattr(select, "poll"):
        return bool(select.select([sock], [], [], 0)[0])
    poll = select.poll()  # of a process with many files, too; a selector takes ten times as long
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))
