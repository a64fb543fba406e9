"""Fences refuse chunk operations with a stale plan: planned before a shrink of the extent, or for a deleted dataset.

Deleted names are remembered for a while, so that they are answered with 410 (`Gone`) and not with 404 (`NotFound`).

What came after a write that is sent again: it is put before that, since another client may have been told so.

A write whose owner was lost may have been carried out there, and may have been read. When it reaches the next owner,
that one may have carried out others meanwhile. Applied last, the write would undo them: its value would be read, then
another one, then its value again. So it is applied first, and after it, once more, the changes of the chunk that this
node accepted since its client had asked for it: that is an order in which they may have been carried out anyway.

Such writes come soon after a membership has changed. Changes are remembered for that long, and else nothing is.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from hsparse.clock import Clock
from hsparse.dn.cached_object import Encoded
from hsparse.dn.membership.ownership import Doubt, Ownership
from hsparse.errors import Gone, HsparseError, Moved, NotFound
from hsparse.format.chunk_spec import ChunkSpec

MAX_FENCES = 100_000
"""The most datasets that are remembered. The generation of a forgotten one is learnt again from its record.

A deleted one has none: what was planned before its deletion, and comes after 100,000 others, is carried out again, and
the chunks stay until a sweep. A chunk may be written without a record, so a missing one refuses nothing.
"""


class Fences:
    """The fencing token of each dataset: the newest generation seen, None when it was deleted.

    `generation_of` reads a dataset's generation from its stored record, so that a restarted node accepts no operation
    that it had refused before. A node that does not hear of all shrinks reads it each time.
    """

    def __init__(
        self,
        generation_of: Callable[[str], Awaitable[int]],
        limit: int = MAX_FENCES,
        hears_all: Callable[[], bool] = lambda: True,
    ) -> None:
        self._generation_of = generation_of
        self._limit = limit
        self._hears_all = hears_all
        self._newest: OrderedDict[str, int | None] = OrderedDict()
        self._unread: set[str] = set()
        """Datasets whose generation a message has told, and whose record was not read."""

    async def learn(self, dataset: str) -> None:
        """Learn the dataset's generation; to be awaited before its chunks are changed.

        Raises what `generation_of` raises, each time: the record forbids changes.
        """
        if dataset not in self._newest or dataset in self._unread or not self._hears_all():
            generation = await self._generation_of(dataset)
            self._raise(dataset, generation)
            self._unread.discard(dataset)

    def check(self, spec: ChunkSpec) -> None:
        """Raise `Moved` for an older generation than the newest, `Gone` for a deleted dataset."""
        newest = self._newest.get(spec.dataset, 0)
        if newest is None:
            raise Gone(f"{spec.dataset} was deleted.")
        if spec.generation < newest:
            raise Moved(f"The extent of {spec.dataset} was shrunk in the meantime.")
        if spec.generation > newest:
            if spec.dataset not in self._newest:
                self._unread.add(spec.dataset)
            self._raise(spec.dataset, spec.generation)

    def forget(self) -> None:
        """Forget all fences: this node was no member for a while, and was not told of some."""
        self._newest.clear()
        self._unread.clear()

    def refuse_deleted(self, dataset: str) -> None:
        """Refuse everything about a deleted dataset from now on."""
        self._remember(dataset, None)
        self._unread.discard(dataset)

    def _raise(self, dataset: str, generation: int) -> None:
        """Remember a generation, unless a newer one, or the dataset's deletion, was seen meanwhile."""
        known = self._newest.get(dataset, 0)
        self._remember(dataset, None if known is None else max(known, generation))

    def _remember(self, dataset: str, generation: int | None) -> None:
        self._newest[dataset] = generation
        self._newest.move_to_end(dataset)
        if len(self._newest) > self._limit:
            forgotten, _ = self._newest.popitem(last=False)
            self._unread.discard(forgotten)


MAX_NAMES = 100_000


class DeletedNames:
    """Names of deleted objects, attributes and links; the oldest are forgotten first.

    Hashes are kept in their place, as names may be long: if two are the same, a `NotFound` becomes a `Gone`.
    """

    def __init__(self, limit: int = MAX_NAMES) -> None:
        self._limit = limit
        self._names: OrderedDict[int, None] = OrderedDict()

    def add(self, *name: str) -> None:
        """Remember a deleted name."""
        self._names[hash(name)] = None
        if len(self._names) > self._limit:
            self._names.popitem(last=False)

    def remove(self, *name: str) -> None:
        """Forget a name that exists again."""
        self._names.pop(hash(name), None)

    def missing(self, sentence: str, *name: str) -> HsparseError:
        """Return the error for a missing name, the subject `sentence`: `Gone` when it was deleted, else `NotFound`."""
        return (
            Gone(f"{sentence} was deleted.")
            if hash(name) in self._names
            else NotFound(f"{sentence} does not exist.")
        )


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
