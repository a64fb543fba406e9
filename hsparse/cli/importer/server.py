"""Requests to the server from several threads, repeated where the server asks for patience."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from hsparse.client.connection import Body, Connection, Json, Unreachable
from hsparse.errors import Busy, RateLimited

TRIES = 6
LONGEST_PAUSE = 30.0
"""Seconds."""
Answer = TypeVar("Answer")


class Server:
    """A connection for each thread. All that an import sends may be sent twice: every id and place is its own.

    So a request whose answer was lost is sent again too.
    """

    def __init__(
        self, connect: Callable[[], Connection], sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._connect = connect
        self._sleep = sleep
        self._local = threading.local()
        self._opened: list[Connection] = []

    def json(self, method: str, path: str, body: Body | None = None, **params: Any) -> Json:
        """Send a request as `Connection.json` does, again as `ask` says."""
        return self.ask(lambda connection: connection.json(method, path, body, **params))

    def ask(self, send: Callable[[Connection], Answer]) -> Answer:
        """Return what `send` does; it is called up to `TRIES` times while the server is busy or away."""
        for left in reversed(range(TRIES)):
            try:
                return send(self._connection())
            except (Busy, RateLimited, Unreachable) as error:
                if not left:
                    raise
                pause = getattr(error, "retry_after", 0) or 0.5 * 2 ** (TRIES - 1 - left)
                self._sleep(min(float(pause), LONGEST_PAUSE))
        raise AssertionError("unreachable")

    def close(self) -> None:
        """Close all connections."""
        for connection in self._opened:
            connection.close()

    def _connection(self) -> Connection:
        found: Connection | None = getattr(self._local, "connection", None)
        if found is None:
            found = self._local.connection = self._connect()
            self._opened.append(found)
        return found
