"""The stored objects of a record: one object or, for a large record, a base and a delta.

A *base* is the record at an earlier time, stored at the record's key. It names its delta by a random token, which is
part of the delta's key. The *delta* has the changes since then; each change puts it again, conditional on its etag.
When these puts have written as many bytes as the base has, a new base with all changes and a new delta are stored:

1. The old delta is *sealed*, conditional on its etag: nothing can be added to it any more. 2. The new delta is stored,
empty, under a token that no base has named before. 3. The new base replaces the old base, conditional on the old base's
etag. This put decides. 4. The old delta is deleted.

A deletion has the same steps without a new base and delta. A base thus changes only after its delta is sealed, a change
fails unless its base is the newest, and a stop between two steps leaves the record in its old or its new state. A node
that finds a sealed delta reads it, and stores a new base with the next change. A delta that is left over is never read,
because no base names it.

A delta is JSON:

    {"base": token, "sealed": false, "written": 5120, "fields": {"removed": [...], "put": {...}},
     "links": {"removed": [...], "put": {...}}, "attributes": {"removed": [...], "put": {...}}}

In each dict, the names in `removed` are removed first. Then the entries in `put` replace others or are appended.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from hsparse.attempts import MAX_READ_ATTEMPTS
from hsparse.clock import Clock
from hsparse.concurrency.memory_budget import MemoryBudget
from hsparse.dn.record_form import RecordCodec, add_checksum, check_checksum, memory_of_json, parse_json
from hsparse.dn.stored_form import ObjectState, load_state
from hsparse.errors import Busy, Corrupt, HsparseError, NotFound, PreconditionFailed
from hsparse.model.ids import delta_key
from hsparse.storage.object_store import Buffer, ObjectStore, Stored, current_etag
from hsparse.wire.message import Record

TABLES = ("links", "attributes")
"""The dicts of a record that may be long."""


@dataclass(frozen=True, slots=True)
class EntryChanges:
    """The changes of a dict: names to remove first, then entries to put."""

    removed: dict[str, None] = field(default_factory=dict)
    put: dict[str, Any] = field(default_factory=dict)

    def then(self, before: Record, after: Record, names: Iterable[str]) -> EntryChanges:
        """Return these changes followed by the changes of the entries `names` from `before` to `after`."""
        removed, put = dict(self.removed), dict(self.put)
        for name in names:
            if name in after:
                put[name] = after[name]
            elif name in before:
                put.pop(name, None)
                removed[name] = None
        return EntryChanges(removed, put)

    def apply(self, entries: Record) -> None:
        """Apply the changes to a dict in place."""
        for name in self.removed:
            entries.pop(name, None)
        entries.update(self.put)

    def to_json(self) -> Record:
        return {"removed": list(self.removed), "put": self.put}


@dataclass(frozen=True, slots=True)
class RecordDelta:
    """The changes of a record since its base was stored; `token` is the delta's name in the base.

    `size` is the approximate size of the delta in bytes, and `written` the total size of all its stored states.
    """

    token: str
    base_size: int
    size: int = 0
    written: int = 0
    fields: EntryChanges = field(default_factory=EntryChanges)
    links: EntryChanges = field(default_factory=EntryChanges)
    attributes: EntryChanges = field(default_factory=EntryChanges)

    def then(self, before: Record, after: Record, table: str, names: Iterable[str]) -> RecordDelta | None:
        """Return the delta extended by the change from `before` to `after`; equal values must be identical objects.

        `names` are the entries of the dict `table` that may differ. Return None if the base must be stored again: all
        puts of the delta together would exceed the base's size, or a long dict other than `table` differs.
        """
        names = tuple(names)
        changes = {"links": self.links, "attributes": self.attributes}
        for long in TABLES:
            if before.get(long) is after.get(long):
                continue
            if long != table or long not in after:
                return None
            changes[long] = changes[long].then(before.get(long) or {}, after[long], names)
        fields = [
            name
            for name in {**before, **after}
            if name not in TABLES and before.get(name, self) is not after.get(name, self)
        ]
        size = self.size + _size(after.get(table) or {}, names) + _size(after, fields)
        if self.written + size > self.base_size:
            return None
        return replace(
            self,
            size=size,
            fields=self.fields.then(before, after, fields),
            links=changes["links"],
            attributes=changes["attributes"],
        )

    def apply(self, record: Record) -> None:
        """Apply the delta in place to the base's record."""
        self.fields.apply(record)
        for table, changes in (("links", self.links), ("attributes", self.attributes)):
            if changes.removed or changes.put:
                if not isinstance(record.get(table), dict):
                    record[table] = {}
                changes.apply(record[table])

    def stored(self, nbytes: int) -> RecordDelta:
        """Return the delta after it was stored in `nbytes` bytes."""
        return replace(self, size=nbytes, written=self.written + nbytes)

    def encode(self, *, sealed: bool = False) -> bytes:
        """Return the delta's JSON with a checksum."""
        data = orjson.dumps(
            {
                "base": self.token,
                "sealed": sealed,
                "written": self.written,
                "fields": self.fields.to_json(),
                "links": self.links.to_json(),
                "attributes": self.attributes.to_json(),
            }
        )
        return add_checksum(data)


def decode_delta(data: bytes, token: str, base_size: int, key: str) -> tuple[RecordDelta, bool]:
    """Return a pair: the delta in an object's bytes, and whether it is sealed. Raise `Corrupt` if `token` differs."""
    check_checksum(data, key)
    try:
        found = parse_json(data)
        if found["base"] != token:
            raise Corrupt(f"The object {key} belongs to another record; restore it from a copy.")
        sealed, written = found["sealed"], found["written"]
        tables = [_entry_changes(found[name]) for name in ("fields", *TABLES)]
        if not isinstance(sealed, bool) or not isinstance(written, int):
            raise ValueError("sealed or written")
    except (ValueError, KeyError, TypeError) as error:
        raise Corrupt(
            f"The object {key} is not a valid delta of a record: {error!r}; restore it from a copy."
        ) from error
    return RecordDelta(token, base_size, len(data), written + len(data), *tables), sealed


def _entry_changes(value: Any) -> EntryChanges:
    removed, put = value["removed"], value["put"]
    if not isinstance(removed, list) or not isinstance(put, dict):
        raise ValueError("removed or put")
    return EntryChanges(dict.fromkeys(removed), put)


def _size(entries: Record, names: Iterable[str]) -> int:
    """Return the approximate size, in bytes, of the named entries as JSON."""
    return sum(len(name) + 4 + (len(orjson.dumps(entries[name])) if name in entries else 0) for name in names)


LARGE_RECORD = 256 * 1024
"""The most bytes of JSON of a record that is stored as one object, which HSDS can read."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RecordValue:
    """A record and its delta, the changes since its stored base; without a delta the record is stored whole."""

    record: Record
    delta: RecordDelta | None = None

    def changed(self, record: Record, table: str = "", names: tuple[str, ...] = ()) -> RecordValue:
        """Return the value after a change to `record`; `table` and `names` are as in `RecordDelta.then`."""
        if self.delta is None:
            return RecordValue(record)
        return RecordValue(record, self.delta.then(self.record, record, table, names))


@dataclass(frozen=True, slots=True)
class RecordVersion:
    """The version of a stored record: the etags of its `base` and its `delta`, and the `token` of the delta.

    Without a delta, `delta` and `token` are empty. `memory` is the approximate memory of the base in bytes.
    """

    base: str
    token: str = ""
    delta: str = ""
    sealed: bool = False
    memory: int = 0


@dataclass(frozen=True, slots=True)
class EncodedRecord:
    """The bytes to put for a changed record: `data` is its new delta, or a new base, whose delta is named `token`.

    `seal` is the previous base's delta, marked as sealed, or empty if there is no delta to seal.
    """

    data: bytes
    token: str = ""
    seal: bytes = b""


ENCODING_SPEEDUP = 16
"""How many times faster JSON is encoded than `compute` assumes, per byte of memory that it takes.

A change reads a small part of a record, and then the whole record is encoded.
"""
LARGE_READ = 1 << 20
"""A request that reads a record with more than this many bytes of JSON holds memory until it is answered."""


class RecordObjects:
    """The `StoredForm` of an object's record; a record of more than `limit` bytes has a base and a delta.

    A request that reads a large record holds a part of `memory` until it is answered. Records may need the features
    that the store has (`features`).
    """

    __slots__ = ("_clock", "_codec", "_limit", "_memory", "_store", "key")
    speed = ENCODING_SPEEDUP

    def __init__(
        self,
        key: str,
        store: ObjectStore,
        clock: Clock,
        limit: int = LARGE_RECORD,
        memory: MemoryBudget | None = None,
    ) -> None:
        self.key = key
        self._store = store
        self._clock = clock
        self._limit = limit
        self._memory = memory
        self._codec = RecordCodec(key, getattr(store, "features", ()))

    def encode(self, state: ObjectState[RecordValue], value: RecordValue | None) -> EncodedRecord:
        if value is not None and value.delta is not None:
            return EncodedRecord(value.delta.encode())
        version: RecordVersion | None = state.version
        seal, data, token = b"", b"", ""
        if version is not None and version.token and not version.sealed:
            assert state.value is not None
            assert state.value.delta is not None  # an unsealed version has a delta
            seal = state.value.delta.encode(sealed=True)
        if value is not None:
            data = self._codec.encode(value.record)
        if len(data) > self._limit:
            assert value is not None
            token = self._clock.token(8).hex()
            data = self._codec.encode(value.record, token)
        return EncodedRecord(data, token, seal)

    async def fetch(self) -> Sequence[Stored]:
        """Return the stored base and its delta, as the record was at some time during this call; empty if missing.

        A delta is deleted only after its base was replaced, so it must exist while its base does.
        """
        seen = None
        for _ in range(MAX_READ_ATTEMPTS):
            try:
                stored = await self._store.get(self.key)
            except NotFound:
                return ()
            if stored.etag == seen:
                raise Corrupt(
                    f"The delta of the object {self.key} is missing: the object is being deleted, or was copied "
                    "without the objects below `.record/`; copy these as well."
                )
            seen, token = stored.etag, self._codec.delta_of(stored.data)
            try:
                delta = (await self._store.get(delta_key(self.key, token)),) if token else ()
            except NotFound:
                continue
            if self._memory is not None and len(stored.data) > LARGE_READ:
                await self._memory.hold_for_request(memory_of_json(bytes(stored.data)))
            return (stored, *delta)
        raise Busy(f"Other writers kept changing {self.key}; try again.")

    def decode(self, found: Sequence[Stored]) -> ObjectState[RecordValue]:
        base, record = found[0], self._codec.decode(found[0].data)
        token, memory = self._codec.take_delta(record), self._codec.nbytes(record, base.data)
        if not token:
            return ObjectState(RecordValue(record), RecordVersion(base.etag), nbytes=memory)
        if len(found) < 2:
            raise Corrupt(f"The object {self.key} names a delta, but not at its end; restore it from a copy.")
        delta, sealed = decode_delta(found[1].data, token, len(base.data), delta_key(self.key, token))
        delta.apply(record)
        state = self._state(
            RecordValue(record, delta), RecordVersion(base.etag, token, found[1].etag, sealed, memory)
        )
        if sealed:
            state.value = RecordValue(record)  # the next change must not be added to this delta
        return state

    async def glimpse(self) -> ObjectState[RecordValue]:
        return await load_state(self)

    async def is_current(self, state: ObjectState[RecordValue]) -> bool:
        version: RecordVersion | None = state.version
        if version is None or not version.token:
            return await current_etag(self._store, self.key) == (version and version.base)
        if version.sealed:
            return False  # another base may have replaced this one
        return await current_etag(self._store, delta_key(self.key, version.token)) == version.delta

    async def put(
        self, state: ObjectState[RecordValue], value: RecordValue, data: EncodedRecord
    ) -> ObjectState[RecordValue]:
        version: RecordVersion | None = state.version
        if value.delta is None:
            return await self._put_base(state, value.record, data)
        assert version is not None  # a value has a delta only if its state has a version
        etag = await self._store.put_if_match(delta_key(self.key, version.token), data.data, version.delta)
        delta = value.delta.stored(len(data.data))
        return self._state(RecordValue(value.record, delta), replace(version, delta=etag))

    async def delete(self, state: ObjectState[RecordValue], data: EncodedRecord) -> ObjectState[RecordValue]:
        """Delete the record, after its delta is sealed."""
        if not state.decoded:
            raise PreconditionFailed(f"{self.key} must be read before it is deleted.")
        version = await self._sealed(state, data)
        if version is not None:
            await self._store.delete_if_match(self.key, version.base)
            await self._discard(version)
        return ObjectState(None, None)

    def _state(self, value: RecordValue, version: RecordVersion) -> ObjectState[RecordValue]:
        """Return the state of a record with a delta."""
        assert value.delta is not None
        grown = version.memory * value.delta.size // max(value.delta.base_size, 1)
        return ObjectState(value, version, nbytes=version.memory + grown)

    async def _put_base(
        self, state: ObjectState[RecordValue], record: Record, encoded: EncodedRecord
    ) -> ObjectState[RecordValue]:
        """Store a whole record; the delta of `state` is sealed before its base is replaced."""
        old, data = await self._sealed(state, encoded), encoded.data
        new = await self._new_delta(encoded.token) if encoded.token else RecordVersion("")
        try:
            if old is None:
                base = await self._store.put_if_absent(self.key, data)
            else:
                base = await self._store.put_if_match(self.key, data, old.base)
        except PreconditionFailed:
            await self._discard(new)
            raise
        if old is not None:
            await self._discard(old)
        new = replace(new, base=base, memory=self._codec.nbytes(record, data))
        if new.token:
            return self._state(RecordValue(record, RecordDelta(new.token, len(data))), new)
        return ObjectState(RecordValue(record), new, nbytes=new.memory)

    async def _sealed(self, state: ObjectState[RecordValue], encoded: EncodedRecord) -> RecordVersion | None:
        """Seal the delta of a state unless the delta is sealed or missing; return the resulting version."""
        version: RecordVersion | None = state.version
        if version is None or not encoded.seal:
            return version
        key = delta_key(self.key, version.token)
        return replace(
            version, delta=await self._store.put_if_match(key, encoded.seal, version.delta), sealed=True
        )

    async def _new_delta(self, token: str) -> RecordVersion:
        data = RecordDelta(token, 0).encode()
        return RecordVersion("", token, await self._store.put_if_absent(delta_key(self.key, token), data))

    async def _discard(self, version: RecordVersion) -> None:
        """Delete a delta that no base names any more; a failure is harmless and is logged."""
        if not version.token:
            return
        try:
            await self._store.delete_if_match(delta_key(self.key, version.token), version.delta)
        except HsparseError as error:
            log.warning(
                "A delta of %s is left over, because it could not be deleted: %s", self.key, error.message
            )


class WholeRecord:
    """The codec of a record that is never split: a domain's, a summary's or a job's."""

    __slots__ = ("_codec",)
    speed = ENCODING_SPEEDUP

    def __init__(self, key: str) -> None:
        self._codec = RecordCodec(key)

    def decode(self, data: bytes) -> RecordValue:
        return RecordValue(self._codec.decode(data))

    def encode(self, value: RecordValue) -> bytes:
        return self._codec.encode(value.record)

    def nbytes(self, value: RecordValue, data: Buffer) -> int:
        return self._codec.nbytes(value.record, data)
