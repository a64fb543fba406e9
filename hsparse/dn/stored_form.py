"""The stored form of a cached value: how its objects are read, decoded, encoded and put, within a memory budget.

The protocol `StoredForm` stores a value in one or more objects; `SingleObject` stores a value in one object.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from hsparse.compute import compute
from hsparse.concurrency.memory_budget import MemoryBudget
from hsparse.dn.cache import UNRESERVED_BYTES
from hsparse.errors import Corrupt, NotFound, TooLarge
from hsparse.storage.object_store import Buffer, ObjectStore, Stored, current_etag

V = TypeVar("V")


class Codec(Protocol[V]):
    """Encodes and decodes the values of one kind of object. Values are never modified once they are committed."""

    def decode(self, data: bytes) -> V:
        """Return the decoded value; raise `Corrupt` if `data` is not valid."""
        ...

    def encode(self, value: V) -> Buffer:
        """Return the bytes to store for a value."""
        ...

    def nbytes(self, value: V, data: Buffer) -> int:
        """Return the approximate memory of the value in bytes; `data` are the bytes of its object."""
        ...

    @property
    def speed(self) -> int:
        """The codec's speed per byte of the value, as a multiple of the speed that `compute` assumes."""
        ...


@dataclass(slots=True)
class ObjectState(Generic[V]):
    """The last known state of a stored object. `value` is None if only the version is known (`decoded` is False).

    `version` identifies the stored state, for example an etag; it is None if there is no object. A state is `certain`
    if the node owned the object when it read the state; such a state stays valid while the node owns the object.
    """

    value: V | None
    version: Any
    decoded: bool = True
    nbytes: int = 0
    certain: bool = False
    tail: Stored | None = None
    """The last bytes of the object as a range read returns them, if the stored form remembers them."""

    @property
    def is_absent(self) -> bool:
        """Whether the store is known to have no object."""
        return self.decoded and self.value is None


SMALL_VALUE = 4096
"""The largest size, in bytes, of a value that is changed without a reservation, so its bound is not computed.

Decoding a sparse chunk takes at most 1,000 bytes per element; the chunk keeps five. Encoding any other value of this
size takes less than `UNRESERVED_BYTES`.
"""


class Reservation:
    """The part of a memory budget that the users of one object share: the largest amount that any of them requested.

    A task that holds one object's reservation must not wait for another's, or tasks could deadlock. `remedy` ends the
    message of the error about an object that is larger than the whole budget.
    """

    __slots__ = ("_budget", "_name", "_remedy", "_taking", "held")

    def __init__(self, budget: MemoryBudget, name: str, remedy: str) -> None:
        self._budget = budget
        self._name = name
        self._remedy = remedy
        self.held = 0
        self._taking: asyncio.Lock | None = None

    def check(self, nbytes: int) -> None:
        """Raise `TooLarge` if `nbytes` exceeds the whole budget."""
        if nbytes > self._budget.limit:
            raise TooLarge(
                f"{self._name} needs {nbytes} bytes of memory, but this server allows {self._budget.limit}: "
                f"{self._remedy}."
            )

    async def take(self, nbytes: int) -> None:
        """Reserve at least `nbytes` in total; raise the errors of `check` and `MemoryBudget.hold`."""
        if nbytes <= max(UNRESERVED_BYTES, self.held):
            return
        self.check(nbytes)
        if self._taking is None:
            self._taking = asyncio.Lock()
        async with self._taking:
            if nbytes > self.held:
                # Release the held part first: two objects that each held a part and waited for more would deadlock.
                self.give_back()
                self.held = await self._budget.take(nbytes)

    def give_back(self) -> None:
        """Release the whole reservation."""
        if self.held:
            self._budget.give_back(self.held)
            self.held = 0


@dataclass(frozen=True, slots=True)
class ObjectMemory(Generic[V]):
    """The memory that a large object needs while it is in use, besides its memory in the cache; see `reservation`.

    `decode_bound` bounds the bytes for decoding an object; `encode_bound` bounds those for changing and encoding it.
    """

    reservation: Reservation
    decode_bound: Callable[[Buffer], int]
    encode_bound: Callable[[V], int]


class StoredForm(Protocol[V]):
    """How the store keeps one value, in one or more objects. Every change takes effect by a single put or delete.

    `put` and `delete` raise `PreconditionFailed` and change nothing if the store no longer holds `state`.
    """

    key: str

    async def fetch(self) -> Sequence[Stored]:
        """Return the value's objects, or no objects if it is not stored; reserve the memory for decoding them."""
        ...

    def decode(self, found: Sequence[Stored]) -> ObjectState[V]:
        """Return the state of fetched objects; raise `Corrupt` if they hold no valid value. Safe in any thread."""
        ...

    def encode(self, state: ObjectState[V], value: V | None) -> Any:
        """Return the `data` with which `put` or `delete` replaces `state` by `value` or None. Safe in any thread."""
        ...

    @property
    def speed(self) -> int:
        """The speed of the value's codec; see `Codec.speed`."""
        ...

    async def glimpse(self) -> ObjectState[V]:
        """Return the stored state, possibly without its value: the version is enough to replace the value."""
        ...

    async def is_current(self, state: ObjectState[V]) -> bool:
        """Return whether the store still holds `state`, or False if only reading the value again can tell."""
        ...

    async def put(self, state: ObjectState[V], value: V, data: Any) -> ObjectState[V]:
        """Replace `state` by `value`, given `data` from `encode`; return the new state."""
        ...

    async def delete(self, state: ObjectState[V], data: Any) -> ObjectState[V]:
        """Delete the value stored as `state`, given `data` from `encode`; return the new state."""
        ...


async def load_state(form: StoredForm[V]) -> ObjectState[V]:
    """Fetch and decode the value of `form`, and return its state in the store."""
    found = await form.fetch()
    if not found:
        return ObjectState(None, None)
    nbytes = sum([0 if one.decoded is not None else len(one.data) for one in found])
    return await compute(nbytes, form.decode, found)


class SingleObject(Generic[V]):
    """A value stored in the object `key`; the version is its etag. The last `tail` bytes are remembered."""

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
            try:
                bound = self._memory.decode_bound(stored.data)
            except Corrupt as error:
                raise stored.damaged(error) from error
            await self._memory.reservation.take(bound)
        return (stored,)

    def decode(self, found: Sequence[Stored]) -> ObjectState[V]:
        (stored,) = found
        if stored.decoded is not None:
            return ObjectState(stored.decoded, stored.etag, nbytes=self._codec.nbytes(stored.decoded, b""))
        try:
            value = self._codec.decode(stored.data)
        except Corrupt as error:
            raise stored.damaged(error) from error
        return self._state(value, stored.etag, stored.data)

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
