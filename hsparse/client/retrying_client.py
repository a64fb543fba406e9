"""A client for many threads that repeats requests while the server is busy or unreachable."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from hsparse.client.connection import Body, Connection, Json
from hsparse.client.errors import Unreachable
from hsparse.clock import Clock, SystemClock
from hsparse.errors import Busy, HsparseError, RateLimited

TRIES = 6
"""Attempts of a request if the server is unreachable."""
PATIENCE = 300.0
"""Seconds from the first answer of a busy server to the last attempt."""
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
"""Seconds between two attempts."""
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
        self._sleep = sleep or self._stopped.wait
        self._clock = clock or SystemClock()
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
        refused = away = 0
        until = math.inf
        while not self._stopped.is_set():
            try:
                return send(self._connection())
            except (Busy, RateLimited) as error:
                now = self._clock.monotonic()
                until = min(until, now + PATIENCE)
                pause = self._spread(max(error.retry_after, _backoff(refused)))
                if now + pause > until:
                    raise
                refused += 1
            except Unreachable:
                pause = _backoff(away)
                away += 1
                if away == TRIES or not idempotent:
                    raise
            self._sleep(pause)
        raise HsparseError("The command was stopped.")

    def stop(self) -> None:
        """Send no more requests: waiting ones raise. Any thread may call it."""
        self._stopped.set()

    def close(self) -> None:
        """Close all connections."""
        for connection in self._opened:
            connection.close()

    def _spread(self, pause: float) -> float:
        """Return `pause` with jitter of up to a half, so that threads do not repeat at the same time."""
        return min(pause, LONGEST_PAUSE) * (1 + int.from_bytes(self._clock.token(4), "big") / 2**33)

    def _connection(self) -> Connection:
        found: Connection | None = getattr(self._local, "connection", None)
        if found is None:
            found = self._local.connection = self._connect()
            self._opened.append(found)
        return found


def _backoff(tries: int) -> float:
    """Return the seconds to wait after a number of attempts."""
    return min(FIRST_PAUSE * 2.0 ** min(tries, 10), LONGEST_PAUSE)
