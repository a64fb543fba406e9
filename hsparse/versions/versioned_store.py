"""What a service node asks the store about snapshots: to begin one, to tell of it, to seal it, to let go of one.

A snapshot is begun in the note of its domain, by a conditional put. Every data node is told, and answers once its
changes of before have ended; all later ones preserve what was there. Then the snapshot is sealed: it can be read. That
waits for a few seconds after the members have changed: one that was evicted is told nothing, but has no lease either.

One that is deleted leaves the note first, every data node is told, and what no other one needs is deleted. Who was
paused meanwhile deletes nothing: the note must be the one that was read.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

import orjson

from hsparse.clock import Clock
from hsparse.cluster.membership_object import KEY as MEMBERS
from hsparse.compute import gather_each
from hsparse.dn.cache import load_state
from hsparse.dn.membership.ownership import Ownership
from hsparse.dn.record_objects import RecordObjects
from hsparse.errors import Busy, Conflict, HsparseError, NotFound, PreconditionFailed, Unsupported
from hsparse.model.ids import domain_prefix, storage_key
from hsparse.model.schema import SCHEMA_KEY, VERSIONS, Schema, parse_schema
from hsparse.storage.object_store import Entry, ObjectStore
from hsparse.versions.changed_elements import changed_chunks
from hsparse.versions.clone_store import Clone
from hsparse.versions.differences import by_object, differences
from hsparse.versions.restoring import Restoring, record_of
from hsparse.versions.snapshot_trees import Base
from hsparse.versions.store import AT_ONCE, PreservingStore, root_of
from hsparse.versions.version_keys import (
    BASES,
    HISTORY,
    NOTE,
    base_key,
    history_prefix,
    note_key,
    parsed_copy,
    rest_of,
)
from hsparse.versions.version_note import Pin, VersionNote, put_note, read_note

Json: TypeAlias = dict[str, Any]
ATTEMPTS = 16
LATE = 3.0
"""Seconds until a change is stored, or never will be, that was sent to the store and given up by its sender."""
TOKEN_BYTES = 8
MOST_FOUND = 100_000
"""Changes between snapshots that are remembered, those of the last two that were asked for in any case."""


class VersionedStore(PreservingStore):
    """A `PreservingStore` that takes snapshots, and lets go of them."""

    def __init__(self, store: ObjectStore, ownership: Ownership, clock: Clock) -> None:
        super().__init__(store, ownership, clock)
        self.below.ended = self._unpin
        self._found: dict[tuple[str, ...], list[Json]] = {}
        """What is different between snapshots, which never changes."""

    async def answer(self, question: str, arguments: Json) -> Json:
        answers: dict[str, Callable[..., Awaitable[Json]]] = {
            "versions.list": self._list,
            "versions.begin": self._begin,
            "versions.tell": self._tell,
            "versions.seal": self._seal,
            "versions.abandon": self._abandon,
            "versions.remove": self._remove,
            "versions.collect": self._collect,
            "versions.clone": self._clone,
            "versions.unclone": self._unclone,
            "versions.materialize": self._materialize,
            "versions.part": self._part,
            "versions.restore": self._restore,
            "versions.changes": self._changes,
            "versions.diff": self._diff,
            "sweep": self._sweep,
        }
        answer = answers.get(question)
        return await (super().answer(question, arguments) if answer is None else answer(**arguments))

    async def _list(self, root: str) -> Json:
        note, clone = await read_note(self.below, root), await self._as_clone(root)
        base = clone and clone.base
        return {
            "snapshots": [one.to_json() for one in note.snapshots if one.sealed] if note else [],
            "clones": [{"domain": pin.domain, "snapshot": pin.snapshot} for pin in note.pins] if note else [],
            "base": clone and base and {"domain": clone.source, "snapshot": base.number},
        }

    async def _as_clone(self, root: str) -> Clone | None:
        return await self.below.clone_of(storage_key(root))

    # --- taking one -----------------------------------------------------------------------------------

    async def _begin(self, root: str, author: str, message: str) -> Json:
        """Begin a snapshot of a domain; what one that was given up has left goes."""
        if not self.ownership.hears_all:
            raise Unsupported(
                "Several servers write to this store and do not hear each other: snapshots need one server, or a "
                "cluster of data nodes."
            )
        await self._declare()
        for _ in range(ATTEMPTS):
            note = await read_note(self.below, root)
            note = note or VersionNote(root, self.clock.token(TOKEN_BYTES).hex())
            begun = note.begun(self.clock.now(), author, message)
            new = begun.snapshots[-1]
            base = Base(root, note.token, new.number, new.root)
            await self.below.put(base_key(new.root), base.encode())
            if await put_note(self.below, begun) is not None:
                for gone in set(note.snapshots) - set(begun.snapshots):
                    await self.below.delete(base_key(gone.root))
                return new.to_json()
            if (
                not note.etag
            ):  # of a series that there is not; in any other the number is another snapshot's now
                await self.below.delete(base_key(new.root))
        raise Busy("Other snapshots of this domain are taken all the time; try again.")

    async def _declare(self) -> None:
        """Have the store say that it has snapshots, so that no older version changes a domain of it."""
        while not await self.is_used():
            try:
                stored = await self.below.get(SCHEMA_KEY)
            except NotFound:
                schema, etag = Schema(), None
            else:
                schema, etag = parse_schema(orjson.loads(stored.data), SCHEMA_KEY), stored.etag
            needed = schema.and_also(Schema(write_features=(VERSIONS,)))
            data = orjson.dumps(needed.to_json())
            try:
                if etag is None:
                    await self.below.put_if_absent(SCHEMA_KEY, data)
                else:
                    await self.below.put_if_match(SCHEMA_KEY, data, etag)
            except PreconditionFailed:
                continue
            self.begin_use()

    async def _tell(self, root: str) -> Json:
        """Know the snapshots of a domain as they are now; nobody reads one that is ending when this returns."""
        self.begin_use()
        self.below.forget(root)
        known = await self.versions.renew(root)
        there = () if known.note is None else known.note.snapshots
        kept = [one.root for one in there if not one.ending]
        await self.trees.forget(root, kept, [one.root for one in there if one.ending])
        return {}

    async def _seal(self, root: str, tree: str) -> Json:
        """Let a snapshot be read; it is told by its root, as a late message may find another one of its number."""
        await self._await_late_changes()
        time = self.clock.now()
        note = await self._change(root, lambda note: note.sealed(tree, time))
        return next(one.to_json() for one in note.snapshots if one.root == tree)

    async def _await_late_changes(self) -> None:
        """Wait until what a node sent that was evicted lately has reached the store: it was told of no snapshot."""
        if not self.ownership.always:
            async for page in self.below.list(MEMBERS):
                for entry in page.entries:
                    await asyncio.sleep(min(LATE, LATE - (self.clock.now() - entry.modified)))

    async def _abandon(self, root: str, tree: str) -> Json:
        """Give a snapshot up that was not sealed, or is ending; one that was sealed stays, also if nobody was told."""
        note = await self._change(root, lambda note: note.abandoned(tree))
        if all(one.root != tree for one in note.snapshots):
            await self.below.delete(base_key(tree))
        return {}

    # --- letting go of one ----------------------------------------------------------------------------

    async def _remove(self, root: str, number: int) -> Json:
        """Have a snapshot be read no more; once all nodes were told it is given up, and what it needed is collected."""
        time = self.clock.now()
        note = await self._change(root, lambda note: note.ended(number, time))
        gone = next(one for one in note.snapshots if one.number == number)
        await self.below.delete(base_key(gone.root))
        return {"root": gone.root}

    async def _collect(self, root: str) -> Json:
        """Delete what no snapshot of a domain needs; return how many objects that were."""
        note = await read_note(self.below, root)
        if note is None:
            return {"deleted": 0}
        count = 0
        async for entries in self._needless(note):
            if await self._etag(root) != note.etag:
                break  # who changed the note collects, too, or needs what is there
            count += sum(await self.below.delete_all(entries))
        if not note.snapshots and not note.pins:
            try:
                await self.below.delete_if_match(note_key(root), note.etag)
            except PreconditionFailed:
                return {"deleted": count}
            await self.versions.renew(root)
        return {"deleted": count}

    async def _needless(self, note: VersionNote) -> AsyncIterator[list[Entry]]:
        """Yield pages of what is kept and no snapshot shows: none is between a copy and the one before it."""
        live = [one.number for one in note.snapshots]
        if not live:
            async for page in self.below.list(domain_prefix(note.root) + HISTORY):
                yield list(page.entries)
            return
        prefix = history_prefix(note.root, note.token)
        before: tuple[str, int] = ("", 0)
        async for page in self.below.list(prefix):
            needless = []
            for entry in page.entries:
                rest, epoch = parsed_copy(prefix, entry.key)
                first = before[1] if before[0] == rest else 0
                before = rest, epoch
                if not any(first < number <= epoch for number in live):
                    needless.append(entry)
            yield needless

    # --- clones ---------------------------------------------------------------------------------------

    async def _clone(self, root: str, number: int, clone: str, source: str, domain: str) -> Json:
        """Pin a snapshot, and have a root group that shares what it has; `Conflict` if the domain is being deleted."""
        pin = Pin(domain, clone, number)
        note = await self._change(root, lambda note: note.pinned(pin))
        base = Base(root, note.token, number, clone)
        if await self.notes.read(root) is not None:
            await self._change(root, lambda note: note.unpinned(clone))
            raise Conflict(f"{source} is being deleted: it cannot be cloned.")
        new = Clone(clone, base, source)
        with suppress(PreconditionFailed):  # its message was sent before
            await self.below.plain.put_if_absent(storage_key(clone), new.encode(domain, self.clock.now()))
        return {}

    async def _unclone(self, root: str, clone: str) -> Json:
        """Take a clone back that no domain has."""
        await self.below.plain.delete(storage_key(clone))
        self.below.forget(clone)
        await self._change(root, lambda note: note.unpinned(clone))
        return {}

    async def _unpin(self, clone: Clone) -> None:
        """Let go of the snapshot that a clone needed."""
        if clone.base is not None:
            await self._release(clone.base.root, clone.root)

    async def _release(self, root: str, clone: str) -> None:
        """Let a clone need no snapshot of a domain, if that is still there."""
        with suppress(NotFound):
            await self._change(root, lambda note: note.unpinned(clone))

    async def _materialize(self, root: str) -> Json:
        """Give a clone objects of its own in place of those that it shares; return how many, and its base."""
        clone = await self._as_clone(root)
        if clone is None or clone.base is None:
            return {"copied": 0, "base": None}
        base, below = clone.base, self.below
        copied = 0

        async def copy(entry: Entry) -> None:
            nonlocal copied
            with suppress(PreconditionFailed):  # it has one, or has deleted it
                data = (await self.trees.get(base, entry.key)).data
                await below.plain.put_if_absent(clone.own_key(rest_of(entry.key)), data)
                copied += 1

        await gather_each(copy, await self.trees.entries(base, domain_prefix(root)), AT_ONCE)
        stored = await below.plain.get(storage_key(root))
        found = orjson.loads(stored.data) | {"base": None}
        with suppress(PreconditionFailed):  # another request for the same has put it
            await below.plain.put_if_match(storage_key(root), orjson.dumps(found), stored.etag)
        return {"copied": copied, "base": base.root}

    async def _part(self, root: str, base: str) -> Json:
        """Let go of the snapshot that a clone needed until all nodes were told that it has all for itself."""
        own = Clone(root, None).own_key("")
        async for page in self.below.plain.list(own):
            await self.below.plain.delete_all([entry for entry in page.entries if not entry.size])
        await self._release(base, root)
        return {}

    # --- what there was -------------------------------------------------------------------------------

    async def _restore(self, root: str, number: int) -> Json:
        """Bring a domain back to what it was at a snapshot; return how many objects were changed.

        `NotFound` if the snapshot is deleted meanwhile: then what it had was not there for all of them.
        """
        restoring = Restoring(self, base := await self._base_at(root, number))
        try:
            await restoring.run()
        except HsparseError:
            await asyncio.sleep(LATE)  # who owns what is still being stored is told after that
            raise
        if await self._base_at(root, number) != base:
            raise NotFound(f"The snapshot {number} was deleted meanwhile.")
        return {"changed": restoring.changed}

    async def _diff(self, root: str, number: int, to: int | None) -> Json:
        """Return what became of each object between a snapshot and another one, or now; see `by_object`.

        Datasets have the number of `elements` that are different, too, None where they are not counted.
        """
        before, after = await self._sources(root, number), await self._sources(root, to)
        changes = await self._compared(root, before, after)
        chunks: dict[str, list[str]] = {one["id"]: [] for one in changes if one["id"].startswith("d-")}
        for one in changes:
            if one["chunk"] is not None:
                chunks[one["id"]].append(one["marker"])
        elements: dict[str, int | None] = {}
        same = set[str]()
        for id, rests in chunks.items():
            record, known = await self._dataset(id, number, to, after), rest_of(storage_key(id))
            was = await self._dataset(id, number, to, {}) if known in before else record
            if record is None or was is None or was.get("created") != record.get("created"):
                continue  # another dataset of its id, with other chunks
            different, elements[id] = await changed_chunks(self, record, rests, before, after)
            if known in before and known in after:  # what was written back is no change
                same |= set(rests).difference(different)
        found = by_object([one for one in changes if one["marker"] not in same])
        return {id: one | {"elements": elements.get(id)} for id, one in found.items()}

    async def _dataset(self, id: str, number: int, to: int | None, after: dict[str, Entry]) -> Json | None:
        """Return the record of a dataset as it is after the changes, or was before if it is deleted."""
        key = storage_key(id)
        if rest_of(key) not in after:
            tree = (await self._base_at(root_of(key), number)).tree
        else:
            tree = root_of(key) if to is None else (await self._base_at(root_of(key), to)).tree
        state = await load_state(RecordObjects(domain_prefix(tree) + rest_of(key), self, self.clock))
        return None if state.value is None else state.value.record

    async def _changes(self, root: str, number: int, to: int, marker: str, limit: int) -> Json:
        """Return at most `limit` changes between two snapshots, and the marker of the last one if there are more."""
        found = await self._differences(root, number, to)
        first = bisect_right(found, marker, key=lambda one: one["marker"])
        page = found[first : first + limit]
        return {"changes": page, "marker": page[-1]["marker"] if first + limit < len(found) else None}

    async def _differences(self, root: str, number: int, to: int) -> list[Json]:
        """Return all changes between two snapshots, 0 for when there was nothing; they are remembered."""
        bases = [await self._base_at(root, one) for one in (number, to) if one]
        between = (root, *(base.tree for base in bases))
        if between not in self._found:
            before, after = await self._sources(root, number), await self._sources(root, to)
            self._found[between] = await self._compared(root, before, after)
            while len(self._found) > 1 and sum(map(len, self._found.values())) > MOST_FOUND:
                del self._found[next(iter(self._found))]
        return self._found[between]

    async def _compared(self, root: str, before: dict[str, Entry], after: dict[str, Entry]) -> list[Json]:
        for rest in before.keys() & after.keys():
            if record_of(rest) and await self._is_same(before[rest], after[rest]):
                after[rest] = before[rest]
        return differences(root, before, after)

    async def _sources(self, root: str, number: int | None) -> dict[str, Entry]:
        """Return what each object is read from at a snapshot; None for now, 0 for when there was nothing."""
        if number is None:
            return await self.trees.head_sources(root)
        return await self._shown(await self._base_at(root, number)) if number else {}

    async def _is_same(self, old: Entry, new: Entry) -> bool:
        """Say whether a record that is read from two objects is the same: it is copied before a chunk is made, too."""
        if old.size != new.size or (old.key, old.etag) == (new.key, new.etag):
            return old.size == new.size
        with suppress(NotFound):
            return (await self.get(old.key)).data == (await self.get(new.key)).data
        return False

    async def _shown(self, base: Base) -> dict[str, Entry]:
        found = await self.trees.sources(base)
        return {rest: entry for rest, entry in found.items() if await self.trees.had(base, rest)}

    async def _base_at(self, root: str, number: int) -> Base:
        note = await read_note(self.below, root)
        if note is None:
            raise NotFound(f"There is no snapshot {number}; there are none.")
        base = Base(root, note.token, number, note.find(number).root)
        self.trees.learn(base)
        return base

    # --- what was left over ---------------------------------------------------------------------------

    async def _sweep(self, min_age: float, dry_run: bool) -> Json:
        """Delete what is older than `min_age` seconds and nothing needs; return objects and bytes by root group."""
        before = self.clock.now() - min_age
        found: dict[str, list[Entry]] = {}
        notes: dict[str, VersionNote | None] = {}
        async for page in self.below.list("db/"):
            for entry in page.entries:
                if f"/{HISTORY}" not in entry.key and not entry.key.endswith(f"/{NOTE}"):
                    continue
                root = root_of(entry.key)
                if root not in notes:
                    note = notes[root] = await read_note(self.below, root)
                    if note is not None and not dry_run:
                        notes[root] = await self._settled(note, before)
                note = notes[root]
                series = None if note is None else history_prefix(root, note.token)
                is_left = f"/{HISTORY}" in entry.key and (series is None or not entry.key.startswith(series))
                if is_left and entry.modified <= before:
                    found.setdefault(root, []).append(entry)
        async for page in self.below.list(BASES):
            for entry in page.entries:
                if entry.modified <= before and not await self._shows_snapshot(entry.key):
                    found.setdefault(entry.key, []).append(entry)
        if not dry_run:
            for entries in found.values():
                await self.below.delete_all(entries)
        return {name: [len(some), sum(entry.size for entry in some)] for name, some in found.items()}

    async def _settled(self, note: VersionNote, before: float) -> VersionNote | None:
        """Give up old snapshots that were never sealed, and collect what those that are gone have left."""
        for one in note.snapshots:
            if not one.sealed and one.time <= before:
                await self._abandon(note.root, one.root)
        for pin in note.pins:
            clone = await self.below.stored(pin.root)
            if (clone is None or clone.base is None) and note.find(pin.snapshot).time <= before:
                await self._change(note.root, partial(VersionNote.unpinned, root=pin.root))
        await self._collect(note.root)
        return await read_note(self.below, note.root)

    async def _shows_snapshot(self, key: str) -> bool:
        """Say whether a tree's snapshot is in the note of its domain."""
        try:
            found = orjson.loads((await self.below.get(key)).data)
        except NotFound:
            return True  # deleted meanwhile
        note = await read_note(self.below, found["root"])
        return note is not None and key in [base_key(one.root) for one in note.snapshots]

    async def _change(self, root: str, change: Callable[[VersionNote], VersionNote]) -> VersionNote:
        """Change the note of a domain, and return the new one; `NotFound` if there is none."""
        for _ in range(ATTEMPTS):
            note = await read_note(self.below, root)
            if note is None:
                raise NotFound("The domain has no snapshots.")
            changed = await put_note(self.below, change(note))
            if changed is not None:
                return changed
        raise Busy("Other snapshots of this domain are taken all the time; try again.")

    async def _etag(self, root: str) -> str:
        note = await read_note(self.below, root)
        return "" if note is None else note.etag
