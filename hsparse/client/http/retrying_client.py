"""A client for many threads that retries requests while the server is busy or unreachable."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from hsparse.client.connection import Body, Connection, Json
from hsparse.client.http.retry import REPEATED, SETTLED, Repeatable, Retry
from hsparse.clock import Clock, SystemClock
from hsparse.errors import HsparseError

MAX_TRIES = 6
"""The maximum number of attempts of a request if the server is unreachable."""
TRIES_HERE = 3
"""The maximum number of attempts (in 2 s) if the server has never answered and its local port refuses connections."""
BUSY_SECONDS = 300.0
"""The maximum time, in seconds, from the first answer of a busy server to the last attempt."""
Result = TypeVar("Result")


def print_to_stderr(text: str) -> None:
    """Print a line to standard error."""
    print(text, file=sys.stderr, flush=True)


class RetryingClient:
    """A client with a connection for each thread, which retries requests if the server is busy or does not answer.

    All requests of an import are idempotent, because an import chooses every id. `sleep` replaces the wait in tests.
    `say(text)` is called once, when the client begins to wait for the server.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        sleep: Callable[[float], object] | None = None,
        clock: Clock | None = None,
        say: Callable[[str], object] = print_to_stderr,
    ) -> None:
        self._connect = connect
        self._stopped = threading.Event()
        self._retry = Retry(MAX_TRIES, BUSY_SECONDS, sleep or self._stopped.wait, clock or SystemClock())
        self._say = say
        self._has_said = self._was_answered = False
        self._local = threading.local()
        self._opened: list[Connection] = []

    def json(self, method: str, path: str, body: Body | None = None, **params: Any) -> Json:
        """Send a request like `Connection.json`, and retry the request like `ask`."""
        return self.ask(lambda connection: connection.json(method, path, body, **params))

    def ask(self, send: Callable[[Connection], Result], *, idempotent: bool = True) -> Result:
        """Return `send(connection)`; call `send` again for up to `BUSY_SECONDS` seconds while the server is busy.

        If the server is unreachable, `send` is called up to `MAX_TRIES` times, or once if not `idempotent`. Raises the
        error of the last attempt, or `HsparseError` after `stop`.
        """
        attempts, refused = self._retry.begin(Repeatable(lost=idempotent, reads=idempotent)), 0
        while not self._stopped.is_set():
            connection = self._connection()
            try:
                found = send(connection)
                self._was_answered = True
                return found
            except REPEATED as error:
                refused += isinstance(error.__cause__, ConnectionRefusedError) and connection.is_here
                if refused >= TRIES_HERE and not self._was_answered:
                    raise
                pause = attempts.pause_after(error)
                self._tell(connection, error)
            except SETTLED as error:
                attempts.explain(error)
                raise
            self._retry.sleep(pause)
        raise HsparseError("The command was stopped: run the command again to continue.")

    def _tell(self, connection: Connection, error: HsparseError) -> None:
        """At the first call, report the server that the client waits for and the reason."""
        if not self._has_said:
            self._has_said = True
            self._say(f"hsparse: Waiting for {connection.url}: {error.message}")

    def stop(self) -> None:
        """Send no more requests; calls that wait for a retry raise `HsparseError`. Any thread may call this method."""
        self._stopped.set()

    def close(self) -> None:
        """Close the connections of all threads."""
        for connection in self._opened:
            connection.close()

    def _connection(self) -> Connection:
        found: Connection | None = getattr(self._local, "connection", None)
        if found is None:
            found = self._local.connection = self._connect()
            self._opened.append(found)
        return found
