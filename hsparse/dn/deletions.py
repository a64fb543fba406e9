"""Deletion of a domain's objects, or of a dataset's chunks, in an order in which it can be resumed after a crash.

The note comes first, the root group last but for the note: so a stopped deletion leaves its name taken, and says that
it is to be finished. Each object is deleted on the etag that was listed, once it was seen, after the listing, that the
deletion still stands: what another node has finished, and what was created since under the same id, stays.

The note `db/.deleting/<id>` of a root says how far its deletion has come. *Intended*: the domain's record is about to
be deleted. *Decided*: it was, and nothing keeps the objects. *Claimed*: a sweep has found no domain with this root, and
looks again. That of a dataset is always intended: it is decided once the dataset's record is gone.

While a root has a note, no domain gets that root: whoever stores such a domain looks for the note afterwards, and
takes the domain back (`hsparse.sn.domains.domain_creation`). A sweep stores its note first and looks for domains
afterwards. So one of them sees the other.
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
ATTEMPTS = 64


class DeletionState(StrEnum):
    """How far a deletion has come."""

    INTENDED = "intended"
    CLAIMED = "claimed"
    DECIDED = "decided"


@dataclass(frozen=True, slots=True)
class DeletionNote:
    """A note: `domain` is the path of the domain that is deleted, `born` identifies the root group.

    `token` is that of the one deletion that counts on the note, empty if others may.
    `etag` is that of the stored note, empty for one that is not stored. `modified` is in seconds since the epoch.
    """

    id: str
    state: DeletionState
    domain: str = ""
    born: str = ""
    token: str = ""
    etag: str = ""
    modified: float = 0.0


class DeletionNotes:
    """The notes in a store."""

    def __init__(self, store: ObjectStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def begin(self, id: str, domain: str, born: str, token: str = "") -> None:
        """Store an intended note, in place of a claim; a note of another deletion stays, and stands for both."""
        note = DeletionNote(id, DeletionState.INTENDED, domain, born, token)
        for _ in range(ATTEMPTS):
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
        raise Busy(f"The note of the deletion of {id} is changed all the time; try again.")

    async def decide(self, id: str, born: str) -> DeletionNote:
        """Store a decided note, whatever is there, and return it."""
        note = DeletionNote(id, DeletionState.DECIDED, born=born)
        return replace(note, etag=await self._store.put(deletion_key(id), self._encode(note)))

    async def claim(self, id: str, born: str) -> DeletionNote | None:
        """Store a claimed note where there is none, and return it; None where there is one."""
        note = DeletionNote(id, DeletionState.CLAIMED, born=born)
        try:
            return replace(note, etag=await self._store.put_if_absent(deletion_key(id), self._encode(note)))
        except PreconditionFailed:
            return None

    async def replace(self, old: DeletionNote, new: DeletionNote) -> DeletionNote | None:
        """Store `new` in place of `old` and return it; None when `old` is no longer there."""
        try:
            etag = await self._store.put_if_match(deletion_key(old.id), self._encode(new), old.etag)
        except PreconditionFailed:
            return None
        return replace(new, etag=etag)

    async def remove(self, id: str) -> None:
        """Remove a note, whatever it says."""
        await self._store.delete(deletion_key(id))

    async def withdraw(self, note: DeletionNote) -> bool:
        """Remove exactly this note; False when another one is there."""
        try:
            await self._store.delete_if_match(deletion_key(note.id), note.etag)
        except PreconditionFailed:
            return False
        return True

    async def withdraw_intended(self, id: str, token: str) -> None:
        """Withdraw the intended note of `token`; any other one stays."""
        note = await self.read(id)
        if note is not None and note.state is DeletionState.INTENDED and token and note.token == token:
            await self.withdraw(note)

    async def read(self, id: str) -> DeletionNote | None:
        """Return the note of a root or dataset, None without one."""
        try:
            stored = await self._store.get(deletion_key(id))
        except NotFound:
            return None
        return _decode(id, stored.data, stored.etag)

    async def older_than(self, seconds: float) -> AsyncIterator[DeletionNote]:
        """Yield the notes that were stored so long ago."""
        async for page in self._store.list(DELETION_FOLDER):
            for entry in page.entries:
                id = id_of_deletion_key(entry.key)
                if id is None or self._clock.now() - entry.modified < seconds:
                    continue
                note = await self.read(id)
                if note is not None and note.etag == entry.etag:
                    yield replace(note, modified=entry.modified)

    def _encode(self, note: DeletionNote) -> bytes:
        """Return a note's bytes; `put` makes those of each put differ, as S3's etags are made of the bytes."""
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
    """Return the note in these bytes; one that cannot be read is a claim, which decides nothing."""
    try:
        fields: Any = json.loads(data)
        state, domain, born = (str(fields[name]) for name in ("state", "domain", "born"))
        # Without "put" it is of a former version, whose token named the put alone.
        token = str(fields["token"]) if "put" in fields else ""
        return DeletionNote(id, DeletionState(state), domain, born, token, etag)
    except (ValueError, KeyError, TypeError):
        return DeletionNote(id, DeletionState.CLAIMED, etag=etag)


async def born_of(store: ObjectStore, root: str) -> str:
    """Return what identifies the stored root group among all that have had its id; empty when there is none."""
    try:
        stored = await store.get(storage_key(root))
    except NotFound:
        return ""
    try:
        record: Any = json.loads(stored.data)
        return f"created {record['created']!r}"
    except (ValueError, KeyError, TypeError):
        return "unreadable"


PASSES = 16
"""How often a tree is listed before a deletion fails as busy; again only if an object was changed meanwhile."""
NOTE_AGE = 600.0
"""Seconds after which a deletion counts as interrupted; one that still runs loses nothing when another joins it."""

log = logging.getLogger(__name__)


class Resumed(StrEnum):
    """What became of a note."""

    FINISHED = "finished"
    """What it is about is deleted."""
    WITHDRAWN = "withdrawn"
    """Nothing had been deleted yet, so nothing is."""
    UNSETTLED = "left to `hsparse sweep`"
    """Whether the objects still have a domain must be looked for: a `Sweep` does that."""


class Deletions:
    """The deletions of whole trees in a store, by any node."""

    def __init__(self, store: ObjectStore, clock: Clock, cache: Cache | None = None) -> None:
        self._store = store
        self._cache = cache
        self._clock = clock
        self.notes = DeletionNotes(store, clock)

    async def begin(self, message: BeginDeletion) -> str:
        """Answer `BeginDeletion`."""
        id = message.id
        if message.decided:
            await self.notes.decide(id, message.decided)
            return message.decided
        born = await born_of(self._store, id) if is_root(id) else ""
        if born or not is_root(id):
            await self.notes.begin(id, message.domain, born, message.token)
        return born

    async def delete_tree(self, id: str, born: str) -> int:
        """Answer `DeleteTree`."""
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
        """Delete the domain's objects that a decided note is about, then the note; return how many there were."""

        async def stands() -> bool:
            """Say whether the id has not been given to another domain: that waits for the note's end."""
            found = await self.notes.read(note.id)
            return found is not None and (found.state, found.born) == (DeletionState.DECIDED, note.born)

        count = 0
        if await born_of(self._store, note.id) in ("", note.born):
            count = await self._delete_below(note.id, stands)
        await self.notes.withdraw(note)
        return count

    async def resume_all(self, age: float = NOTE_AGE) -> int:
        """Resume all deletions whose notes are `age` seconds old; return how many are finished.

        One that fails does not keep the others from being resumed; it is logged.
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
        """Finish what the note of an interrupted deletion is about, or withdraw it."""
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
        """Resume interrupted deletions every `interval` seconds, until cancelled; nodes differ by up to a half."""
        while True:
            await sleep(interval * (1 + jitter(self._clock) / 2))
            try:
                await self.resume_all()
            except HsparseError as error:
                log.warning("Interrupted deletions cannot be listed: %s", error.message)

    async def exists(self, id: str) -> bool:
        """Say whether the store has the record of an object."""
        return await current_etag(self._store, storage_key(id)) is not None

    async def _withdraw(self, note: DeletionNote) -> Resumed:
        await self.notes.withdraw(note)
        return Resumed.WITHDRAWN

    async def _root_of(self, domain: str) -> str | None:
        """Return the root of the domain at a path, None when there is no domain."""
        key = storage_key(domain)
        try:
            record = RecordCodec(key).decode((await self._store.get(key)).data)
        except NotFound:
            return None
        return record.get("root")

    async def _delete_chunks(self, dataset: str) -> int:
        """Delete what is below a dataset as long as that has no record; return how many objects there were."""

        async def stands() -> bool:
            return not await self.exists(dataset)

        return await self._delete_below(dataset, stands)

    async def _delete_below(self, id: str, stands: Callable[[], Awaitable[bool]]) -> int:
        """Delete the tree of `id`, its record last, until `stands` says no; return how many objects were deleted.

        Deltas follow their records, so that no record is read without what was changed in it.
        """
        prefix, last = tree_prefix(id), storage_key(id)
        beside = delta_prefix(last)
        count = 0
        for _ in range(PASSES):
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
        raise Busy(f"The objects of {id} are changed all the time; their deletion is finished later.")


async def read_ahead(items: AsyncIterator[T]) -> AsyncGenerator[T, None]:
    """Yield the items; the next one is being read meanwhile. Close it (`contextlib.aclosing`) to leave it early."""
    following = _next(items)
    try:
        while (item := await following) is not None:
            following = _next(items)
            yield item
    finally:
        following.cancel()  # and not awaited: nothing can be, when a task is dropped
        del following  # an error has this frame, and would have itself


def _next(items: AsyncIterator[T]) -> asyncio.Task[T | None]:
    async def read() -> T | None:
        return await anext(items, None)

    reading = asyncio.create_task(read())
    # Who leaves early does not ask how it went.
    reading.add_done_callback(lambda task: task.cancelled() or task.exception())
    return reading
