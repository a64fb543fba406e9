"""Deletion of a domain's objects, or of a dataset's chunks, in an order that can be resumed after a crash.

A deletion stores a note, deletes the objects (the root group last), and then deletes the note. If it is interrupted,
the root's id stays taken, and the note says to finish the deletion. Each object is deleted only if it has its listed
etag, and after a check that the deletion must still be carried out. If another node has finished the deletion, objects
that were created afterwards under the same id therefore stay.

The note `db/.deleting/<id>` of a root has a state. *Intended*: the domain's record is about to be deleted. *Decided*:
the record was deleted, and nothing keeps the objects. *Claimed*: a sweep found no domain with this root, and reads all
domains again before it decides. A dataset's note is always intended; the deletion is decided once the dataset's record
is gone.

A domain cannot get a root that has a note: a node that stores such a domain looks for the note afterwards, and removes
the domain if there is one (`hsparse.sn.domains.domain_creation`). A sweep stores its note before it looks for domains.
Thus the node finds the sweep's note, or the sweep finds the node's domain.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, TypeVar

from hsparse.attempts import MAX_CHANGE_ATTEMPTS
from hsparse.clock import Clock, jitter
from hsparse.dn.cache import Cache
from hsparse.dn.record_form import RecordCodec
from hsparse.errors import Busy, HsparseError, NotFound, PreconditionFailed
from hsparse.model.ids import (
    DELETION_FOLDER,
    deletion_key,
    delta_prefix,
    id_of_deletion_key,
    is_delta_key,
    is_root,
    storage_key,
    tree_prefix,
)
from hsparse.storage.object_store import Entry, ObjectStore, current_etag
from hsparse.wire.record_message import BeginDeletion

T = TypeVar("T")


class DeletionState(StrEnum):
    """The state of a deletion, see the text at the beginning of the module."""

    INTENDED = "intended"
    CLAIMED = "claimed"
    DECIDED = "decided"


@dataclass(frozen=True, slots=True)
class DeletionNote:
    """A deletion note. `domain` is the path of the domain that is deleted; `born` identifies the root group.

    `token` names the only deletion that relies on the note, or is empty if several may rely on it. `etag` is the stored
    note's etag, or empty if the note is not stored. `modified` is in seconds since the Unix epoch.
    """

    id: str
    state: DeletionState
    domain: str = ""
    born: str = ""
    token: str = ""
    etag: str = ""
    modified: float = 0.0


class DeletionNotes:
    """The deletion notes in a store."""

    def __init__(self, store: ObjectStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def begin(self, id: str, domain: str, born: str, token: str = "") -> None:
        """Store an intended note, replacing a claimed note; another deletion's note stays and serves both deletions."""
        note = DeletionNote(id, DeletionState.INTENDED, domain, born, token)
        for _ in range(MAX_CHANGE_ATTEMPTS):
            try:
                await self._store.put_if_absent(deletion_key(id), self._encode(note))
                return
            except PreconditionFailed:
                found = await self.read(id)
            if found is None:
                continue
            if found.state is DeletionState.CLAIMED:
                new = note
            elif found.state is DeletionState.INTENDED and found.token not in ("", token):
                new = replace(found, token="")
            else:
                return
            if await self.replace(found, new):
                return
        raise Busy(f"Other nodes keep changing the deletion note of {id}; try again.")

    async def decide(self, id: str, born: str) -> DeletionNote:
        """Store a decided note, replacing any other note, and return it."""
        note = DeletionNote(id, DeletionState.DECIDED, born=born)
        return replace(note, etag=await self._store.put(deletion_key(id), self._encode(note)))

    async def claim(self, id: str, born: str) -> DeletionNote | None:
        """Store a claimed note and return it, or return None if the id already has a note."""
        note = DeletionNote(id, DeletionState.CLAIMED, born=born)
        try:
            return replace(note, etag=await self._store.put_if_absent(deletion_key(id), self._encode(note)))
        except PreconditionFailed:
            return None

    async def replace(self, old: DeletionNote, new: DeletionNote) -> DeletionNote | None:
        """Store `new` in place of `old` and return it, or return None if `old` is no longer stored."""
        try:
            etag = await self._store.put_if_match(deletion_key(old.id), self._encode(new), old.etag)
        except PreconditionFailed:
            return None
        return replace(new, etag=etag)

    async def remove(self, id: str) -> None:
        """Remove the note of an id, whatever its state."""
        await self._store.delete(deletion_key(id))

    async def withdraw(self, note: DeletionNote) -> bool:
        """Remove this note and return True, or return False if the store no longer has exactly this note."""
        try:
            await self._store.delete_if_match(deletion_key(note.id), note.etag)
        except PreconditionFailed:
            return False
        return True

    async def withdraw_intended(self, id: str, token: str) -> None:
        """Remove the note of an id if it is intended and only the deletion with this `token` relies on it."""
        note = await self.read(id)
        if note is not None and note.state is DeletionState.INTENDED and token and note.token == token:
            await self.withdraw(note)

    async def read(self, id: str) -> DeletionNote | None:
        """Return the note of a root or dataset, or None if it has no note."""
        try:
            stored = await self._store.get(deletion_key(id))
        except NotFound:
            return None
        return _decode(id, stored.data, stored.etag)

    async def older_than(self, seconds: float) -> AsyncIterator[DeletionNote]:
        """Yield the notes that were stored at least `seconds` ago."""
        async for page in self._store.list(DELETION_FOLDER):
            for entry in page.entries:
                id = id_of_deletion_key(entry.key)
                if id is None or self._clock.now() - entry.modified < seconds:
                    continue
                note = await self.read(id)
                if note is not None and note.etag == entry.etag:
                    yield replace(note, modified=entry.modified)

    def _encode(self, note: DeletionNote) -> bytes:
        """Return a note's JSON; its random `put` makes all encodings differ, so that S3 gives each put a new etag."""
        fields = {
            "id": note.id,
            "state": note.state,
            "domain": note.domain,
            "born": note.born,
            "token": note.token,
            "put": self._clock.token(8).hex(),
        }
        return json.dumps(fields).encode()


def _decode(id: str, data: bytes, etag: str) -> DeletionNote:
    """Decode a note; an unreadable note is returned as claimed, because a claim decides nothing."""
    try:
        fields: Any = json.loads(data)
        state, domain, born = (str(fields[name]) for name in ("state", "domain", "born"))
        # A note without "put" was stored by an older version, whose token identified the put only.
        token = str(fields["token"]) if "put" in fields else ""
        return DeletionNote(id, DeletionState(state), domain, born, token, etag)
    except (ValueError, KeyError, TypeError):
        return DeletionNote(id, DeletionState.CLAIMED, etag=etag)


async def born_of(store: ObjectStore, root: str) -> str:
    """Return a text that identifies the stored root group among all groups that had its id, or "" if it is missing."""
    try:
        stored = await store.get(storage_key(root))
    except NotFound:
        return ""
    try:
        record: Any = json.loads(stored.data)
        return f"created {record['created']!r}"
    except (ValueError, KeyError, TypeError):
        return "unreadable"


MAX_PASSES = 16
"""The most times that a deletion lists a tree before it raises `Busy`; it lists again only if an object changed."""
NOTE_AGE = 600.0
"""The age of a note, in seconds, from which its deletion counts as interrupted; running a deletion twice is safe."""

log = logging.getLogger(__name__)


class Resumed(StrEnum):
    """The outcome of resuming the deletion of a note."""

    FINISHED = "finished"
    """The objects that the note is about are deleted."""
    WITHDRAWN = "withdrawn"
    """No object had been deleted yet, and the note was removed."""
    UNSETTLED = "left to `hsparse sweep`"
    """Nothing was done: only a `Sweep`, which reads all domains, can tell whether the objects belong to a domain."""


class Deletions:
    """Deletes the objects of whole domains, and the chunks of datasets. Any node can run or resume a deletion."""

    def __init__(self, store: ObjectStore, clock: Clock, cache: Cache | None = None) -> None:
        self._store = store
        self._cache = cache
        self._clock = clock
        self.notes = DeletionNotes(store, clock)

    async def begin(self, message: BeginDeletion) -> str:
        """Answer `BeginDeletion`: store the note, and return the text that identifies the root group, or ""."""
        id = message.id
        if message.decided:
            await self.notes.decide(id, message.decided)
            return message.decided
        born = await born_of(self._store, id) if is_root(id) else ""
        if born or not is_root(id):
            await self.notes.begin(id, message.domain, born, message.token)
        return born

    async def delete_tree(self, id: str, born: str) -> int:
        """Answer `DeleteTree`: delete a domain's objects or a dataset's chunks, and return their number."""
        if is_root(id):
            born = born or await born_of(self._store, id)
            note = await self.notes.read(id)
            if note is None or (note.state, note.born) != (DeletionState.DECIDED, born):
                note = await self.notes.decide(id, born)
            return await self.finish(note)
        count = await self._delete_chunks(id)
        await self.notes.remove(id)
        return count

    async def finish(self, note: DeletionNote) -> int:
        """Delete the objects of a decided note's domain, then the note; return the number of deleted objects."""

        async def stands() -> bool:
            """Return whether the deletion is still decided: another domain gets the id only after the note is gone."""
            found = await self.notes.read(note.id)
            return found is not None and (found.state, found.born) == (DeletionState.DECIDED, note.born)

        count = 0
        if await born_of(self._store, note.id) in ("", note.born):
            count = await self._delete_below(note.id, stands)
        await self.notes.withdraw(note)
        return count

    async def resume_all(self, age: float = NOTE_AGE) -> int:
        """Resume all deletions whose notes are at least `age` seconds old; return the number of finished deletions.

        A deletion that cannot be resumed is logged, and the other deletions are still resumed.
        """
        count = 0
        async for note in self.notes.older_than(age):
            try:
                outcome = await self.resume(note)
            except HsparseError as error:
                log.warning("The deletion of %s cannot be resumed: %s", note.id, error.message)
                continue
            log.warning("The interrupted deletion of %s (%s) is %s.", note.id, note.domain, outcome)
            count += outcome is Resumed.FINISHED
        return count

    async def resume(self, note: DeletionNote) -> Resumed:
        """Finish the interrupted deletion of a note, or withdraw the note."""
        if not is_root(note.id):
            if await self.exists(note.id):
                return await self._withdraw(note)
            await self._delete_chunks(note.id)
            await self.notes.withdraw(note)
            return Resumed.FINISHED
        if note.state is DeletionState.DECIDED:
            await self.finish(note)
            return Resumed.FINISHED
        if note.state is DeletionState.INTENDED and await self._root_of(note.domain) == note.id:
            return await self._withdraw(note)
        return Resumed.UNSETTLED

    async def keep_resuming(
        self, interval: float, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        """Resume interrupted deletions every `interval` seconds until cancelled; jitter adds up to half an interval."""
        while True:
            await sleep(interval * (1 + jitter(self._clock) / 2))
            try:
                await self.resume_all()
            except HsparseError as error:
                log.warning("Interrupted deletions cannot be listed: %s", error.message)

    async def exists(self, id: str) -> bool:
        """Return whether the store has the record of an object."""
        return await current_etag(self._store, storage_key(id)) is not None

    async def _withdraw(self, note: DeletionNote) -> Resumed:
        await self.notes.withdraw(note)
        return Resumed.WITHDRAWN

    async def _root_of(self, domain: str) -> str | None:
        """Return the root of the domain at a path, or None if there is no domain."""
        key = storage_key(domain)
        try:
            record = RecordCodec(key).decode((await self._store.get(key)).data)
        except NotFound:
            return None
        return record.get("root")

    async def _delete_chunks(self, dataset: str) -> int:
        """Delete all objects below a dataset while the dataset has no record; return the number of objects."""

        async def stands() -> bool:
            return not await self.exists(dataset)

        return await self._delete_below(dataset, stands)

    async def _delete_below(self, id: str, stands: Callable[[], Awaitable[bool]]) -> int:
        """Delete the tree of `id`, its record last, while `stands` returns True; return the number of deleted objects.

        Deltas are deleted after their records, so that no record is read without its changes.
        """
        prefix, last = tree_prefix(id), storage_key(id)
        beside = delta_prefix(last)
        count = 0
        for _ in range(MAX_PASSES):
            if self._cache is not None:
                self._cache.drop(prefix)
            record: list[Entry] = []
            own: list[Entry] = []
            unchanged = True
            async with aclosing(read_ahead(self._store.list(prefix))) as pages:
                async for page in pages:
                    if not await stands():
                        return count
                    record += [entry for entry in page.entries if entry.key == last]
                    own += [entry for entry in page.entries if entry.key.startswith(beside)]
                    entries = [e for e in page.entries if e.key != last and not e.key.startswith(beside)]
                    deltas = [entry for entry in entries if is_delta_key(entry.key)]
                    if deltas:
                        entries = [entry for entry in entries if not is_delta_key(entry.key)]
                    for some in (entries, deltas):
                        done = await self._store.delete_all(some)
                        count += sum(done)
                        unchanged = unchanged and all(done)
            for some in (record, own):
                if unchanged:
                    done = await self._store.delete_all(some)
                    count += sum(done)
                    unchanged = all(done)
            if unchanged:
                return count
        raise Busy(f"Other nodes keep changing the objects of {id}; their deletion will be finished later.")


async def read_ahead(items: AsyncIterator[T]) -> AsyncGenerator[T, None]:
    """Yield each item while the next is being read. Close the generator (`contextlib.aclosing`) to leave it early."""
    following = _next(items)
    try:
        while (item := await following) is not None:
            following = _next(items)
            yield item
    finally:
        following.cancel()  # not awaited: a task that is dropped cannot await
        del following  # breaks the cycle task -> error -> traceback -> this frame


def _next(items: AsyncIterator[T]) -> asyncio.Task[T | None]:
    async def read() -> T | None:
        return await anext(items, None)

    reading = asyncio.create_task(read())
    # A caller that leaves early does not retrieve the task's error.
    reading.add_done_callback(lambda task: task.cancelled() or task.exception())
    return reading
