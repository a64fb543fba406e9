"""The rules by which a `Connection` and the `RetryingClient` of commands retry failed requests."""

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
"""The methods that are idempotent, as RFC 9110, 9.2.2 defines."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Rule:
    """How a request is retried after one class of errors; it is retried only if `allowed(request)` is true.

    With `waits`, retries end after `Retry.patience` seconds. A request is retried at most `tries * (Retry.tries - 1)`
    times; if `tries` is None, the number of retries is unlimited.
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
"""Maps error classes to rules; for an error, the rule of the first class that it is an instance of applies."""
REPEATED = tuple(RULES)
SETTLED = (Conflict, NotFound, Gone)
"""The errors that a repeated change may raise because an earlier attempt has already made the change."""


@dataclass(frozen=True, slots=True)
class Retry:
    """The limits of retries: `tries` attempts if the server does not answer, `patience` seconds if it is busy.

    `patience` counts from the first failure. `sleep(seconds)` waits; tests replace `sleep` and `clock`.
    """

    tries: int = 1
    patience: float = 0.0
    sleep: Callable[[float], object] = field(default=time.sleep, repr=False)
    clock: Clock = field(default_factory=SystemClock, repr=False)

    def begin(self, repeatable: Repeatable) -> Attempts:
        return Attempts(self, repeatable)

    def run(self, send: Callable[[], T], repeatable: Repeatable) -> T:
        """Return `send()`; after an error that allows a retry, wait and call `send` again. Raise any other error."""
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
    """The errors after which a request may be retried. A 429 always allows a retry, because nothing was changed.

    `busy` allows a retry after a 503, or after another 5xx of a proxy, which may have forwarded the request. `lost`
    allows a retry if the server, or a data node behind the server, did not answer. After both, `known()` must
    also be true when the error occurs. `reads` says that a repetition changes nothing.
    """

    busy: bool = True
    lost: bool = True
    known: Callable[[], bool] = lambda: True
    reads: bool = True

    @classmethod
    def request(cls, method: str, *, reads: bool = False) -> Repeatable:
        """Return the rules for a request with this method; `reads` says that the request only reads, even if a POST."""
        reads = reads or method in READING
        return cls(busy=reads or method in IDEMPOTENT, lost=reads, reads=reads)


class Attempts:
    """Counts the failed attempts of one request, and decides whether and when the request is retried."""

    def __init__(self, retry: Retry, repeatable: Repeatable) -> None:
        self._retry = retry
        self._repeatable = repeatable
        self._failures: Counter[Rule] = Counter()
        self._until = math.inf
        self._in_doubt = ""

    def pause_after(self, error: HsparseError) -> float:
        """Return the number of seconds until the next attempt; raise `error` if the request must not be retried.

        The pause is at least the `Retry-After` of a busy server, but at most `PAUSES.longest`; a random part of up to a
        half is added, so that clients do not retry at the same time.
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
        """If the request is a change, add to the message that an earlier attempt may have made the change."""
        if self._in_doubt and not self._repeatable.reads:
            reword(error, f"{error.message} An earlier attempt may have succeeded: {self._in_doubt}")

    def _pause(self, error: HsparseError, before: int) -> float:
        """Return the seconds to wait for a busy server; raise the error if `Retry.patience` would be exceeded."""
        clock = self._retry.clock
        now = clock.monotonic()
        self._until = min(self._until, now + self._retry.patience)
        asked = error.retry_after if isinstance(error, Busy | RateLimited) else 0.0
        pause = min(max(asked, PAUSES.pause(before)), PAUSES.longest) * (1 + jitter(clock) / 2)
        if now + pause > self._until:
            raise error
        return pause
