"""Policies of retries: how often work is attempted, and how long the pauses between two attempts are.

| work | retried after | limit | pauses |
| --- | --- | --- | --- |
| request of a client | errors in `hsparse.client.http.retry.RULES` | `Retry.tries`, `.patience` | `CLIENT` |
| store operation, or request to a web server | no answer, or an answer of a proxy | a deadline | `STORE` |
| message to a data node | no answer of its owner, or another owner | `MAX_RESEND_SECONDS` | `NODE` |
| change of an object | others' changes of the object | `MAX_CHANGE_ATTEMPTS` | none |
| read of several objects | others' changes between the reads | `MAX_READ_ATTEMPTS` | none |
"""

from __future__ import annotations

from dataclasses import dataclass

from hsparse.clock import Clock, jitter

MAX_CHANGE_ATTEMPTS = 64
"""The maximum number of attempts at a change of something that others also change; then the change fails as `Busy`."""
MAX_READ_ATTEMPTS = 8
"""The maximum number of attempts at a read of several objects that others change or delete meanwhile."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses in seconds, from `first` to `longest`, that double with each attempt."""

    first: float
    longest: float

    def pause(self, attempt: int) -> float:
        """Return the pause after an attempt; attempts are counted from 0."""
        return min(self.first * 2.0 ** min(attempt, 10), self.longest)

    def random_pause(self, attempt: int, clock: Clock) -> float:
        """Return a random time between half of the pause and all of it, so that retries do not come together."""
        return self.pause(attempt) * (1 + jitter(clock)) / 2


CLIENT = Backoff(0.5, 30.0)
STORE = Backoff(0.05, 5.0)
NODE = Backoff(0.02, 0.5)
