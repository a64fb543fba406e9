"""The cache of a data node: objects in memory within a budget of bytes, the least recently used evicted first.

How an object's value is kept in the store: the protocol `StoredForm`, and `SingleObject`, one object for a value.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from hsparse.compute import compute
from hsparse.concurrency.memory_budget import MemoryBudget
from hsparse.errors import NotFound, TooLarge
from hsparse.storage.object_store import Buffer, ObjectStore, Stored, current_etag

E = TypeVar("E", bound="CacheEntry")
V = TypeVar("V")


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

    def invalidate(self, kept: Callable[[str], bool]) -> None:
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
        return self.beginning_with("")

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

    def beginning_with(self, prefix: str) -> Iterator[CacheEntry]:
        return self._shared.beginning_with(self._prefix + prefix)

    def get(self, key: str) -> Any:
        return self._shared.get(self._prefix + key)

    def peek(self, key: str) -> Any:
        return self._shared.peek(self._prefix + key)

    def drop(self, prefix: str) -> None:
        self._shared.drop(self._prefix + prefix)


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

    @property
    def speed(self) -> int:
        """How many times as fast a byte of the value's memory is changed and encoded as `compute` assumes."""
        ...


@dataclass(slots=True)
class ObjectState(Generic[V]):
    """An object's state in the store when last seen. `value` is unset where only the version is known (not `decoded`).

    `version` is what its form compares: None where there is no object.
    It is `certain` if the node owned the object when it was seen: then it stands as long as the node owns the object.
    """

    value: V | None
    version: Any
    decoded: bool = True
    nbytes: int = 0
    certain: bool = False
    tail: Stored | None = None
    """The last bytes of the object, as a range read has them, where its form remembers them."""

    @property
    def is_absent(self) -> bool:
        """Whether there is no object."""
        return self.decoded and self.value is None


SMALL = 1024 * 1024
"""Bytes that a reservation has for nothing: most objects take less, and few are worked on at a time."""
SMALL_VALUE = 4096
"""Bytes of a sparse chunk that takes less than `SMALL` while it is encoded and decoded: nothing is computed for it.

The most are a thousand for an element, of which the chunk keeps five bytes. Any other value of so few takes less than
`SMALL` to encode it.
"""


class Reservation:
    """What the users of one object hold of a budget together: the most that any asked for, until it is given back.

    Whoever holds some for one object must not wait for another one's: so no two wait for each other. `remedy` ends the
    error about an object that the whole budget has no room for.
    """

    __slots__ = ("_budget", "_name", "_remedy", "_taking", "held")

    def __init__(self, budget: MemoryBudget, name: str, remedy: str) -> None:
        self._budget = budget
        self._name = name
        self._remedy = remedy
        self.held = 0
        self._taking: asyncio.Lock | None = None

    def check(self, nbytes: int) -> None:
        """Raise `TooLarge` if the whole budget has no room for so many bytes."""
        if nbytes > self._budget.limit:
            raise TooLarge(
                f"{self._name} takes {nbytes} bytes of memory, of {self._budget.limit} that this server has for it: "
                f"{self._remedy}."
            )

    async def take(self, nbytes: int) -> None:
        """Hold at least `nbytes`; raises as `check` and `MemoryBudget.hold`."""
        if nbytes <= max(SMALL, self.held):
            return
        self.check(nbytes)
        if self._taking is None:
            self._taking = asyncio.Lock()
        async with self._taking:
            if nbytes > self.held:
                # What is held goes first: two that held some and waited for more would wait for each other.
                self.give_back()
                self.held = await self._budget.take(nbytes)

    def give_back(self) -> None:
        """Hold nothing any more."""
        if self.held:
            self._budget.give_back(self.held)
            self.held = 0


@dataclass(frozen=True, slots=True)
class ObjectMemory(Generic[V]):
    """What a large object takes while it is used, beside the cache: `reservation` holds it, before it is taken.

    `decode_bound` is of the object's bytes, `encode_bound` of a value that is changed and encoded again.
    """

    reservation: Reservation
    decode_bound: Callable[[Buffer], int]
    encode_bound: Callable[[V], int]


class StoredForm(Protocol[V]):
    """The objects of the store that hold one value. Every change has one put or delete by which it is decided.

    `put` and `delete` raise `PreconditionFailed` if the store does not hold `state` any more; then nothing has changed.
    """

    key: str

    async def fetch(self) -> Sequence[Stored]:
        """Read what has the value, nothing if there is none; memory for it is taken."""
        ...

    def decode(self, found: Sequence[Stored]) -> ObjectState[V]:
        """Return the state that was fetched, in any thread; `Corrupt` when the bytes are no value."""
        ...

    def encode(self, state: ObjectState[V], value: V | None) -> Any:
        """Return what to put in place of `state` for a value that was changed, in any thread; None: to delete it."""
        ...

    @property
    def speed(self) -> int:
        """See `Codec`."""
        ...

    async def glimpse(self) -> ObjectState[V]:
        """Read as little as is needed to replace the value, whatever it is."""
        ...

    async def is_current(self, state: ObjectState[V]) -> bool:
        """Say whether the store holds a state that was seen before; False if reading it again is the way to know."""
        ...

    async def put(self, state: ObjectState[V], value: V, data: Any) -> ObjectState[V]:
        """Replace `state` by a value, of which `data` is what `encode` returned; return the new state."""
        ...

    async def delete(self, state: ObjectState[V], data: Any) -> ObjectState[V]:
        """Delete the object in the state that was seen, as `encode` has said; `PreconditionFailed` in another one."""
        ...


async def load_state(form: StoredForm[V]) -> ObjectState[V]:
    """Return the state in the store."""
    found = await form.fetch()
    if not found:
        return ObjectState(None, None)
    nbytes = sum([0 if one.decoded is not None else len(one.data) for one in found])
    return await compute(nbytes, form.decode, found)


class SingleObject(Generic[V]):
    """The object of `key` has the value's bytes; the version is its etag. The last `tail` bytes are remembered."""

    __slots__ = ("_codec", "_memory", "_store", "_tail", "key", "speed")

    def __init__(
        self,
        key: str,
        store: ObjectStore,
        codec: Codec[V],
        tail: int = 0,
        memory: ObjectMemory[V] | None = None,
    ) -> None:
        self.key = key
        self._memory = memory
        self._tail = tail
        self._store = store
        self._codec = codec
        self.speed = codec.speed

    async def fetch(self) -> Sequence[Stored]:
        try:
            stored = await self._store.get(self.key)
        except NotFound:
            return ()
        if self._memory is not None and stored.decoded is None:
            await self._memory.reservation.take(self._memory.decode_bound(stored.data))
        return (stored,)

    def decode(self, found: Sequence[Stored]) -> ObjectState[V]:
        (stored,) = found
        if stored.decoded is not None:
            return ObjectState(stored.decoded, stored.etag, nbytes=self._codec.nbytes(stored.decoded, b""))
        return self._state(self._codec.decode(stored.data), stored.etag, stored.data)

    def encode(self, state: ObjectState[V], value: V | None) -> Any:
        return None if value is None else self._codec.encode(value)

    async def glimpse(self) -> ObjectState[V]:
        etag = await current_etag(self._store, self.key)
        return ObjectState(None, etag, decoded=etag is None)

    async def is_current(self, state: ObjectState[V]) -> bool:
        etag: str | None = state.version
        return await current_etag(self._store, self.key) == etag

    async def put(self, state: ObjectState[V], value: V, data: Buffer) -> ObjectState[V]:
        if state.version is None:
            etag = await self._store.put_if_absent(self.key, data)
        else:
            etag = await self._store.put_if_match(self.key, data, state.version)
        return self._state(value, etag, data)

    def _state(self, value: V, etag: str, data: Buffer) -> ObjectState[V]:
        nbytes, tail = self._codec.nbytes(value, data), None
        if self._tail:
            view = memoryview(data).cast("B")
            tail = Stored(bytes(view[-self._tail :]), etag, view.nbytes)
            nbytes += self._tail
        return ObjectState(value, etag, nbytes=nbytes, tail=tail)

    async def delete(self, state: ObjectState[V], data: Any) -> ObjectState[V]:
        if state.version is not None:
            await self._store.delete_if_match(self.key, state.version)
        return ObjectState(None, None)
