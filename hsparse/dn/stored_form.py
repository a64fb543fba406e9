"""How an object's value is kept in the store: the protocol `StoredForm`, and `SingleObject`, one object for a value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from hsparse.concurrency.memory_budget import Reservation
from hsparse.concurrency.offload import OffloadPool
from hsparse.dn.cache import Codec
from hsparse.errors import NotFound
from hsparse.storage.object_store import Buffer, ObjectStore, Stored, current_etag

V = TypeVar("V")


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

    def encode(self, value: V) -> Buffer:
        """Return the bytes to put for a value that was changed."""
        ...

    def work(self, nbytes: int) -> int:
        """Return the work of changing and encoding a value of `nbytes` of memory, in bytes, see `OffloadPool.run`."""
        ...

    async def load(self) -> ObjectState[V]:
        """Read the value; `Corrupt` when the bytes are none."""
        ...

    async def glimpse(self) -> ObjectState[V]:
        """Read as little as is needed to replace the value, whatever it is."""
        ...

    async def is_current(self, state: ObjectState[V]) -> bool:
        """Say whether the store holds a state that was seen before; False if reading it again is the way to know."""
        ...

    async def put(self, state: ObjectState[V], value: V, data: Buffer) -> ObjectState[V]:
        """Replace `state` by a value, of which `data` is what `encode` returned; return the new state."""
        ...

    async def delete(self, state: ObjectState[V], *, checked: bool) -> ObjectState[V]:
        """Delete the object; if not `checked`, whatever its state may be."""
        ...


class SingleObject(Generic[V]):
    """The object of `key` has the value's bytes; the version is its etag. The last `tail` bytes are remembered."""

    __slots__ = ("_codec", "_memory", "_store", "_tail", "_workers", "key")

    def __init__(
        self,
        key: str,
        store: ObjectStore,
        codec: Codec[V],
        workers: OffloadPool,
        tail: int = 0,
        memory: ObjectMemory[V] | None = None,
    ) -> None:
        self.key = key
        self._memory = memory
        self._tail = tail
        self._store = store
        self._codec = codec
        self._workers = workers

    def encode(self, value: V) -> Buffer:
        return self._codec.encode(value)

    def work(self, nbytes: int) -> int:
        return self._codec.work(nbytes)

    async def load(self) -> ObjectState[V]:
        try:
            stored = await self._store.get(self.key)
        except NotFound:
            return ObjectState(None, None)
        if self._memory is not None:
            await self._memory.reservation.take(self._memory.decode_bound(stored.data))
        value = await self._workers.run(len(stored.data), self._codec.decode, stored.data)
        return self._state(value, stored.etag, stored.data)

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

    async def delete(self, state: ObjectState[V], *, checked: bool) -> ObjectState[V]:
        if state.version is not None and checked:
            await self._store.delete_if_match(self.key, state.version)
        else:
            await self._store.delete(self.key)
        return ObjectState(None, None)
