"""Redo log: apply a retried write before the changes that followed it.

When the owner of a chunk is lost, clients send their unanswered writes to the next owner. The lost owner may have
applied such a write, and a client may have read its value. If the new owner has applied newer writes meanwhile and
applied the retried write last, readers would see the retried value, a newer value, and the retried value again. The new
owner therefore applies the retried write first, and then reapplies the changes of that chunk that it accepted after the
write was requested. The changes could have happened in this order without the failure.

An idempotency key cannot solve this: dense chunk objects have no room for one, and the node that applied the write is
gone. Changes are logged only for `LOGGED_SECONDS` seconds after a membership change, because retries arrive only then.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hsparse.clock import Clock
from hsparse.dn.cached_object import Encoded
from hsparse.dn.membership.member_ownership import Accepted

LOGGED_SECONDS = 60.0
"""Seconds after a membership change for which changes are logged: twice the time for which a write is retried."""
MAX_LOG_BYTES = 32 * 2**20
"""The most bytes of all logged changes; beyond it, the changes of the least recently changed chunks are dropped."""

Change = Callable[[Any], tuple[Any, Any]]


@dataclass(slots=True, eq=False)
class LoggedChange:
    """A change of a chunk that can be logged; if a client has retried it, it is applied before later logged changes."""

    log: RedoLog
    key: str
    change: Change
    nbytes: int
    accepted: Accepted
    time: float
    """The time at which the change was accepted or, if it was retried, requested, on the monotonic clock."""
    lapses: int
    """The number of calls of `RedoLog.forget` before this change was accepted."""
    later: list[LoggedChange] | None = None
    """The changes to reapply after this change, or None if this change has not been applied yet."""

    def __call__(self, value: Any) -> tuple[Any, Any]:
        new, result = self.change(value)
        if self.later is None:
            self.later = self.log.insert(self)
        for other in self.later:
            new, _ = other.change(new.value if isinstance(new, Encoded) else new)
        return new, result


class RedoLog:
    """The changes of chunks that this node accepted recently, by key, in the order of their application.

    A change may run in any thread; changes of one key run one after another.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._epoch = 0
        self._until = 0.0
        self._changes: OrderedDict[str, list[LoggedChange]] = OrderedDict()
        """The changes by key; keys are in the order of their last change."""
        self._nbytes = 0
        self._lapses = 0
        self._lock = threading.Lock()

    def logged(self, key: str, change: Change, nbytes: int, accepted: Accepted) -> Change:
        """Return the change to apply for an accepted change of `nbytes` bytes; it is logged if retries may arrive."""
        if not accepted.epoch:
            return change
        now = self._clock.monotonic()
        if accepted.epoch > self._epoch:
            self._epoch, self._until = accepted.epoch, now + LOGGED_SECONDS
        elif now > self._until:
            self.forget(lambda key: False)
            return change
        time = now if accepted.resent is None else accepted.resent.asked
        return LoggedChange(self, key, change, nbytes, accepted, time, self._lapses)

    def insert(self, change: LoggedChange) -> list[LoggedChange]:
        """Log a change that was applied, and return the changes that follow it."""
        with self._lock:
            logged = self._changes.setdefault(change.key, [])
            self._changes.move_to_end(change.key)
            at, resent = len(logged), change.accepted.resent
            if resent is not None:
                while (
                    at and logged[at - 1].accepted.epoch > resent.epoch and logged[at - 1].time > resent.asked
                ):
                    at -= 1
            later = logged[at:]
            if change.lapses == self._lapses:  # else another node may have changed the chunk in between
                logged.insert(at, change)
                self._nbytes += change.nbytes
            while self._nbytes > MAX_LOG_BYTES:
                _, oldest = self._changes.popitem(last=False)
                self._nbytes -= sum(one.nbytes for one in oldest)
            return later

    def remove(self, change: Change) -> None:
        """Forget a change that was refused."""
        if not isinstance(change, LoggedChange):
            return
        with self._lock:
            if change in (logged := self._changes.get(change.key, [])):
                logged.remove(change)
                self._nbytes -= change.nbytes

    def forget(self, kept: Callable[[str], bool]) -> None:
        """Forget the changes of all keys, except keys for which `kept` says that this node has always owned them."""
        with self._lock:
            self._lapses += 1
            for key in [key for key in self._changes if not kept(key)]:
                self._nbytes -= sum(one.nbytes for one in self._changes.pop(key))
