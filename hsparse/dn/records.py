"""Read, change and list the records that a data node owns. Records are stored as JSON.

`RecentChanges` knows which domains changed recently: clients may cache replies about all other domains.

HSDS 1.0 answers a client that opens a domain from the `.summary.json` of its last scan, however old. `HsdsSummaries`
deletes that object before the first change of an object in its domain.
"""

from __future__ import annotations

from dataclasses import replace

from hsparse.bounded_cache import BoundedCache
from hsparse.clock import Clock
from hsparse.concurrency.gathering import gather_all, gather_each
from hsparse.concurrency.memory_budget import MemoryBudget
from hsparse.concurrency.request_trace import count_hits
from hsparse.dn.cache import Cache
from hsparse.dn.cached_object import Base, CachedObject
from hsparse.dn.membership.member_ownership import Accepted
from hsparse.dn.membership.ownership import SOLE, Ownership
from hsparse.dn.record_changes import DeletedNames, change_record, changed_entries, check_size, must_measure
from hsparse.dn.record_objects import LARGE_READ, LARGE_RECORD, RecordObjects, RecordValue, WholeRecord
from hsparse.dn.stored_form import SingleObject, StoredForm, load_state
from hsparse.errors import HsparseError, TooLarge, Unanswered
from hsparse.model import dataset_state
from hsparse.model.ids import (
    COLLECTIONS,
    ID_DOMAIN,
    JOB_PREFIX,
    domain_hex,
    domain_prefix,
    is_root,
    storage_key,
)
from hsparse.model.schema import check_changeable
from hsparse.storage.object_store import ObjectStore
from hsparse.wire.message import Failure, Record
from hsparse.wire.record_message import (
    ChangeObjects,
    CreateObject,
    DeleteAttributes,
    DeleteLinks,
    DeleteObject,
    Listing,
    ListKeys,
    Outcome,
    PutAttributes,
    PutLinks,
    PutRecord,
    RecordChange,
)

HSDS_SUMMARY = ".summary.json"
MAX_SUMMARIES = 100_000
"""The most domains that are remembered as having no summary; a forgotten domain's summary is deleted once more."""


class HsdsSummaries:
    """Deletes HSDS's summary of a domain before this node first changes an object in the domain."""

    def __init__(self, store: ObjectStore, limit: int = MAX_SUMMARIES) -> None:
        self._store = store
        self._none: BoundedCache[str, None] = BoundedCache.of_entries(limit)

    async def remove(self, id: str) -> None:
        """Delete the summary of an object's domain, unless the domain is known to have none."""
        if id[ID_DOMAIN] not in self._none:
            await self._store.delete(domain_prefix(id) + HSDS_SUMMARY)
            self.know_none(id)

    def know_none(self, id: str) -> None:
        """Remember that an object's domain has no summary."""
        self._none.keep(id[ID_DOMAIN], None)


MAX_DOMAINS = 10_000
"""The most domains whose last change is remembered; the least recently changed are forgotten."""


class RecentChanges:
    """The time at which this node last changed an object of each domain."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._times: BoundedCache[str, float] = BoundedCache.of_entries(MAX_DOMAINS)

    def note(self, id: str) -> None:
        """Record a change of an object now."""
        self._times.keep(domain_hex(id), self._clock.now())

    def settle(self, root: str) -> None:
        """Answer `SettleChanges`: stop counting earlier changes in the domain of `root` as recent."""
        self._times.forget(domain_hex(root))

    def within(self, root: str, seconds: float) -> bool:
        """Answer `ChangedLately`: return whether this node changed an object of the domain in the last `seconds`."""
        last = self._times.get(domain_hex(root))
        return last is not None and self._clock.now() - last < seconds


NO_LIMIT = 2**63 - 1
READS_AT_ONCE = 32
"""How many records of one message are read concurrently."""
JSON_FACTOR = 4
"""The approximate ratio of a record's memory to the size of its JSON."""
READ_MEMORY = 512 * 1024 * 1024
"""Memory, in bytes, for the large records that requests read at a time, and for the replies made from them."""
REPLY_MEMORY = 64 * 1024 * 1024
"""The approximate limit of the memory, in bytes, of one reply's records; the first record is always sent."""
LEFT_OUT = Outcome(
    failure=Failure.of(TooLarge("The requested records do not fit into one reply; request fewer records."))
)
"""The outcome for a record that does not fit into a reply; a record that is requested alone is always sent."""
OF_ENTRIES = (PutAttributes, DeleteAttributes, PutLinks, DeleteLinks)
"""Changes whose outcome omits the record, which may have many more entries than the change."""
_BASES = {CreateObject: Base.ABSENT, PutRecord: Base.IGNORED}


class Records:
    """Records by id, over the node's cache and store."""

    def __init__(
        self,
        store: ObjectStore,
        cache: Cache,
        summaries: HsdsSummaries,
        clock: Clock,
        ownership: Ownership = SOLE,
        max_size: int = NO_LIMIT,
        large_size: int = LARGE_RECORD,
    ) -> None:
        self._store = store
        self._max_size = max_size
        self._large_size = large_size
        self._memory = MemoryBudget(READ_MEMORY)
        self._ownership = ownership
        self._cache = cache
        self._clock = clock
        self._deleted = DeletedNames()
        self.recent = RecentChanges(clock)
        self._summaries = summaries

    def cached(self, ids: tuple[str, ...]) -> tuple[Outcome, ...] | None:
        """Answer `ReadObjects` if all records are in memory and together small, or return None if they are not."""
        outcomes: list[Outcome] = []
        used = 0
        for id in ids:
            outcome, nbytes = self._cached(id)
            used += nbytes
            if outcome is None or used > LARGE_READ:
                return None
            outcomes.append(outcome)
        count_hits(len(outcomes))
        return tuple(outcomes)

    async def read(self, ids: tuple[str, ...]) -> tuple[Outcome, ...]:
        """Answer `ReadObjects`: return for each id an outcome with the record or the failure."""
        used = 0  # bytes of memory of the reply's records

        async def read(place: int) -> Outcome:
            nonlocal used
            if place and used > REPLY_MEMORY:
                return LEFT_OUT
            outcome, nbytes = self._cached(ids[place])
            if outcome is None:
                outcome, nbytes = await self._read(ids[place])
                used += nbytes
            else:
                used += nbytes
                count_hits()
                if nbytes > LARGE_READ:
                    await self._memory.hold_for_request(nbytes // JSON_FACTOR)
            # Concurrent reads may have taken the room; the first record is never left out.
            return LEFT_OUT if place and used > REPLY_MEMORY else outcome

        return tuple(await gather_each(read, range(len(ids)), READS_AT_ONCE))

    async def change(self, message: ChangeObjects, accepted: Accepted | None = None) -> tuple[Outcome, ...]:
        """Answer `ChangeObjects`: return an outcome per change; changes of one object keep the given order."""
        repeated, term = message.repeated, None if accepted is None else accepted.term
        if len(message.changes) == 1:
            return (await self._change(message.changes[0], repeated, term),)
        return tuple(await gather_all([self._change(change, repeated, term) for change in message.changes]))

    async def generation(self, dataset: str) -> int:
        """Return the generation (see `Fences`) in a dataset's stored record, or 0 if there is no record.

        `Unsupported` is raised if this server must not change the dataset's chunks. A record that another node owns is
        not cached, because the copy here would become stale.
        """
        key = storage_key(dataset)
        cached: CachedObject[RecordValue] | None = self._cache.get(key)
        known, value = (False, None) if cached is None else cached.peek()
        if not known:
            state = await load_state(self._objects(key))
            if state.value is None:
                return 0
            value = state.value
        record = {} if value is None else value.record
        check_changeable(dataset, record)
        return dataset_state.generation(record)

    async def list(self, message: ListKeys) -> Listing:
        """Answer `ListKeys`: return keys and common prefixes in the store, up to the message's limit."""
        entries: list[tuple[str, int, float]] = []
        prefixes: list[str] = []
        more = False
        async for page in self._store.list(
            message.prefix, delimiter=message.delimiter, start_after=message.start_after
        ):
            entries += [(entry.key, entry.size, entry.modified) for entry in page.entries]
            prefixes += page.prefixes
            if len(entries) + len(prefixes) > message.limit:
                more = True
                break
        if more:
            names = sorted([key for key, _, _ in entries] + prefixes)[: message.limit]
            entries = [entry for entry in entries if entry[0] <= names[-1]]
            prefixes = [prefix for prefix in prefixes if prefix <= names[-1]]
        return Listing(
            tuple(key for key, _, _ in entries),
            tuple(size for _, size, _ in entries),
            tuple(modified for _, _, modified in entries),
            tuple(prefixes),
            more,
        )

    def _cached(self, id: str) -> tuple[Outcome | None, int]:
        """Return a pair: the outcome with a cached record, or None if it is not cached, and its approximate bytes."""
        cached: CachedObject[RecordValue] | None = self._cache.get(storage_key(id))
        if cached is None:
            return None, 0
        value = cached.peek()[1]
        return (None, 0) if value is None else (Outcome(value.record), cached.nbytes)

    async def _read(self, id: str) -> tuple[Outcome, int]:
        """Return a pair: the outcome of reading a record, and the record's approximate memory in bytes."""
        key = storage_key(id)
        nbytes = 0
        try:
            with self._cache.use(key, lambda: self._make(key, id)) as cached:
                value = await cached.read()
                nbytes = cached.nbytes
            if value is None:
                raise self._deleted.missing(id, id)
        except HsparseError as error:
            return Outcome(failure=Failure.of(error)), nbytes
        return Outcome(value.record), nbytes

    async def _change(self, change: RecordChange, repeated: bool, term: int | None) -> Outcome:
        key = storage_key(change.id)
        before: Record = {}

        def apply(value: RecordValue | None) -> tuple[RecordValue | None, Outcome]:
            nonlocal before
            record = None if value is None else value.record
            before = record or {}
            new, outcome = change_record(change, record, self._clock.now(), self._deleted, repeated=repeated)
            if isinstance(change, OF_ENTRIES):
                outcome = replace(outcome, record=None)
            if new is None or new is record:
                return (None if new is None else value), outcome
            stored = None if value is None else _stored_bytes(value, cached)
            if must_measure(change, stored, self._max_size):
                check_size(new, self._max_size)
            changed = RecordValue(new) if value is None else value.changed(new, *changed_entries(change))
            return changed, outcome

        try:
            await self._remove_summary(change)
            with self._cache.use(key, lambda: self._make(key, change.id)) as cached:
                base = _BASES.get(type(change), Base.NEEDED)
                outcome = await cached.apply(apply, base=base, term=term)
        except Unanswered:
            raise
        except HsparseError as error:
            return Outcome(failure=Failure.of(error))
        if outcome.changed or repeated:
            self._note_deletions(change, before)
        if outcome.changed and _is_of_domain(change.id):
            self.recent.note(change.id)
        return outcome

    async def _remove_summary(self, change: RecordChange) -> None:
        """Delete HSDS's summary of the object's domain, unless the object is a domain, a job or hsparse's summary."""
        id = change.id
        if not _is_of_domain(id):
            return
        if isinstance(change, CreateObject) and is_root(id):
            self._summaries.know_none(id)
        else:
            await self._summaries.remove(id)

    def _make(self, key: str, id: str) -> CachedObject[RecordValue]:
        form: StoredForm[RecordValue] = (
            self._objects(key) if id[0] in COLLECTIONS else SingleObject(key, self._store, WholeRecord(key))
        )
        return CachedObject(form, self._ownership, id)

    def _objects(self, key: str) -> RecordObjects:
        return RecordObjects(key, self._store, self._clock, self._large_size, self._memory)

    def _note_deletions(self, change: RecordChange, before: Record) -> None:
        """Remember the names that a change deleted from the record `before`, and forget the names that it created."""
        match change:
            case DeleteObject(id):
                self._deleted.add(id)
            case CreateObject(id, _):
                self._deleted.remove(id)
            case DeleteAttributes(id, names):
                for name in (before.get("attributes") or {}).keys() & names:
                    self._deleted.add(id, "attribute", name)
            case PutAttributes(id, attributes, _):
                for name in attributes:
                    self._deleted.remove(id, "attribute", name)
            case DeleteLinks(id, titles):
                for title in (before.get("links") or {}).keys() & titles:
                    self._deleted.add(id, "link", title)
            case PutLinks(id, links, removed):
                for title in (before.get("links") or {}).keys() & removed:
                    self._deleted.add(id, "link", title)
                for title in links:
                    self._deleted.remove(id, "link", title)


def _stored_bytes(value: RecordValue, cached: CachedObject[RecordValue]) -> int:
    """Return an upper estimate of the bytes of JSON of a record in memory."""
    return cached.nbytes if value.delta is None else value.delta.base_size + value.delta.size


def _is_of_domain(id: str) -> bool:
    """Return whether an id names an object inside a domain, and not a domain, a summary or a job."""
    return not id.startswith(("/", "s-", JOB_PREFIX))
