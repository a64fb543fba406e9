"""Notes of deletions under way: objects `db/.deleting/<id>`, by which a deletion is resumed after a crash.

The note of a root says how far its deletion has come. *Intended*: the domain's record is about to be deleted.
*Decided*: it was, and nothing keeps the objects. *Claimed*: a sweep has found no domain with
this root, and looks again.
The note of a dataset is always intended: it is decided once the dataset's record is gone.

While a root has a note, no domain gets that root: whoever stores such a domain looks for the note afterwards, and
takes the domain back (`hsparse.sn.domains.domain_creation`). A sweep stores its note first and looks for domains
afterwards. So one of them sees the other.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from hsparse.clock import Clock
from hsparse.errors import Busy, NotFound, PreconditionFailed
from hsparse.model.ids import DELETION_FOLDER, deletion_key, id_of_deletion_key, storage_key
from hsparse.storage.object_store import ObjectStore

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
