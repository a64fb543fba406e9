"""Restore a domain to a snapshot, object by object, by ordinary changes; an interrupted restore can be resumed.

Chunks are put first, then the records of their datasets. Then objects that did not exist at the snapshot are deleted,
records before chunks. Readers thus see no dataset whose chunks are missing. After each step, all nodes compare their
cached objects with the store. A restore keeps objects that were created after the restore began, but replaces or
deletes chunks that changed after the restore began, because other elements of such a chunk are older.

A dataset's record gets a newer generation, so that operations planned for the previous extent are refused. Elements
outside the restored extent are erased before it grows, because a chunk may be newer than the record.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from enum import StrEnum
from typing import Any

import orjson

from hsparse.attempts import MAX_CHANGE_ATTEMPTS
from hsparse.concurrency.gathering import gather_each
from hsparse.concurrency.memory_budget import MemoryBudget
from hsparse.dn.cached_object import Base, CachedObject
from hsparse.dn.record_form import is_record
from hsparse.dn.record_objects import RecordObjects, RecordValue
from hsparse.dn.stored_form import load_state
from hsparse.errors import NotFound, PreconditionFailed
from hsparse.model.dataset_state import abandon_appends, generation, trimmed
from hsparse.model.ids import domain_prefix, is_delta_key
from hsparse.sn.request import OBJECT_BYTES
from hsparse.storage.object_store import Entry
from hsparse.versions.moved_ids import moved
from hsparse.versions.snapshot_trees import TreeBase
from hsparse.versions.store import PreservingStore
from hsparse.versions.version_keys import chunk_of
from hsparse.wire.message import Record

AT_ONCE = 32


class Step(StrEnum):
    """The steps of a restore, in the order in which they are carried out."""

    PUT = "put"
    RECORDS = "records"
    """Delete the records of objects that did not exist at the snapshot."""
    CHUNKS = "chunks"


class Restoring:
    """Restores a domain to the snapshot `base`; `kept` is the snapshot taken before the restore."""

    def __init__(self, store: PreservingStore, base: TreeBase, kept: TreeBase, memory: MemoryBudget) -> None:
        self._store, self._base, self._kept = store, base, kept
        self._memory = memory
        self.changed = 0
        """The number of objects that were changed."""

    async def run(self, step: Step) -> None:
        """Restore the objects of this step that differ from the snapshot."""
        if step is Step.PUT:
            chunks, records = await self._different()
            await gather_each(self._put_chunk, chunks.items(), AT_ONCE)
            await gather_each(self._put_record, records, AT_ONCE)
            return
        gone = [one for one in await self._gone() if bool(record_of(one)) == (step is Step.RECORDS)]
        await gather_each(self._delete, gone, AT_ONCE)

    async def nbytes(self) -> int:
        """Return the approximate number of bytes that a restore adds: new objects, and copies of replaced ones."""
        chunks, records = await self._different()
        now = await self._store.trees.head_sources(self._base.root)
        before = await self._store.trees.sources(self._base)
        put = [one[rest] for one in (before, now) for rest in (*chunks, *records) if rest in one]
        put += [now[rest] for rest in await self._unshown(now, before)]
        return sum(max(entry.size, OBJECT_BYTES) for entry in put)

    async def _different(self) -> tuple[dict[str, int], list[str]]:
        """Return a pair: differing chunks, each mapped to the bytes of memory to restore it, and differing records."""
        trees = self._store.trees
        before = await trees.sources(self._base)
        now = await trees.head_sources(self._base.root)
        other = [rest for rest, entry in before.items() if not _same(entry, now.get(rest))]
        records = {record_of(rest) for rest in other} - {""}
        chunks = {
            rest: before[rest].size + 2 * (now[rest].size if rest in now else 0)  # kept as a copy
            for rest in other
            if not record_of(rest) and await trees.had(self._base, rest)
        }
        return chunks, sorted(records & before.keys())

    async def _gone(self) -> list[str]:
        """Return the objects to delete: objects that are not in the snapshot and existed when the restore began."""
        trees = self._store.trees
        before = await trees.sources(self._base)
        known = before.keys() | (await trees.sources(self._kept)).keys()
        now = await trees.head_sources(self._base.root)
        # New chunks are included, because a shrink that should have erased them may have seen the earlier extent.
        there = [rest for rest in now if (chunk_of(rest) or (rest,))[0] in known]
        gone = await self._unshown(there, before)
        return [rest for rest in gone if not is_delta_key(rest)]

    async def _unshown(self, there: Iterable[str], before: Container[str]) -> list[str]:
        """Return the objects in `there` that are not in the snapshot."""
        had = self._store.trees.had
        return [rest for rest in there if rest not in before or not await had(self._base, rest)]

    async def _put_chunk(self, chunk: tuple[str, int]) -> None:
        rest, nbytes = chunk
        async with self._memory.hold(nbytes):
            there = domain_prefix(self._base.tree) + rest
            await self._put_bytes(rest, (await self._store.trees.get(self._base, there)).data)

    async def _put_bytes(self, rest: str, data: bytes) -> None:
        store, key = self._store, domain_prefix(self._base.root) + rest
        for _ in range(MAX_CHANGE_ATTEMPTS):
            try:
                try:
                    now = await store.get(key)
                except NotFound:
                    await store.put_if_absent(key, data)
                else:
                    if now.data == data:
                        return
                    await store.put_if_match(key, data, now.etag)
            except PreconditionFailed:
                continue
            self.changed += 1
            return
        raise PreconditionFailed(f"Other writers keep changing {key}: stop them, and restore again.")

    async def _put_record(self, rest: str) -> None:
        store, base = self._store, self._base
        tree = RecordObjects(domain_prefix(base.tree) + rest, store, store.clock)
        value = (await load_state(tree)).value
        if value is None:
            return
        record = orjson.loads(moved(orjson.dumps(value.record), base.tree, base.root))
        change = CachedObject(RecordObjects(domain_prefix(base.root) + rest, store, store.clock))

        def restored(now: RecordValue | None) -> tuple[RecordValue | None, bool]:
            new = _newer(record, {} if now is None else now.record, store.clock.now())
            if now is not None and _content(new) == _content(now.record):
                return now, False
            return RecordValue(new), True

        self.changed += await change.apply(restored)

    async def _delete(self, rest: str) -> None:
        store, key = self._store, domain_prefix(self._base.root) + rest
        if is_record(key):
            await CachedObject(RecordObjects(key, store, store.clock)).apply(
                lambda now: (None, None), base=Base.NEEDED
            )
            self.changed += 1
            return
        for _ in range(MAX_CHANGE_ATTEMPTS):
            try:
                now = await store.get(key)
                await store.delete_if_match(key, now.etag)
            except NotFound:
                return
            except PreconditionFailed:
                continue
            self.changed += 1
            return


def record_of(rest: str) -> str:
    """Return the key, without the domain's prefix, of the record that an object is part of, or "" for a chunk."""
    if is_delta_key(rest):
        folder = rest.partition(".record/")[0]
        kind = {"g": "group", "d": "dataset", "t": "datatype"}[folder[0]] if folder else "group"
        return f"{folder}.{kind}.json"
    return rest if is_record(f"/{rest}") else ""


def _same(entry: Entry, now: Entry | None) -> bool:
    return now is not None and (entry.key, entry.etag) == (now.key, now.etag)


def _newer(record: Record, now: Record, time: float) -> Record:
    """Return a dataset's restored record with a generation that is newer than the generation of both records."""
    if not record.get("shape", {}).get("maxdims"):
        return record
    last = max(generation(record), generation(now))
    return trimmed(abandon_appends(record, time) | {"generation": last})


def _content(record: Record) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name not in ("generation", "lastModified")}
