"""What came after a write that is sent again: it is put before that, since another client may have been told so.

A write whose owner was lost may have been carried out there, and may have been read. When it reaches the next owner,
that one may have carried out others meanwhile. Applied last, the write would undo them: its value would be read, then
another one, then its value again. So it is applied first, and after it, once more, the changes of the chunk that this
node accepted since its client had asked for it: that is an order in which they may have been carried out anyway.

No idempotency key can do this: the chunk object of a dense dataset has no place for one, and the node that has carried
the write out is gone. To refuse the write would fail a request because a node went.

Such writes come soon after a membership has changed. Changes are logged for that long, and else nothing is.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hsparse.clock import Clock
from hsparse.dn.cached_object import Encoded
from hsparse.dn.membership.ownership import Accepted

WINDOW = 60.0
"""Seconds after a new membership for which changes are logged: twice as long as a write is sent again."""
MEMORY = 32 * 2**20
"""The most bytes that logged changes write; beyond that the oldest ones are forgotten."""

Change = Callable[[Any], tuple[Any, Any]]


@dataclass(slots=True, eq=False)
class LoggedChange:
    """A change of a chunk, to be applied before others in the log if it was sent again."""

    log: RedoLog
    key: str
    change: Change
    nbytes: int
    accepted: Accepted
    time: float
    """When it was accepted or, if it was sent again, asked for, by this node's monotonic clock."""
    lapses: int
    """How often the log had forgotten changes by then."""
    later: list[LoggedChange] | None = None
    """The changes to apply once more after it, once it was applied itself."""

    def __call__(self, value: Any) -> tuple[Any, Any]:
        new, result = self.change(value)
        if self.later is None:
            self.later = self.log.insert(self)
        for other in self.later:
            new, _ = other.change(new.value if isinstance(new, Encoded) else new)
        return new, result


class RedoLog:
    """The changes of chunks that this node accepted lately, by key and in their order.

    A change is called in any thread, but those of one key one after another.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._epoch = 0
        self._until = 0.0
        self._changes: OrderedDict[str, list[LoggedChange]] = OrderedDict()
        """The changes of each key; the keys in the order of their last change."""
        self._nbytes = 0
        self._lapses = 0
        self._lock = threading.Lock()

    def logged(self, key: str, change: Change, nbytes: int, accepted: Accepted) -> Change:
        """Return what to apply for a change that was accepted, which writes `nbytes` bytes."""
        if not accepted.epoch:
            return change
        now = self._clock.monotonic()
        if accepted.epoch > self._epoch:
            self._epoch, self._until = accepted.epoch, now + WINDOW
        elif now > self._until:
            self.forget(lambda key: False)
            return change
        time = now if accepted.resent is None else accepted.resent.asked
        return LoggedChange(self, key, change, nbytes, accepted, time, self._lapses)

    def insert(self, change: LoggedChange) -> list[LoggedChange]:
        """Log a change that was applied, and return those that come after it."""
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
            if change.lapses == self._lapses:  # or another node may have changed the chunk between
                logged.insert(at, change)
                self._nbytes += change.nbytes
            while self._nbytes > MEMORY:
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
        """Forget the changes of the keys that another node may have changed since."""
        with self._lock:
            self._lapses += 1
            for key in [key for key in self._changes if not kept(key)]:
                self._nbytes -= sum(one.nbytes for one in self._changes.pop(key))
