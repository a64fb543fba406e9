"""A client for many threads that repeats requests while the server is busy or unreachable."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from hsparse.client.connection import Body, Connection, Json
from hsparse.client.http.retry import REPEATED, Repeatable, Retry
from hsparse.clock import Clock, SystemClock
from hsparse.errors import HsparseError

TRIES = 6
"""Attempts of a request if the server is unreachable."""
PATIENCE = 300.0
"""Seconds from the first answer of a busy server to the last attempt."""
Result = TypeVar("Result")


class RetryingClient:
    """A connection for each thread. Requests are repeated also after a lost answer, unless they are not idempotent.

    Those of an import are, because it chooses every id. `sleep` replaces waiting for `stop` in tests.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        sleep: Callable[[float], object] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._connect = connect
        self._stopped = threading.Event()
        self._retry = Retry(TRIES, PATIENCE, sleep or self._stopped.wait, clock or SystemClock())
        self._local = threading.local()
        self._opened: list[Connection] = []

    def json(self, method: str, path: str, body: Body | None = None, **params: Any) -> Json:
        """Send a request like `Connection.json`, repeated as by `ask`."""
        return self.ask(lambda connection: connection.json(method, path, body, **params))

    def ask(self, send: Callable[[Connection], Result], *, idempotent: bool = True) -> Result:
        """Return `send(connection)`; repeat it for `PATIENCE` seconds while the server is busy.

        While the server is unreachable it is called `TRIES` times, or once if it is not `idempotent`. Raises its
        errors, and `HsparseError` after `stop`.
        """
        attempts = self._retry.begin(Repeatable(lost=idempotent))
        while not self._stopped.is_set():
            try:
                return send(self._connection())
            except REPEATED as error:
                pause = attempts.pause_after(error)
            self._retry.sleep(pause)
        raise HsparseError("The command was stopped.")

    def stop(self) -> None:
        """Send no more requests: waiting ones raise. Any thread may call it."""
        self._stopped.set()

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
