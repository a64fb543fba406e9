"""A domain takes the state that it had at a snapshot, object by object: changes like any others, which may be resumed.

Chunks come first, then the records that show them, then what was not there is deleted: nobody is shown elements that
are not there yet. A dataset's record gets a newer generation, so that what was planned for the extent before is
refused. What its chunks have outside the extent is erased before it grows: beside a snapshot it may have grown, and
a chunk may be newer than the record.
"""

from __future__ import annotations

from typing import Any

import orjson

from hsparse.compute import gather_each
from hsparse.dn.cache import load_state
from hsparse.dn.cached_object import Base as Needed
from hsparse.dn.cached_object import CachedObject
from hsparse.dn.record_form import is_record
from hsparse.dn.record_objects import RecordObjects, RecordValue
from hsparse.errors import NotFound, PreconditionFailed
from hsparse.model.dataset_state import abandon_appends, generation, trimmed
from hsparse.model.ids import domain_prefix, is_delta_key
from hsparse.storage.object_store import Entry
from hsparse.versions.snapshot_trees import Base
from hsparse.versions.store import PreservingStore
from hsparse.versions.version_keys import moved
from hsparse.wire.message import Record

AT_ONCE = 32
ATTEMPTS = 16


class Restoring:
    """Brings the domain of a store back to what it was at a snapshot."""

    def __init__(self, store: PreservingStore, base: Base) -> None:
        self._store, self._base = store, base
        self.changed = 0
        """How many objects were changed."""

    async def run(self) -> None:
        """Change all that is not as it was."""
        trees = self._store.trees
        before = await trees.sources(self._base)
        now = await trees.head_sources(self._base.root)
        other = [rest for rest, entry in before.items() if not _same(entry, now.get(rest))]
        records = {record_of(rest) for rest in other} - {""}
        chunks = [rest for rest in other if not record_of(rest) and await trees.had(self._base, rest)]
        gone = [rest for rest in now if rest not in before or not await trees.had(self._base, rest)]
        await gather_each(self._put_chunk, chunks, AT_ONCE)
        await gather_each(self._put_record, sorted(records & before.keys()), AT_ONCE)
        await gather_each(self._delete, [rest for rest in gone if not is_delta_key(rest)], AT_ONCE)

    async def _put_chunk(self, rest: str) -> None:
        store, key = self._store, domain_prefix(self._base.root) + rest
        data = (await store.trees.get(self._base, domain_prefix(self._base.tree) + rest)).data
        for _ in range(ATTEMPTS):
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
        raise PreconditionFailed(f"{key} is changed all the time; restore again.")

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
                lambda now: (None, None), base=Needed.NEEDED
            )
            self.changed += 1
            return
        for _ in range(ATTEMPTS):
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
    """Return the rest of the key of the record that an object is one of; empty for a chunk."""
    if is_delta_key(rest):
        folder = rest.partition(".record/")[0]
        kind = {"g": "group", "d": "dataset", "t": "datatype"}[folder[0]] if folder else "group"
        return f"{folder}.{kind}.json"
    return rest if is_record(f"/{rest}") else ""


def _same(entry: Entry, now: Entry | None) -> bool:
    return now is not None and (entry.key, entry.etag) == (now.key, now.etag)


def _newer(record: Record, now: Record, time: float) -> Record:
    """Return a record as it was, for a dataset that has changed since."""
    if not record.get("shape", {}).get("maxdims"):
        return record
    last = max(generation(record), generation(now))
    return trimmed(abandon_appends(record, time) | {"generation": last})


def _content(record: Record) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name not in ("generation", "lastModified")}
