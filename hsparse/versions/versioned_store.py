"""Answer a service node's requests about snapshots and clones: take, seal, remove, restore and compare them.

A snapshot is begun in the note of its domain, by a conditional put. Every data node is told, and answers once its
earlier changes have ended; all later changes preserve the objects. Then the snapshot is sealed and can be read. After a
change of the cluster's members, sealing waits a few seconds for late changes of evicted members, which were not told of
the snapshot.

A snapshot is removed from the note first. Every data node is told, and then the copies that no other snapshot needs are
deleted. A node that was paused meanwhile deletes nothing, because the note must be the one that it read.
"""

from __future__ import annotations

import asyncio
import sys
from bisect import bisect_right
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import Any, TypeAlias

import orjson

from hsparse.attempts import MAX_CHANGE_ATTEMPTS
from hsparse.bounded_cache import BoundedCache
from hsparse.clock import Clock
from hsparse.cluster.membership_object import KEY as MEMBERS
from hsparse.concurrency.gathering import gather_each
from hsparse.concurrency.memory_budget import MemoryBudget
from hsparse.dn.membership.ownership import Ownership
from hsparse.dn.record_objects import RecordObjects
from hsparse.dn.stored_form import load_state
from hsparse.errors import Busy, Conflict, HsparseError, NotFound, PreconditionFailed, Unsupported
from hsparse.model.ids import domain_prefix, storage_key
from hsparse.model.schema import SCHEMA_KEY, VERSIONS, Schema, parse_schema
from hsparse.sn.request import OBJECT_BYTES
from hsparse.storage.object_store import Entry, ObjectStore
from hsparse.versions.changed_elements import changed_chunks
from hsparse.versions.clone_store import Clone
from hsparse.versions.differences import by_object, differences
from hsparse.versions.restoring import Restoring, Step, record_of
from hsparse.versions.snapshot_trees import TreeBase
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
LATE_SECONDS = 3.0
"""Seconds within which a change that its sender has given up reaches the store, or never does."""
TOKEN_BYTES = 8
COPY_MEMORY = 512 * 1024 * 1024
"""Memory, in bytes, for chunks that are copied or compared concurrently."""
COPY_SECONDS = 3600.0
"""The most seconds that one of many copies waits for memory."""
MOST_FOUND = 100_000
"""The most changes between snapshots that are cached; the last comparison is always cached."""


class VersionedStore(PreservingStore):
    """A `PreservingStore` that takes, removes, clones, restores and compares snapshots."""

    def __init__(
        self, store: ObjectStore, ownership: Ownership, clock: Clock, memory: int = COPY_MEMORY
    ) -> None:
        super().__init__(store, ownership, clock)
        self.memory = MemoryBudget(memory, COPY_SECONDS)
        """The memory budget for copies and comparisons of chunks."""
        self.below.ended = self._unpin
        self._found: BoundedCache[tuple[str, ...], list[Json]] = BoundedCache(
            MOST_FOUND, sys.maxsize, entry_size=0
        )
        """Maps pairs of snapshots to the changes between them, which never change."""

    async def answer(self, question: str, arguments: Json) -> Json:
        answers: dict[str, Callable[..., Awaitable[Json]]] = {
            "versions.list": self._list,
            "versions.pins": self._pins,
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
            "versions.materialized_bytes": self._materialized_bytes,
            "versions.restore": self._restore,
            "versions.restored_bytes": self._restored_bytes,
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
            "base": clone and base and {"domain": clone.source, "snapshot": base.number, "root": base.root},
        }

    async def _pins(self, root: str) -> Json:
        """Return the clones that need a snapshot of a domain."""
        note = await read_note(self.below, root) if await self.is_used() else None
        return {"pins": [asdict(pin) for pin in note.pins] if note else []}

    async def _as_clone(self, root: str) -> Clone | None:
        return await self.below.clone_of(storage_key(root))

    async def _begin(self, root: str, author: str, message: str) -> Json:
        """Begin a snapshot of a domain, and remove the traces of abandoned snapshots."""
        if not self.ownership.hears_all:
            raise Unsupported(
                "Several servers write to this store without telling each other: snapshots need one server, or a "
                "cluster of data nodes."
            )
        await self._declare()
        for _ in range(MAX_CHANGE_ATTEMPTS):
            note = await read_note(self.below, root)
            note = note or VersionNote(root, self.clock.token(TOKEN_BYTES).hex())
            begun = note.begun(self.clock.now(), author, message)
            new = begun.snapshots[-1]
            base = TreeBase(root, note.token, new.number, new.root)
            await self.below.put(base_key(new.root), base.encode())
            if await put_note(self.below, begun) is not None:
                for gone in set(note.snapshots) - set(begun.snapshots):
                    await self.below.delete(base_key(gone.root))
                return new.to_json()
            if not note.etag:  # the token was never stored, so no other snapshot has this tree
                await self.below.delete(base_key(new.root))
        raise Busy("Other requests keep changing the snapshots of this domain; try again.")

    async def _declare(self) -> None:
        """Add the feature `VERSIONS` to the store's schema, so that no older version of hsparse changes a domain."""
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
        """Read the note of a domain's snapshots again; after that, this node reads no ending snapshot."""
        self.begin_use()
        self.below.forget(root)
        known = await self.versions.renew(root)
        there = () if known.note is None else known.note.snapshots
        kept = [one.root for one in there if not one.ending]
        await self.trees.forget(root, kept, [one.root for one in there if one.ending])
        return {}

    async def _seal(self, root: str, tree: str) -> Json:
        """Allow reads of the snapshot `tree`; a number would not do, because a new snapshot may have the same one."""
        await self._await_late_changes()
        time = self.clock.now()
        note = await self._change(root, lambda note: note.sealed(tree, time))
        return next(one.to_json() for one in note.snapshots if one.root == tree)

    async def _await_late_changes(self) -> None:
        """Wait until changes of a recently evicted node, which was not told of the snapshot, have reached the store."""
        if not self.ownership.always:
            async for page in self.below.list(MEMBERS):
                for entry in page.entries:
                    await asyncio.sleep(min(LATE_SECONDS, LATE_SECONDS - (self.clock.now() - entry.modified)))

    async def _abandon(self, root: str, tree: str) -> Json:
        """Remove a snapshot that is not sealed, or is ending, from the note; a sealed snapshot stays."""
        note = await self._change(root, lambda note: note.abandoned(tree))
        if all(one.root != tree for one in note.snapshots):
            await self.below.delete(base_key(tree))
        return {}

    async def _remove(self, root: str, number: int) -> Json:
        """Mark a snapshot as ending. After all nodes were told, the caller abandons it and collects its copies."""
        time = self.clock.now()
        note = await self._change(root, lambda note: note.ended(number, time))
        gone = next(one for one in note.snapshots if one.number == number)
        await self.below.delete(base_key(gone.root))
        return {"root": gone.root}

    async def _collect(self, root: str) -> Json:
        """Delete the copies that no snapshot of a domain needs; return the number of deleted objects."""
        note = await read_note(self.below, root)
        if note is None:
            return {"deleted": 0}
        count = 0
        async for entries in self._needless(note):
            if await self._etag(root) != note.etag:
                break  # the node that changed the note collects as well, or needs these copies
            count += sum(await self.below.delete_all(entries))
        if not note.snapshots and not note.pins:
            try:
                await self.below.delete_if_match(note_key(root), note.etag)
            except PreconditionFailed:
                return {"deleted": count}
            await self.versions.renew(root)
        return {"deleted": count}

    async def _needless(self, note: VersionNote) -> AsyncIterator[list[Entry]]:
        """Yield pages of copies that no snapshot needs: none lies between the copy and the one before it."""
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

    async def _clone(self, root: str, number: int, clone: str, source: str, domain: str) -> Json:
        """Pin a snapshot and store a clone's root group; raise `Conflict` if the domain is being deleted."""
        shared = await self._as_clone(root)
        if shared is not None and shared.base is not None and not await self._has_own(shared):
            # An unchanged clone shows what its base shows, so clone its base: chains of clones do not grow.
            root, number, source = shared.base.root, shared.base.number, shared.source
        pin = Pin(domain, clone, number)
        note = await self._change(root, lambda note: note.pinned(pin))
        base = TreeBase(root, note.token, number, clone)
        if await self.notes.read(root) is not None:
            await self._change(root, lambda note: note.unpinned(clone))
            raise Conflict(f"{source} is being deleted: it cannot be cloned.")
        new = Clone(clone, base, source)
        with suppress(PreconditionFailed):  # the message was sent before
            await self.below.plain.put_if_absent(storage_key(clone), new.encode(domain, self.clock.now()))
        return {}

    async def _unclone(self, root: str, clone: str) -> Json:
        """Undo the creation of a clone that no domain has."""
        made = await self.below.stored(clone)
        if made is not None and made.base is not None:
            root = made.base.root
        await self.below.plain.delete(storage_key(clone))
        self.below.forget(clone)
        await self._change(root, lambda note: note.unpinned(clone))
        return {}

    async def _has_own(self, clone: Clone) -> bool:
        """Return whether a clone has changed any object."""
        async for page in self.below.plain.list(clone.own_key("")):
            if page.entries:
                return True
        return False

    async def _unpin(self, clone: Clone) -> None:
        """Release the snapshot that a deleted clone needed."""
        if clone.base is not None:
            await self._release(clone.base.root, clone.root)

    async def _release(self, root: str, clone: str) -> None:
        """Remove a clone from the note of a domain, if the domain still has a note."""
        with suppress(NotFound):
            await self._change(root, lambda note: note.unpinned(clone))

    async def _materialize(self, root: str) -> Json:
        """Copy the objects that a clone shares into the clone; return the number of copies and the base's root id."""
        clone = await self._as_clone(root)
        if clone is None or clone.base is None:
            return {"copied": 0, "base": None}
        base, below = clone.base, self.below
        copied = 0

        async def copy(entry: Entry) -> None:
            nonlocal copied
            async with self.memory.hold(entry.size):
                data = (await self.trees.get(base, entry.key)).data
                with suppress(PreconditionFailed):  # the clone has changed or deleted the object meanwhile
                    await below.plain.put_if_absent(clone.own_key(rest_of(entry.key)), data)
                    copied += 1

        await gather_each(copy, await self._shared(clone), AT_ONCE)
        stored = await below.plain.get(storage_key(root))
        found = orjson.loads(stored.data) | {"base": None}
        with suppress(PreconditionFailed):  # another request has materialized the clone
            await below.plain.put_if_match(storage_key(root), orjson.dumps(found), stored.etag)
        return {"copied": copied, "base": base.root}

    async def _materialized_bytes(self, root: str) -> Json:
        """Return the number of bytes that materializing a clone adds to the store."""
        clone = await self._as_clone(root)
        shared = [] if clone is None else await self._shared(clone)
        return {"bytes": sum(max(entry.size, OBJECT_BYTES) for entry in shared)}

    async def _shared(self, clone: Clone) -> list[Entry]:
        """Return the objects that a clone shares, which it has neither changed nor deleted."""
        if clone.base is None:
            return []
        own = clone.own_key("")
        known = {
            entry.key.removeprefix(own) async for page in self.below.plain.list(own) for entry in page.entries
        }
        entries = await self.trees.entries(clone.base, domain_prefix(clone.root))
        return [entry for entry in entries if rest_of(entry.key) not in known]

    async def _part(self, root: str, base: str) -> Json:
        """Release the snapshot of a materialized clone, after all nodes were told that the clone shares no object."""
        own = Clone(root, None).own_key("")
        async for page in self.below.plain.list(own):
            await self.below.plain.delete_all([entry for entry in page.entries if not entry.size])
        await self._release(base, root)
        return {}

    async def _restore(self, root: str, number: int, kept: int, step: str) -> Json:
        """Carry out one step of restoring a domain to a snapshot; return the number of changed objects.

        `kept` is the snapshot taken before the restore. Raises `NotFound` if either snapshot is deleted meanwhile.
        """
        base, before = await self._base_at(root, number), await self._base_at(root, kept)
        restoring = Restoring(self, base, before, self.memory)
        try:
            await restoring.run(Step(step))
        except HsparseError:
            await asyncio.sleep(LATE_SECONDS)  # late changes must be stored before nodes compare their caches
            raise
        if (await self._base_at(root, number), await self._base_at(root, kept)) != (base, before):
            raise NotFound(f"The snapshot {number} was deleted during the restore.")
        return {"changed": restoring.changed}

    async def _restored_bytes(self, root: str, number: int) -> Json:
        """Return the approximate number of bytes that a restore adds to a domain."""
        base = await self._base_at(root, number)
        return {"bytes": await Restoring(self, base, base, self.memory).nbytes()}

    async def _diff(self, root: str, number: int, to: int | None) -> Json:
        """Return the change of each object between two snapshots (None: the current state); see `by_object`.

        Datasets also have the number of `elements` that differ, None if they are not counted.
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
                continue  # a new dataset with the same id, whose chunks are all new
            different, elements[id] = await changed_chunks(self, record, rests, before, after, self.memory)
            if known in before and known in after:  # a chunk that was written back is no change
                same |= set(rests).difference(different)
        found = by_object([one for one in changes if one["marker"] not in same])
        return {id: one | {"elements": elements.get(id)} for id, one in found.items()}

    async def _dataset(self, id: str, number: int, to: int | None, after: dict[str, Entry]) -> Json | None:
        """Return a dataset's record after the changes or, if the dataset was deleted, before the changes."""
        key = storage_key(id)
        if rest_of(key) not in after:
            tree = (await self._base_at(root_of(key), number)).tree
        else:
            tree = root_of(key) if to is None else (await self._base_at(root_of(key), to)).tree
        state = await load_state(RecordObjects(domain_prefix(tree) + rest_of(key), self, self.clock))
        return None if state.value is None else state.value.record

    async def _changes(self, root: str, number: int, to: int, marker: str, limit: int) -> Json:
        """Return at most `limit` changes between two snapshots and, if there are more, the last change's marker."""
        found = await self._differences(root, number, to)
        first = bisect_right(found, marker, key=lambda one: one["marker"])
        page = found[first : first + limit]
        return {"changes": page, "marker": page[-1]["marker"] if first + limit < len(found) else None}

    async def _differences(self, root: str, number: int, to: int) -> list[Json]:
        """Return all changes between two snapshots (0: the empty domain); cache the changes."""
        bases = [await self._base_at(root, one) for one in (number, to) if one]
        between = (root, *(base.tree for base in bases))
        if (found := self._found.use(between)) is None:
            before, after = await self._sources(root, number), await self._sources(root, to)
            found = await self._compared(root, before, after)
            self._found.keep(between, found, len(found))
        return found

    async def _compared(self, root: str, before: dict[str, Entry], after: dict[str, Entry]) -> list[Json]:
        for rest in before.keys() & after.keys():
            if record_of(rest) and await self._is_same(before[rest], after[rest]):
                after[rest] = before[rest]
        return differences(root, before, after)

    async def _sources(self, root: str, number: int | None) -> dict[str, Entry]:
        """Map a snapshot's objects (None: the current state, 0: the empty domain) to the stored objects to read."""
        if number is None:
            return await self.trees.head_sources(root)
        return await self._shown(await self._base_at(root, number)) if number else {}

    async def _is_same(self, old: Entry, new: Entry) -> bool:
        """Return whether a record is equal in two objects; a record is also copied when only a chunk has changed."""
        if old.size != new.size or (old.key, old.etag) == (new.key, new.etag):
            return old.size == new.size
        with suppress(NotFound):
            return (await self.get(old.key)).data == (await self.get(new.key)).data
        return False

    async def _shown(self, base: TreeBase) -> dict[str, Entry]:
        found = await self.trees.sources(base)
        return {rest: entry for rest, entry in found.items() if await self.trees.had(base, rest)}

    async def _base_at(self, root: str, number: int) -> TreeBase:
        note = await read_note(self.below, root)
        if note is None:
            raise NotFound(f"There is no snapshot {number}; the domain has no snapshots.")
        base = TreeBase(root, note.token, number, note.find(number).root)
        self.trees.learn(base)
        return base

    async def _sweep(self, min_age: float, dry_run: bool) -> Json:
        """Delete unneeded objects older than `min_age` seconds; map root groups or keys to deleted counts and bytes."""
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
        """Abandon old unsealed snapshots, remove pins of lost clones, and collect unneeded copies; return the note."""
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
        """Return whether a tree's snapshot is in the note of its domain."""
        try:
            found = orjson.loads((await self.below.get(key)).data)
        except NotFound:
            return True  # deleted meanwhile
        note = await read_note(self.below, found["root"])
        return note is not None and key in [base_key(one.root) for one in note.snapshots]

    async def _change(self, root: str, change: Callable[[VersionNote], VersionNote]) -> VersionNote:
        """Change the note of a domain and return the new note; raise `NotFound` if the domain has no note."""
        for _ in range(MAX_CHANGE_ATTEMPTS):
            note = await read_note(self.below, root)
            if note is None:
                raise NotFound("The domain has no snapshots.")
            changed = await put_note(self.below, change(note))
            if changed is not None:
                return changed
        raise Busy("Other requests keep changing the snapshots of this domain; try again.")

    async def _etag(self, root: str) -> str:
        note = await read_note(self.below, root)
        return "" if note is None else note.etag
