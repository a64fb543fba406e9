"""What came after a write that is sent again: it is put before that, since another client may have been told so.

A write whose owner was lost may have been carried out there, and may have been read. When it reaches the next owner,
that one may have carried out others meanwhile. Applied last, the write would undo them: its value would be read, then
another one, then its value again. So it is applied first, and after it, once more, the changes of the chunk that this
node accepted since its client had asked for it: that is an order in which they may have been carried out anyway.

Such writes come soon after a membership has changed. Changes are remembered for that long, and else nothing is.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hsparse.clock import Clock
from hsparse.dn.group_commit import Encoded
from hsparse.dn.membership.ownership import Doubt, Ownership

WINDOW = 60.0
"""Seconds after a new membership for which changes are remembered: twice as long as a write is sent again."""
MEMORY = 32 * 2**20
"""The most bytes that remembered changes write; beyond that the oldest ones are forgotten."""

Change = Callable[[Any], tuple[Any, Any]]


@dataclass(slots=True, eq=False)
class OrderedChange:
    """A change of a chunk, to be applied before others that are remembered if it is doubtful."""

    later: LaterChanges
    key: str
    change: Change
    nbytes: int
    epoch: int
    """The epoch in which it was accepted."""
    time: float
    """When it was accepted or, if it is doubtful, asked for, by this node's monotonic clock."""
    doubt: Doubt | None
    forgotten: int
    """How often this node had forgotten changes by then."""
    after: list[OrderedChange] | None = None
    """The changes to apply once more after it, once it was applied itself."""

    def __call__(self, value: Any) -> tuple[Any, Any]:
        new, result = self.change(value)
        if self.after is None:
            self.after = self.later.place(self)
        for other in self.after:
            new, _ = other.change(new.value if isinstance(new, Encoded) else new)
        return new, result


class LaterChanges:
    """The changes of chunks that this node accepted lately, by key and in their order.

    A change is called in any thread, but those of one key one after another.
    """

    def __init__(self, clock: Clock, ownership: Ownership) -> None:
        self._clock = clock
        self._ownership = ownership
        self._epoch = 0
        self._until = 0.0
        self._known: OrderedDict[str, list[OrderedChange]] = OrderedDict()
        """The changes of each key; the keys in the order of their last change."""
        self._nbytes = 0
        self._forgotten = 0
        self._lock = threading.Lock()

    def ordered(self, key: str, change: Change, nbytes: int) -> Change:
        """Return what to apply for a change that is accepted now, which writes `nbytes` bytes."""
        doubt, epoch = self._ownership.doubt(), self._ownership.change_epoch
        if not epoch:
            return change
        now = self._clock.monotonic()
        if epoch != self._epoch:
            self._epoch, self._until = epoch, now + WINDOW
        elif now > self._until:
            self.doubt(lambda key: False)
            return change
        time = now if doubt is None else doubt.asked
        return OrderedChange(self, key, change, nbytes, epoch, time, doubt, self._forgotten)

    def place(self, change: OrderedChange) -> list[OrderedChange]:
        """Remember a change that was applied, and return those that come after it."""
        with self._lock:
            return self._place(change)

    def _place(self, change: OrderedChange) -> list[OrderedChange]:
        known = self._known.setdefault(change.key, [])
        self._known.move_to_end(change.key)
        at, doubt = len(known), change.doubt
        if doubt is not None:
            while at and known[at - 1].epoch > doubt.epoch and known[at - 1].time > doubt.asked:
                at -= 1
        after = known[at:]
        if change.forgotten != self._forgotten:  # another node may have changed the chunk between
            return after
        known.insert(at, change)
        self._nbytes += change.nbytes
        while self._nbytes > MEMORY:
            _, oldest = self._known.popitem(last=False)
            self._nbytes -= sum(one.nbytes for one in oldest)
        return after

    def failed(self, change: Change) -> None:
        """Forget a change that was refused."""
        if not isinstance(change, OrderedChange):
            return
        with self._lock:
            if change in (known := self._known.get(change.key, [])):
                known.remove(change)
                self._nbytes -= change.nbytes

    def doubt(self, kept: Callable[[str], bool]) -> None:
        """Forget the changes of the keys that another node may have changed since."""
        with self._lock:
            self._forgotten += 1
            for key in [key for key in self._known if not kept(key)]:
                self._nbytes -= sum(one.nbytes for one in self._known.pop(key))
