"""The rules by which a `Connection`, and the `RetryingClient` of commands, retry failed requests."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from hsparse.attempts import CLIENT
from hsparse.client.errors import GatewayFailed, Unreachable
from hsparse.clock import Clock, SystemClock, jitter
from hsparse.errors import Busy, Conflict, Gone, HsparseError, NotFound, RateLimited, Unanswered, reword

PAUSES = CLIENT
READING = ("GET", "HEAD")
IDEMPOTENT = (*READING, "PUT", "DELETE")
"""The idempotent methods, RFC 9110, 9.2.2."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Rule:
    """How a request is retried after one class of errors, if `allowed(request)` is true.

    With `waits`, retries continue for `Retry.patience` seconds. A request is retried at most
    `tries * (Retry.tries - 1)` times, or any number of times if `tries` is None.
    """

    allowed: Callable[[Repeatable], bool]
    waits: bool
    tries: int | None


LOST = Rule(lambda request: request.lost, waits=False, tries=1)
RULES: dict[type[HsparseError], Rule] = {
    RateLimited: Rule(lambda request: True, waits=True, tries=None),  # 429: nothing was done
    Busy: Rule(lambda request: request.busy, waits=True, tries=None),  # 503: maybe passed on by a proxy
    GatewayFailed: Rule(lambda request: request.busy, waits=True, tries=2),  # 500, 502, 504, 520 and so on
    Unreachable: LOST,  # no answer, or an incomplete one
    Unanswered: LOST,  # 503 of a service node that got no answer
}
"""The rules by error class; the first one that matches an error applies."""
REPEATED = tuple(RULES)
SETTLED = (Conflict, NotFound, Gone)
"""Errors that a repeated change may get because an earlier attempt has already made the change."""


@dataclass(frozen=True, slots=True)
class Retry:
    """The limits of retries: `tries` attempts of a request without an answer, `patience` seconds for a busy server.

    `patience` counts from the first failure. `sleep` takes seconds; tests replace `sleep` and `clock`.
    """

    tries: int = 1
    patience: float = 0.0
    sleep: Callable[[float], object] = field(default=time.sleep, repr=False)
    clock: Clock = field(default_factory=SystemClock, repr=False)

    def begin(self, repeatable: Repeatable) -> Attempts:
        return Attempts(self, repeatable)

    def run(self, send: Callable[[], T], repeatable: Repeatable) -> T:
        """Return `send()`, which is called again after errors that allow a retry; raise any other error."""
        attempts = self.begin(repeatable)
        while True:
            try:
                return send()
            except REPEATED as error:
                pause = attempts.pause_after(error)
            except SETTLED as error:
                attempts.explain(error)
                raise
            self.sleep(pause)


@dataclass(frozen=True, slots=True)
class Repeatable:
    """The errors after which a request may be retried. A 429 always allows it, because nothing was done.

    `busy` allows a retry after a 503, or after another 5xx of a proxy, which may have forwarded the request. `lost`
    allows a retry after the server, or a data node behind it, gave no answer. Both also need `known()` to be true when
    the error occurs. `reads` says that a repetition has no further effect.
    """

    busy: bool = True
    lost: bool = True
    known: Callable[[], bool] = lambda: True
    reads: bool = True

    @classmethod
    def request(cls, method: str, *, reads: bool = False) -> Repeatable:
        """Return the rules of a request by its method; `reads` says that it changes nothing, whatever its method."""
        reads = reads or method in READING
        return cls(busy=reads or method in IDEMPOTENT, lost=reads, reads=reads)


class Attempts:
    """The attempts of one request: counts its failures, and decides whether and when it is retried."""

    def __init__(self, retry: Retry, repeatable: Repeatable) -> None:
        self._retry = retry
        self._repeatable = repeatable
        self._failures: Counter[Rule] = Counter()
        self._until = math.inf
        self._in_doubt = ""

    def pause_after(self, error: HsparseError) -> float:
        """Return the seconds until the next attempt; raise `error` if there must be no further attempt.

        The pause is at least a busy server's `Retry-After`, up to `PAUSES.longest`, and up to half longer at random, so
        that clients do not return together.
        """
        rule = next(rule for kind, rule in RULES.items() if isinstance(error, kind))
        before = self._failures[rule]
        self._failures[rule] += 1
        if rule.tries is not None and before >= rule.tries * (self._retry.tries - 1):
            raise error
        if not isinstance(error, RateLimited):
            if not (rule.allowed(self._repeatable) and self._repeatable.known()):
                raise error
            self._in_doubt = error.message
        return self._pause(error, before) if rule.waits else PAUSES.pause(before)

    def explain(self, error: HsparseError) -> None:
        """Add to the message of `error`, if it is about a change, that an earlier attempt may have made the change."""
        if self._in_doubt and not self._repeatable.reads:
            reword(error, f"{error.message} An earlier attempt may have succeeded: {self._in_doubt}")

    def _pause(self, error: HsparseError, before: int) -> float:
        """Return the seconds to wait for a busy server; raise the error if patience ends before."""
        clock = self._retry.clock
        now = clock.monotonic()
        self._until = min(self._until, now + self._retry.patience)
        asked = error.retry_after if isinstance(error, Busy | RateLimited) else 0.0
        pause = min(max(asked, PAUSES.pause(before)), PAUSES.longest) * (1 + jitter(clock) / 2)
        if now + pause > self._until:
            raise error
        return pause
