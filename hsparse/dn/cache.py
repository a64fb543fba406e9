"""The cache of a data node: objects in memory within a budget of bytes, the least recently used evicted first.

Group commit: the changes of an object that share a put, and what they make of its value.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar

from hsparse.concurrency.request_trace import RequestTrace
from hsparse.errors import HsparseError
from hsparse.storage.object_store import Buffer

E = TypeVar("E", bound="CacheEntry")


class CacheEntry(Protocol):
    """An entry of the cache: a cached object, a chunk map, or a file-backed chunk."""

    key: str

    @property
    def busy(self) -> bool:
        """Whether it must stay in memory."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes of memory that evicting it would free."""
        ...

    def doubt(self, kept: Callable[[str], bool]) -> None:
        """Use nothing of this entry unconfirmed, unless this node owned its name all the time."""
        ...

    async def settle(self) -> None:
        """Wait until changes accepted before this call are stored or have failed."""
        ...

    async def drain(self) -> None:
        """Wait until nothing is under way."""
        ...


class Cache:
    """Entries by key. An entry in use is never dropped, so that a key never has two."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self._entries: OrderedDict[str, Any] = OrderedDict()
        self._sizes: dict[str, int] = {}
        self._users: dict[str, int] = {}
        self._left_busy: set[str] = set()
        """Entries that were busy still when their last user left: what they take is known later."""
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[CacheEntry]:
        return iter(list(self._entries.values()))

    @contextmanager
    def use(self, key: str, make: Callable[[], E]) -> Iterator[E]:
        """Yield the entry of `key`, made when it is not there; it stays at least while it is used."""
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = make()
            self._sizes[key] = 0
        else:
            self._entries.move_to_end(key)
        self._users[key] = self._users.get(key, 0) + 1
        try:
            yield entry
        finally:
            self._users[key] -= 1
            if not self._users[key]:
                del self._users[key]
                if entry.busy:
                    self._left_busy.add(key)
            self._measure(key)
            if self._left_busy:
                self._measure_left()

    def beginning_with(self, prefix: str) -> Iterator[CacheEntry]:
        """Return the entries whose keys begin with `prefix`."""
        return iter([entry for key, entry in self._entries.items() if key.startswith(prefix)])

    def get(self, key: str) -> Any:
        """Return the entry of `key`, or None, without waiting; it counts as just used."""
        entry = self._entries.get(key)
        if entry is not None:
            self._entries.move_to_end(key)
        return entry

    def peek(self, key: str) -> Any:
        """Return the entry of `key`, or None, as if it was not used."""
        return self._entries.get(key)

    def drop(self, prefix: str) -> None:
        """Drop idle entries whose keys begin with `prefix`."""
        for key in [key for key in self._entries if key.startswith(prefix)]:
            self._evict(key)

    def _measure_left(self) -> None:
        """Measure the entries that were left busy and are not any more."""
        ended = {key for key in self._left_busy if key not in self._entries or not self._entries[key].busy}
        self._left_busy -= ended
        for key in ended:
            self._measure(key)

    def _measure(self, key: str) -> None:
        if (entry := self._entries.get(key)) is not None:
            nbytes = entry.nbytes
            self.nbytes += nbytes - self._sizes[key]
            self._sizes[key] = nbytes
        for _ in range(len(self._entries)):
            if self.nbytes <= self.budget:
                return
            oldest = next(iter(self._entries))
            if not self._evict(oldest):
                self._entries.move_to_end(oldest)

    def _evict(self, key: str) -> bool:
        if key in self._users or self._entries[key].busy:
            return False
        del self._entries[key]
        self.nbytes -= self._sizes.pop(key)
        return True


class BucketCache(Cache):
    """The entries of one bucket in a cache that several share: one budget, one order of eviction."""

    def __init__(self, shared: Cache, bucket: str) -> None:
        super().__init__(shared.budget)
        self._shared = shared
        self._prefix = f"{bucket}/"

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __iter__(self) -> Iterator[CacheEntry]:
        return self._shared.beginning_with(self._prefix)

    @property
    def nbytes(self) -> int:
        """Bytes of the entries of all buckets."""
        return self._shared.nbytes

    @nbytes.setter
    def nbytes(self, value: int) -> None:
        """Only the shared cache counts."""

    @contextmanager
    def use(self, key: str, make: Callable[[], E]) -> Iterator[E]:
        with self._shared.use(self._prefix + key, make) as entry:
            yield entry

    def get(self, key: str) -> Any:
        return self._shared.get(self._prefix + key)

    def peek(self, key: str) -> Any:
        return self._shared.peek(self._prefix + key)

    def drop(self, prefix: str) -> None:
        self._shared.drop(self._prefix + prefix)


V = TypeVar("V")


class Codec(Protocol[V]):
    """Bytes <-> value of one kind of object. Values are never modified once they are committed."""

    def decode(self, data: bytes) -> V:
        """Return the value; `Corrupt` when the bytes are not one."""
        ...

    def encode(self, value: V) -> Buffer:
        """Return the object's bytes."""
        ...

    def nbytes(self, value: V, data: Buffer) -> int:
        """Return about how many bytes of memory the value takes; `data` are those of its object."""
        ...

    def work(self, nbytes: int) -> int:
        """Return the work of changing and encoding a value of `nbytes` of memory, in bytes, see `OffloadPool.run`."""
        ...


class Base(Enum):
    """What a change needs of the value it is applied to, when that is not in memory."""

    NEEDED = "needed"
    """The value: it is loaded first."""
    ABSENT = "absent"
    """Most likely there is no object: try that first, load only when the put is refused."""
    IGNORED = "ignored"
    """Nothing: the change replaces any value, and never raises."""


@dataclass(frozen=True, slots=True)
class Encoded(Generic[V]):
    """A value that a change returns together with its encoded bytes; the codec does not encode it."""

    value: V
    data: Buffer


@dataclass(slots=True)
class WaitingChange(Generic[V]):
    """A change that waits for the next put: its result goes to `done`. It was accepted in `term`."""

    change: Callable[[V | None], tuple[V | Encoded[V] | None, Any]]
    weight: int
    base: Base
    done: asyncio.Future[Any]
    trace: RequestTrace | None
    term: int


MOST_PAUSE = 0.02
"""The most seconds after a group in which the next one waits for others."""


class GroupPause:
    """How long a group waits before its put, for the requests that were answered with the last one.

    Clients that send one request after the other come back together. A put that begins with the first of them leaves
    the others to the next put, and each of them waits for two. So a group waits until it has as many requests as were
    there lately, but only as long after the last put as that took.
    """

    __slots__ = ("_began", "_enough", "_requests", "_until")

    def __init__(self) -> None:
        self._requests = 0
        """How many were answered with the last group, or waited then."""
        self._until = 0.0
        """The time of the event loop at which they are not waited for any more."""
        self._began = 0.0
        self._enough: asyncio.Future[None] | None = None

    def begin(self, changes: Iterable[WaitingChange[Any]]) -> None:
        """Take note of a group that is stored, the one that was waited for last, with the changes that wait by now."""
        self._requests = len({id(one.trace) for one in changes if one.trace is not None})
        now = asyncio.get_running_loop().time()
        self._until = now + min(now - self._began, MOST_PAUSE)

    def arrived(self, count: int) -> None:
        """End the pause if `count` changes are enough."""
        if self._enough is not None and count >= self._requests and not self._enough.done():
            self._enough.set_result(None)

    async def wait(self, count: int) -> None:
        """Return when enough changes wait, of which there are `count` now, or nobody is waited for any more."""
        loop = asyncio.get_running_loop()
        left = self._until - loop.time()
        if count < self._requests and left > 0:
            self._enough = loop.create_future()
            await asyncio.wait([self._enough], timeout=left)
            self._enough = None
        self._began = loop.time()


@dataclass(slots=True)
class AppliedGroup(Generic[V]):
    """A group applied to a value: the new value, its bytes (None: nothing to put), a result a change."""

    value: V | None
    data: Buffer | None
    results: list[Any] = field(default_factory=list)


def apply_group(
    group: Sequence[WaitingChange[V]], value: V | None, encode: Callable[[V], Buffer]
) -> AppliedGroup[V]:
    """Apply the changes to a value one after another; what one raises is its result, and changes nothing."""
    before = value
    data: Buffer | None = None
    results: list[Any] = []
    # No future stays in this frame, which an error may have.
    for change in [waiting.change for waiting in group]:
        try:
            new, result = change(value)
        except HsparseError as error:
            # Without its traceback, whose frames have this list: such a cycle keeps the value until a collection.
            result = error.with_traceback(None)
        else:
            if isinstance(new, Encoded):
                value, data = new.value, new.data
            elif new is not value:
                value, data = new, None
        results.append(result)
    changed = value is not None and (value is not before or before is None)
    if data is None and changed and value is not None:
        data = encode(value)
    return AppliedGroup(value, data, results)


def answer_group(
    group: list[WaitingChange[V]], results: list[Any], waiting: Iterable[WaitingChange[V]], pause: GroupPause
) -> None:
    """Give each change of a stored group its result, and note in `pause` who else is `waiting`.

    Both lists are emptied: an error has the frames that hold them, and would have itself, with all that was put.
    """
    pause.begin([*group, *waiting])
    for change, result in zip(group, results, strict=True):
        if change.done.done():
            continue
        if isinstance(result, BaseException):
            change.done.set_exception(result)
        else:
            change.done.set_result(result)
    group.clear()
    results.clear()


def count_commit(group: list[WaitingChange[Any]]) -> None:
    """Count a group that was stored, for its first change's request."""
    trace = group[0].trace
    if trace is not None:
        trace.commits += 1
        trace.changes += len(group)


def count_conflict(group: Iterable[WaitingChange[Any]]) -> None:
    """Count a refused put in the trace of each request that waits for it."""
    for waiting in group:
        if waiting.trace is not None:
            waiting.trace.conflicts += 1
